"""Scores from files to the ledger, and for a replay."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from mild.errors import DataFileError, check_arguments, count_noun
from mild_gateway.database import DatabaseError
from mild_gateway.database.engine import Location, open_database, shown_place
from mild_gateway.learning.draws import read_judged
from mild_gateway.ledger.feedback import LEDGER, Feedback, judged_requests, write_feedback
from mild_gateway.ledger.reading import ledger_location, open_ledger


@dataclass(frozen=True)
class FeedbackImport:
    """What ``mild_gateway.import_feedback`` did, in rows."""

    written: int  # of a request and expert that appear twice, the last one
    unknown: int  # their request is not in the ledger
    unanswered: int  # nobody answered their request, and they name no expert

    @property
    def sentence(self) -> str:
        """What was written and what was not."""
        parts = [f"{count_noun(self.written, 'score')} written"]
        if self.unknown:
            parts.append(f"{count_noun(self.unknown, 'request')} unknown")
        if self.unanswered:
            parts.append(f"{count_noun(self.unanswered, 'request')} without an answer")
        return ", ".join(parts) + "."

    def as_dict(self) -> dict[str, Any]:
        """What ``mild feedback import --json`` prints."""
        return asdict(self)


@check_arguments
def import_feedback(
    ledger: str | os.PathLike[str],
    data: Any,
    *,
    rate: float | None = None,
    id_column: str = "request_id",
) -> FeedbackImport:
    """Write scores of answers to a ledger, all or nothing.

    A score replaces an earlier imported one of the same request and expert. Requests that the ledger does
    not have are counted and left out.

    Parameters
    ----------
    ledger : SQLite file, postgresql:// URL, or the mild.toml that names it
    data : table of the request id and error, score or correct, in [0, 1], and perhaps ``expert``, whose
        answer was judged (default: the one that answered): a file or a frame
    rate : probability in (0, 1] with which each answered request was picked to be judged, if they were
        picked at random. Without it the scores train, but do not judge a router
    id_column : column of the request id

    Returns
    -------
    FeedbackImport, with the numbers ``written``, ``unknown`` and ``unanswered``

    Raises
    ------
    DataFileError
        the table cannot be read, or the ledger cannot be written

    Examples
    --------
    >>> import pyarrow as pa, tempfile, time
    >>> from pathlib import Path
    >>> from mild_gateway.config import LedgerSettings
    >>> from mild_gateway.ledger import LedgerWriter, Record
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     settings = LedgerSettings(Path(folder, "ledger.sqlite"))
    ...     writer = LedgerWriter(settings, ["small"])
    ...     writer.start()
    ...     writer.write(Record("r1", time.time(), "alice", "mild", expert="small"))
    ...     writer.close()
    ...     judged = pa.table({"request_id": ["r1", "r2"], "score": [1.0, 0.5]})
    ...     imported = import_feedback(settings.path, judged)
    >>> imported.written, imported.unknown
    (1, 1)
    """
    location = ledger_location(ledger)
    now = time.time()
    scores = []
    for row, (request_id, expert, score) in enumerate(read_judged(data, id_column)):
        # In the order of the table: those who read feedback go by time.
        moment = now + 1e-6 * row
        scores.append(Feedback(request_id, expert, "import", score, rate, moment))
    # Opened to read first: one that is not there is not created.
    with open_ledger(location):
        pass
    try:
        with closing(open_database(location)) as database:
            counts = write_feedback(database, scores)
    except DatabaseError as error:
        raise DataFileError(f"{shown_place(location)} cannot be written: {error}.") from error
    return FeedbackImport(counts["written"], counts["unknown"], counts["unanswered"])


def read_scores(
    source: Any, location: Location, id_column: str = "request_id"
) -> dict[str, Feedback] | None:
    """By request the feedback of a file or frame, of the ledger ("ledger"), or None."""
    if source is None:
        return None
    if isinstance(source, str) and source == LEDGER:
        return judged_requests(location)
    scores = {}
    for request_id, expert, score in read_judged(source, id_column):
        scores[request_id] = Feedback(request_id, expert, "import", score, 1.0)
    return scores
