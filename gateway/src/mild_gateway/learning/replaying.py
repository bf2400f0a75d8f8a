"""What another router would have cost on the traffic in a ledger."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from mild.errors import InvalidInputError, UnsupportedError, check_arguments
from mild_gateway import decide
from mild_gateway.decide import Router
from mild_gateway.learning.draws import read_draws, read_texts
from mild_gateway.learning.estimating import ReplayVerdict, replay_draws
from mild_gateway.learning.importing import read_scores
from mild_gateway.learning.tables import as_frame, frame_library
from mild_gateway.ledger.reading import ledger_location, ledger_reader, moment

#: Key of an estimate -> what it is.
METHODS = {
    "logged": "as logged, with exploration",
    "serving": "serving router, without exploration",
    "doubly_robust": "new router, doubly robust",
    "self_normalised": "new router, self-normalised",
    "inverse_propensity": "new router, inverse propensity",
    "difference": "difference from the log, doubly robust",
    "difference_to_serving": "difference from the serving router, doubly robust",
}


@dataclass(frozen=True, repr=False)
class Replay:
    """What ``mild_gateway.replay`` found.

    Attributes
    ----------
    verdict : whether the new router is better: ``pays`` (True, False, or None if it is not clear),
        ``sentence`` and ``reason``
    cost : what a cost is: "dollars", or "error + W * dollars"
    confidence : confidence level of the intervals
    estimates : per quantity (cost, dollars, errors, failures) and method (keys of ``METHODS``) the
        ``mean``, ``low``, ``high`` and ``standard_error``
    overlap : how much the log says about the new router
    rows, draws : requests that were used, and decisions that were drawn for them
    left_out : requests that were not used, by reason
    shares : per expert, of the requests as logged and under the new router
    explore : exploration rate of both routers
    target : what the new router was tuned for, in a sentence; None if that is not known
    dropped_mix : the mix of the new router that ``price_weight`` dropped, in words; None if there is none
    library : of the frame that ``to_frame`` gives: that of the frames that were given, if any
    """

    verdict: ReplayVerdict
    cost: str
    confidence: float
    estimates: Mapping[str, Mapping[str, Mapping[str, float | None]]]
    overlap: Mapping[str, Any]
    rows: int
    draws: int
    left_out: Mapping[str, int]
    shares: Mapping[str, Mapping[str, float]]
    explore: float
    target: str | None
    dropped_mix: str | None = None
    library: str = "pyarrow"

    def as_dict(self) -> dict[str, Any]:
        """What ``mild replay --json`` prints."""
        document = asdict(self)
        del document["library"]
        document["verdict"] = self.verdict.as_dict()
        return document

    def to_frame(self) -> Any:
        """The estimates, a row per quantity and method."""
        return as_frame(self._rows, self.library)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for quantity, entries in self.estimates.items():
            for method, entry in entries.items():
                rows.append({"quantity": quantity, "method": method, **entry})
        return rows

    def __repr__(self) -> str:
        return f"<Replay: {self.verdict.sentence}>"


@check_arguments
def replay(
    ledger: str | os.PathLike[str],
    router: str | os.PathLike[str] | Router,
    *,
    queries: Any = None,
    text_column: str | None = None,
    feedback: Any = None,
    trust_feedback: bool = False,
    id_column: str = "request_id",
    price_weight: float | None = None,
    explore: float = 0.0,
    since: str | float | datetime | None = None,
    until: str | float | datetime | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> Replay:
    """Estimate what another router would have cost on the traffic in a ledger.

    The ledger must have been written with exploration. The cost of a request is its price in dollars;
    with ``feedback``, error + price_weight * dollars over the judged requests. The new router is compared
    with the serving one, both without exploration (or both with ``explore``).

    Parameters
    ----------
    ledger : SQLite file, postgresql:// URL, or the mild.toml that names it
    router : folder of a saved router, or a ``Router``; it must read text
    queries : table of the request id and the query, if the ledger has no texts; in Python also a frame
    text_column : column of the query in ``queries``
    feedback : table of the request id and error, score or correct, in [0, 1]; or "ledger" for the feedback
        in the ledger. Of that, only answers that were picked at random are used, each weighted by the
        inverse of its rate; in Python also a frame
    trust_feedback : whether "ledger" also uses answers that were judged by choice, such as by clients
    id_column : column of the request id in these tables
    price_weight : cost of one dollar, in errors, for the decisions of a priced router and, with
        ``feedback``, for the estimates; None for the router's, or the trade-off of its target
    explore : exploration rate of both routers
    since : start of the span of time: 2026-11-01, 2026-11-01T12:30 (UTC), or 7d, 12h ago; in Python also
        seconds since 1970, or a datetime
    until : its end, which does not belong to it, given like ``since``
    confidence : confidence level of the intervals
    random_state : seed of the cost model's folds

    Returns
    -------
    Replay, with ``rows``, the estimates and the ``verdict``

    Raises
    ------
    DataFileError
        the ledger or a table cannot be read

    Examples
    --------
    >>> import tempfile, time
    >>> from pathlib import Path
    >>> from mild_gateway.config import LedgerSettings
    >>> from mild_gateway.demo import demo_router
    >>> from mild_gateway.ledger import LedgerWriter, Record
    >>> router = demo_router()
    >>> drawn = {"chosen": "rules", "propensity": 0.9, "price": 0.0001, "text": "What is 2 + 2?"}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     settings = LedgerSettings(Path(folder, "ledger.sqlite"), keep_text=True)
    ...     writer = LedgerWriter(settings, router.experts)
    ...     writer.start()
    ...     writer.write(Record("r1", time.time(), "alice", "mild", **drawn))
    ...     writer.close()
    ...     found = replay(settings.path, router)
    >>> found.rows, found.verdict.reason
    (1, 'too_few')
    """
    if not isinstance(ledger, (str, os.PathLike)):
        rule = f"must be a file or a postgresql:// URL; got {ledger!r}."
        raise InvalidInputError(parameter="ledger", rule=rule)
    if not isinstance(router, (Router, str, os.PathLike)):
        rule = f"must be a router or the folder of one; got {router!r}."
        raise InvalidInputError(parameter="router", rule=rule)
    loaded = router if isinstance(router, Router) else decide.load_router(router)
    if decide.cascade_of(loaded) is not None:
        raise UnsupportedError(
            "a cascade cannot be replayed, because a ledger does not hold the answers of experts that were "
            "not asked; replay its router without answers (router.direct).",
            parameter="router",
        )
    target = decide.target_of(loaded)
    dropped_mix = None
    own_weight = decide.price_weight_of(loaded)
    if price_weight not in (None, own_weight) and decide.has_prices(loaded):
        dropped_mix = decide.mix_in_words(loaded)
        loaded = decide.at_price_weight(loaded, price_weight)
        target = None
    now = time.time()
    location = ledger_location(ledger)
    scores = read_scores(feedback, location, id_column)
    errors: dict[str, float] = {}
    weights: dict[str, float] = {}
    for request, score in (scores or {}).items():
        errors[request] = 1 - score.score
        if score.rate is None:
            weights[request] = float(trust_feedback)
        else:
            weights[request] = 1 / score.rate
    texts = None
    if queries is not None:
        texts = read_texts(queries, text_column, id_column)
    if price_weight is None:
        price_weight = own_weight
    left_out: Counter[str] = Counter()
    draws = read_draws(
        ledger_reader(location),
        left_out,
        texts,
        errors,
        weights,
        since=moment("since", since, now),
        until=moment("until", until, now),
    )
    estimates = replay_draws(
        draws,
        loaded,
        left_out=left_out,
        graded=scores is not None,
        price_weight=price_weight,
        explore=explore,
        confidence=confidence,
        seed=random_state,
    )
    library = frame_library(feedback, queries)
    return Replay(**estimates, target=target, dropped_mix=dropped_mix, library=library)
