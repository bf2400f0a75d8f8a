"""What is known about the quality of answers: scores of clients, of graders, and of imported files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import sqlalchemy as sa

from mild.endpoints.replies import storable
from mild.errors import InvalidInputError
from mild.gateway.database.engine import OLD, Database, Location, metadata, upsert
from mild.gateway.ledger.reading import BLOCK, open_ledger
from mild.gateway.ledger.records import decisions

#: Who judged an answer: the client that got it, a grader of the gateway, or a file that was imported.
SOURCES = ("client", "grader", "import")
#: In the place of a table of feedback: that which the ledger has.
LEDGER = "ledger"
#: Characters of a comment that are kept.
MAX_COMMENT = 2000
# Rows in one statement.
_PORTION = 1000
# Two-sided 95 % quantile of the normal distribution.
_Z = 1.959964


@dataclass(frozen=True, slots=True)
class Feedback:
    """The score of one answer.

    >>> Feedback("r1", "small", "grader", 1.0, rate=0.05).is_sample
    True
    """

    request_id: str
    expert: str  # whose answer was judged
    source: str  # one of ``SOURCES``
    score: float  # in [0, 1]
    # Probability in (0, 1] with which this answer was picked to be judged; None if the judge picked it.
    rate: float | None = None
    time: float = 0.0  # when it was judged, in seconds since 1970
    comment: str | None = None

    @property
    def is_sample(self) -> bool:
        """Whether the answer was picked at random, with a known probability."""
        return self.rate is not None


def _column(name: str, annotation: str) -> sa.Column[Any]:
    kind: Any = sa.Double if annotation.startswith("float") else sa.Text
    key = name in ("request_id", "expert", "source")
    return sa.Column(name, kind, primary_key=key, nullable="None" in annotation)


feedback = sa.Table(
    "feedback",
    metadata,
    *(_column(field.name, str(field.type)) for field in fields(Feedback)),
    sa.Index("feedback_by_time", "time"),
)


def check_feedback(row: Feedback) -> Feedback:
    """The row as it is written, its texts cut and storable; InvalidInputError if it breaks a rule."""
    if not 0 <= row.score <= 1:
        raise InvalidInputError(parameter="score", rule=f"must lie in [0, 1]; got {row.score}.")
    if row.rate is not None and not 0 < row.rate <= 1:
        raise InvalidInputError(parameter="rate", rule=f"must lie in (0, 1]; got {row.rate}.")
    if row.source not in SOURCES:
        rule = f"must be one of {', '.join(SOURCES)}; got {row.source!r}."
        raise InvalidInputError(parameter="source", rule=rule)
    return replace(
        row,
        request_id=_clean(row.request_id),
        expert=_clean(row.expert),
        comment=row.comment and _clean(row.comment)[:MAX_COMMENT],
    )


def _clean(text: str) -> str:
    # PostgreSQL does not take NUL.
    return storable(text).replace("\0", "\ufffd")


def write_feedback(place: Database | sa.Connection, rows: Sequence[Feedback]) -> int:
    """Write feedback, all or nothing; how many rows were written.

    Feedback on a request that the ledger does not have is left out. A row replaces an earlier one of the
    same request, expert and source.
    """
    if isinstance(place, Database):
        with place.transaction() as connection:
            return write_feedback(connection, rows)
    # The last of each key: a statement must not meet a row twice.
    checked = map(check_feedback, rows)
    new = list({(row.request_id, row.expert, row.source): row for row in checked}.values())
    written = 0
    for start in range(0, len(new), _PORTION):
        some = new[start : start + _PORTION]
        name = decisions.c.request_id
        query = sa.select(name).where(name.in_([row.request_id for row in some]))
        # PostgreSQL: nobody deletes these rows before the feedback is committed.
        known = set(place.scalars(query.with_for_update(read=True, key_share=True)))
        found = [asdict(row) for row in some if row.request_id in known]
        upsert(place, feedback, found, replace=("score", "rate", "time", "comment"))
        written += len(found)
    return written


def has_feedback(database: Database) -> bool:
    """Whether the ledger has the table; one that nobody has opened to write since schema 0006 has none."""
    return database.schema != OLD and database.schema >= "0006"


def read_feedback(
    place: Location,
    since: float | None = None,
    until: float | None = None,
    source: str | None = None,
) -> Iterator[Feedback]:
    """Feedback that was given in ``since <= time < until``, oldest first; every block is a short query."""
    column = feedback.c
    order = (column.time, column.request_id, column.expert, column.source)
    last = {one.name: "" for one in order} | {"time": -math.inf if since is None else since}
    after = sa.tuple_(*(sa.bindparam(one.name, type_=one.type) for one in order))
    query = sa.select(feedback).where(sa.tuple_(*order) > after).order_by(*order).limit(BLOCK)
    if until is not None:
        query = query.where(column.time < until)
    if source is not None:
        query = query.where(column.source == source)
    with open_ledger(place) as database:
        while has_feedback(database):
            with database.transaction() as connection:
                found = [Feedback(*row) for row in connection.execute(query, last).all()]
            if not found:
                return
            yield from found
            last = {one.name: getattr(found[-1], one.name) for one in order}


def judged_requests(place: Location) -> dict[str, Feedback]:
    """By request, the feedback on the answer that was given; a random sample goes before other feedback."""
    row = feedback.c
    query = sa.select(feedback).join(decisions, decisions.c.request_id == row.request_id)
    # The last of a request is kept.
    query = query.where(decisions.c.expert == row.expert).order_by(
        row.rate.is_not(None), row.source != "client", row.time
    )
    with open_ledger(place) as database, database.transaction() as connection:
        if not has_feedback(database):
            return {}
        return {found[0]: Feedback(*found) for found in connection.execute(query)}


def feedback_by_expert(
    place: Location, since: float | None = None, until: float | None = None
) -> dict[str, dict[str, Any]]:
    """By expert, how many of its answers in the span were judged, and their mean score.

    ``rate`` is ``judged`` of ``answers``. ``samples`` are answers that were picked at random: each counts
    with the inverse of its rate, so that their mean stands for all answers. ``self_selected`` are the
    others. ``mean``, ``low`` and ``high`` are those of the samples, or without samples of the others.
    Intervals are Wilson's at 95 %, which hold for any scores in [0, 1].
    """
    row, given = decisions.c, feedback.c
    weight = 1 / sa.func.coalesce(given.rate, 1.0)
    kind, of = (given.expert, given.rate.is_not(None)), row.request_id == given.request_id
    sums = map(sa.func.sum, (weight, weight * given.score, weight * weight))
    start, end = -math.inf if since is None else since, math.inf if until is None else until
    within = [row.time >= start, row.time < end]
    # Not by the index of time: it is the feedback that is read through, and its rows looked up.
    joined = [row.time + 0.0 >= start, row.time + 0.0 < end]
    scores = sa.select(*kind, sa.func.count(), *sums).join(decisions, of).group_by(*kind)
    has_answer = (row.expert.is_not(None), row.status < 400)
    answers = sa.select(row.expert, sa.func.count()).where(*within, *has_answer)
    own = sa.select(row.expert, sa.func.count(sa.distinct(row.request_id)))
    own = own.join(feedback, of & (row.expert == given.expert)).where(*joined, *has_answer)
    with open_ledger(place) as database, database.transaction() as connection:
        if not has_feedback(database):
            return {}
        judged = connection.execute(scores.where(*joined)).all()
        counts = [
            dict(map(tuple, connection.execute(query.group_by(row.expert))))
            for query in (answers, own)
        ]
    result: dict[str, dict[str, Any]] = {}
    for name in sorted({*counts[0], *(line[0] for line in judged)}):
        parts = {bool(line[1]): _mean(*line[2:]) for line in judged if line[0] == name}
        samples, others = parts.get(True), parts.get(False)
        shown = samples or others or dict.fromkeys(("mean", "low", "high"))
        n, k = (count.get(name, 0) for count in counts)
        low, high = wilson_interval(k / n, n) if n else (None, None)
        result[name] = {
            "answers": n,
            "judged": k,
            "rate": k / n if n else None,
            "rate_low": low,
            "rate_high": high,
            **{field: shown[field] for field in ("mean", "low", "high")},
            "samples": samples,
            "self_selected": others,
        }
    return result


def _mean(count: int, total: float, weighted: float, squares: float) -> dict[str, Any]:
    mean = min(1.0, weighted / total)
    low, high = wilson_interval(mean, total**2 / squares)
    return {"judged": count, "mean": mean, "low": low, "high": high}


def wilson_interval(mean: float, n: float) -> tuple[float, float]:
    """95 % interval of a mean of n values in [0, 1]; exact to Wilson's for shares, wider for others.

    >>> [round(limit, 3) for limit in wilson_interval(0.9, 50)]
    [0.786, 0.957]
    """
    square = _Z**2 / n
    middle = (mean + square / 2) / (1 + square)
    reach = math.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    return max(0.0, middle - reach), min(1.0, middle + reach)
