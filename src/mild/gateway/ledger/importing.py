"""Scores from a file to the ledger."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import sqlalchemy as sa

from mild.errors import DataFileError, InvalidInputError, check_arguments, counted
from mild.evaluation.replay import read_judged
from mild.gateway.database import DatabaseError
from mild.gateway.database.engine import open_database, shown_place
from mild.gateway.ledger.feedback import Feedback, check_feedback, write_feedback
from mild.gateway.ledger.reading import ledger_location, open_ledger
from mild.gateway.ledger.records import decisions

# Requests that are looked up at a time.
_PORTION = 1000


@dataclass(frozen=True, repr=False)
class FeedbackImport:
    """What ``mild.import_feedback`` did.

    Attributes
    ----------
    rows : rows with a score
    written : of these, in the ledger now; of a request and expert that appear twice, the last row
    unknown : rows whose request is not in the ledger
    without_answer : rows whose request nobody answered, and that name no expert
    rate : probability with which each answer was picked to be judged; None if it is not known
    experts : scores that were written, by expert
    """

    rows: int
    written: int
    unknown: int
    without_answer: int
    rate: float | None
    experts: Mapping[str, int]

    @property
    def sentence(self) -> str:
        """What was written and what was not."""
        said = f"{counted(self.written, 'score')} written"
        for count, why in ((self.unknown, "unknown"), (self.without_answer, "without an answer")):
            said += f", {counted(count, 'request')} {why}" if count else ""
        return said + "."

    def as_dict(self) -> dict[str, Any]:
        """What ``mild feedback import --json`` prints."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"<FeedbackImport: {self.sentence}>"


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

    Raises
    ------
    DataFileError
        the table cannot be read, or the ledger cannot be written
    """
    place, now = ledger_location(ledger), time.time()
    if rate is not None and not 0 < rate <= 1:
        raise InvalidInputError(parameter="rate", rule=f"must lie in (0, 1]; got {rate}.")
    # In the order of the table: those who read feedback go by time.
    given = [
        check_feedback(Feedback(name, expert or "", "import", score, rate, now + 1e-6 * row))
        for row, (name, expert, score, _) in enumerate(read_judged(data, id_column))
    ]
    column = decisions.c
    unknown = without = 0
    rows: dict[tuple[str, str], Feedback] = {}
    # Opened to read first: one that is not there is not created.
    with open_ledger(place):
        pass
    try:
        database = open_database(place)
        try:
            with database.transaction() as connection:
                for start in range(0, len(given), _PORTION):
                    some = given[start : start + _PORTION]
                    names = [one.request_id for one in some]
                    query = sa.select(column.request_id, column.expert, column.status)
                    query = query.where(column.request_id.in_(names))
                    known = {row[0]: row[1:] for row in connection.execute(query)}
                    for one in some:
                        answered, status = known.get(one.request_id, (None, None))
                        expert = one.expert or (answered if (status or 0) < 400 else None)
                        unknown += status is None
                        without += status is not None and expert is None
                        if status is not None and expert is not None:
                            rows[one.request_id, expert] = replace(one, expert=expert)
                written = write_feedback(connection, list(rows.values()))
        finally:
            database.close()
    except DatabaseError as error:
        raise DataFileError(f"{shown_place(place)} cannot be written: {error}.") from error
    experts = Counter(name for _, name in rows)
    return FeedbackImport(len(given), written, unknown, without, rate, dict(experts))
