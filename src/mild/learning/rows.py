"""What the ledger knows of the experts: judged answers as arrays, read in blocks."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from mild.artifact import Router
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.propensities import is_preferred
from mild.errors import UnsupportedError
from mild.evaluation.replay.log import WITHOUT_QUERY, why_left_out
from mild.gateway.database.engine import OLD, Database, Location
from mild.gateway.ledger.feedback import SOURCES, feedback, has_feedback
from mild.gateway.ledger.reading import open_ledger, read_blocks
from mild.gateway.ledger.records import decisions
from mild.gateway.selection.models import CASCADE
from mild.gateway.stored_features import features_tag, unpack_features

#: Names behind ``LoggedOutcomes.source``; an outcome is that of a request or a call that failed.
SOURCE_NAMES = (*SOURCES, "outcome")
#: ``chosen`` and ``preferred`` where they are not one expert.
UNKNOWN, WHOLE_CASCADE = -1, -2
# Decisions that are read at a time, and bytes of features that are kept unless the caller says otherwise.
_BLOCK, _BYTES = 5000, 2**29
_COLUMNS = (
    "request_id", "time", "asked", "chosen", "propensity", "price", "outcome", "text", "pinned_by",
    "session", "probabilities", "latency_ms", "router", "calls", "preferred", "reported", "features",
)  # fmt: skip


# Columns of ``LoggedOutcomes`` beside the features, and their types.
_TYPES: dict[str, Any] = {
    "request_id": None,
    "time": np.float64,
    **dict.fromkeys(("expert", "chosen", "preferred", "source"), np.int16),
    **dict.fromkeys(("propensity", "error", "rate", "dollars", "latency"), np.float64),
    "selected": np.bool_,
    **dict.fromkeys(("router", "reported"), np.int32),
    "episode": np.int64,
}


@dataclass(frozen=True, eq=False, repr=False)
class LoggedOutcomes:
    """Answers of a ledger whose error is known, oldest first; arrays have one entry per answer.

    An answer that was judged by two samples, such as by a grader and an imported file, appears twice. One
    that failed has error 1 and rate 1: nobody had to judge it.
    """

    X: FloatArray  # (n, d) float32 features of the text, by the router that reads the ledger
    request_id: NDArray[np.bytes_]
    time: FloatArray  # of the request, in seconds since 1970
    expert: IntArray  # whose answer it is, by its place in ``expert_names``
    chosen: IntArray  # the expert that was drawn; WHOLE_CASCADE, or UNKNOWN if the router has it no more
    preferred: (
        IntArray  # what would have been chosen without exploration, likewise; UNKNOWN if not known
    )
    propensity: FloatArray  # probability with which this expert was asked for this text
    selected: BoolArray  # asked because of other answers: no unbiased sample, whatever the propensity says
    error: FloatArray  # in [0, 1]
    rate: FloatArray  # probability with which the answer was picked to be judged; NaN if self-selected
    dollars: FloatArray  # of the answer; NaN if not known
    latency: FloatArray  # seconds; NaN if not known
    source: IntArray  # place in SOURCE_NAMES
    router: IntArray  # router that decided, by its place in ``routers``
    reported: IntArray  # version that the expert reported, by its place in ``reports``; -1 for none
    episode: IntArray  # equal for requests of a pinned session, for which one draw was made
    expert_names: tuple[str, ...]
    routers: tuple[str, ...]  # fingerprints
    reports: tuple[str, ...]
    requests: int  # requests of the span that were judged or failed
    from_text: int  # of them used with stored text, and with stored features
    from_features: int
    left_out: Mapping[str, int]  # answers that are not used, by reason

    def __len__(self) -> int:
        return len(self.expert)

    @property
    def explored(self) -> BoolArray:
        """Whether exploration drew another expert than the preferred one."""
        return np.asarray((self.preferred != UNKNOWN) & (self.chosen != self.preferred))

    @property
    def sampled(self) -> BoolArray:
        """Whether the answer was picked to be judged with a known probability."""
        return np.isfinite(self.rate)

    def take(self, index: Any) -> LoggedOutcomes:
        """Some of the answers; a slice takes no memory."""
        arrays = {
            one.name: getattr(self, one.name)[index]
            for one in fields(self)
            if isinstance(getattr(self, one.name), np.ndarray)
        }
        return replace(self, **arrays)

    def __repr__(self) -> str:
        return (
            f"<LoggedOutcomes: {len(self):,} answers, {int(self.sampled.sum()):,} of a known rate>"
        )


def read_logged(
    place: Location,
    router: Router,
    since: float | None = None,
    until: float | None = None,
    most: int | None = None,
) -> LoggedOutcomes:
    """The judged and the failed answers in a ledger, with features of the router's text step.

    Features come from the stored text, or from stored features of the same text step.

    Parameters
    ----------
    place : the ledger
    router : the one that serves; its experts and its text step count
    since, until : span of time of the requests
    most : answers to keep at most, the newest; None for as many as have 512 MiB of features
    """
    if router.text is None:
        raise UnsupportedError(
            "learning needs a router that reads text; this one was fitted on numbers.",
            parameter="router",
        )
    reader = _AnswerReader(router)
    most = most or max(1, _BYTES // (4 * router.n_features))
    blocks: deque[tuple[FloatArray, dict[str, Any]]] = deque()
    kept = 0
    for rows, judged in _judged_blocks(place, since, until):
        block = reader.block(rows, judged)
        if not len(block[0]):
            continue
        blocks.append(block)
        kept += len(block[0])
        while kept > most:
            X, columns = blocks[0]
            over = min(kept - most, len(X))
            reader.left_out["older than the newest ones that are used"] += over
            kept -= over
            blocks[0] = (X[over:].copy(), {name: one[over:] for name, one in columns.items()})
            if over == len(X):
                blocks.popleft()
    return reader.found(blocks, kept)


def _judged_blocks(
    place: Location, since: float | None, until: float | None
) -> Iterator[tuple[list[tuple[Any, ...]], dict[str, list[tuple[Any, ...]]]]]:
    """Blocks of decisions that were judged or failed, with the feedback on them by request."""
    with open_ledger(place) as database:
        known, schema = has_feedback(database), "" if database.schema == OLD else database.schema
    # In a cascade, calls may have failed although the request did not.
    where: sa.ColumnElement[bool] = decisions.c.outcome.in_(("failed", "cut"))
    if schema >= "0005":
        where |= decisions.c.calls.is_not(None)
    if known:
        where |= sa.exists().where(feedback.c.request_id == decisions.c.request_id)
    with open_ledger(place) as database:
        for rows in read_blocks(place, since, until, _COLUMNS, _BLOCK, where):
            yield rows, _feedback_on(database, [row[0] for row in rows]) if known else {}


def _feedback_on(database: Database, requests: Sequence[str]) -> dict[str, list[tuple[Any, ...]]]:
    column = feedback.c
    query = sa.select(
        column.request_id, column.expert, column.source, column.score, column.rate
    ).where(column.request_id.in_(requests))
    found: dict[str, list[tuple[Any, ...]]] = {}
    with database.transaction() as connection:
        for request, *rest in connection.execute(query):
            found.setdefault(request, []).append(tuple(rest))
    return found


class _AnswerReader:
    """Makes answers of decisions, block by block."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.left_out: Counter[str] = Counter()
        self._experts = {name: k for k, name in enumerate(router.expert_names)}
        self._codes = {**self._experts, CASCADE: WHOLE_CASCADE}
        assert router.text is not None
        self._tag = features_tag(router.text)
        self._own = router.info.fingerprint
        self._routers: dict[str, int] = {}
        self._reports: dict[str, int] = {}
        self._sessions: dict[str, int] = {}
        self._episodes = self._requests = self._from_text = self._from_features = 0

    def block(
        self, rows: Sequence[tuple[Any, ...]], judged: Mapping[str, Sequence[tuple[Any, ...]]]
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Features and columns of the answers to some decisions."""
        texts: list[str] = []
        stored: list[FloatArray] = []
        cells: list[dict[str, Any]] = []
        places: list[int] = []  # of the features: those of texts first, the others below 0
        for values in rows:
            row = dict(zip(_COLUMNS, values, strict=True))
            given = judged.get(row["request_id"], ())
            known = None if row["text"] is not None else self._stored(row["features"])
            reason = why_left_out(
                row["asked"],
                row["chosen"],
                row["propensity"],
                row["price"],
                row["outcome"],
                row["text"] if known is None else "",
                row["probabilities"],
                needs_exploration=False,
            )
            if reason is not None:
                if reason == WITHOUT_QUERY and row["features"] is not None:
                    reason = "with features of another text step"
                self.left_out[reason] += len(given) or row["outcome"] != "ok"
                continue
            found = list(self._cells(row, given))
            if not found:
                continue
            self._requests += 1
            cells += found
            if known is None:
                places += [len(texts)] * len(found)
                texts.append(row["text"])
            else:
                places += [~len(stored)] * len(found)
                stored.append(known)
        self._from_text += len(texts)
        self._from_features += len(stored)
        X = np.empty((len(texts) + len(stored), self.router.n_features), np.float32)
        if texts:
            X[: len(texts)] = self.router.features(texts)
        if stored:
            X[len(texts) :] = np.stack(stored)
        X = X[[k if k >= 0 else len(texts) + ~k for k in places]]
        columns = {
            name: np.array([cell[name] for cell in cells], kind) for name, kind in _TYPES.items()
        }
        return X, self._with_first_steps(X, columns)

    def found(self, blocks: deque[tuple[FloatArray, dict[str, Any]]], count: int) -> LoggedOutcomes:
        """All blocks together; they are freed one by one, so that no second copy is in memory."""
        X = np.empty((count, self.router.n_features), np.float32)
        parts: dict[str, list[Any]] = {name: [] for name in _TYPES}
        start = 0
        while blocks:
            block, columns = blocks.popleft()
            X[start : start + len(block)] = block
            start += len(block)
            for name, part in parts.items():
                part.append(columns[name])
        empty = {name: np.empty(0, kind or "S1") for name, kind in _TYPES.items()}
        arrays = {name: np.concatenate([empty[name], *part]) for name, part in parts.items()}
        return LoggedOutcomes(
            X,
            **arrays,
            expert_names=tuple(self.router.expert_names),
            routers=tuple(self._routers),
            reports=tuple(self._reports),
            requests=self._requests,
            from_text=self._from_text,
            from_features=self._from_features,
            left_out=dict(self.left_out),
        )

    def _stored(self, packed: str | None) -> FloatArray | None:
        found = None if packed is None else unpack_features(packed, self._tag)
        return None if found is None or len(found) != self.router.n_features else found

    def _cells(
        self, row: Mapping[str, Any], given: Sequence[tuple[Any, ...]]
    ) -> Iterator[dict[str, Any]]:
        chosen, propensity, reported = row["chosen"], row["propensity"], row["reported"]
        shares = row["probabilities"]
        n_experts = shares.count(",") + 1 if shares else 2
        drawn = self._codes.get(chosen, UNKNOWN)
        if row["preferred"] is not None:
            preferred = self._codes.get(row["preferred"], UNKNOWN)
        else:
            preferred = (
                drawn if chosen == CASCADE or is_preferred(propensity, n_experts) else UNKNOWN
            )
        calls = {call["expert"]: call for call in json.loads(row["calls"] or "[]")}
        first = min((call["step"] for call in calls.values() if call.get("step")), default=None)
        answers: list[tuple[str, float, float, str]] = []  # expert, error, rate, source
        if chosen == CASCADE:
            answers += [
                (name, 1.0, 1.0, "outcome") for name, call in calls.items() if _failed(call)
            ]
        elif row["outcome"] in ("failed", "cut"):
            answers.append((chosen, 1.0, 1.0, "outcome"))
        failed = {name for name, *_ in answers}
        sampled = {name for name, _, _, rate in given if rate is not None}
        for name, source, score, rate in given:
            # The judgement of a sample goes before one that was volunteered.
            if name not in failed and (rate is not None or name not in sampled):
                answers.append((name, 1 - score, np.nan if rate is None else rate, source))
        if not answers:
            return
        router = self._routers.setdefault(row["router"], len(self._routers))
        episode, reports = self._episode(row), self._reports
        for name, error, rate, source in answers:
            if name not in self._experts:
                self.left_out["of an expert that the router does not have"] += 1
                continue
            call = calls.get(name)
            selected, known = name != chosen, propensity
            dollars, latency, version = row["price"], row["latency_ms"], reported
            if chosen == CASCADE:
                if call is None:
                    self.left_out["of an expert that was not asked"] += 1
                    continue
                # Whoever is asked first is asked by the cascade, and when exploration draws it.
                selected = call.get("step") != first or row["router"] != self._own
                known = propensity + (1 - propensity) / n_experts
                dollars, latency = call.get("dollars"), call.get("latency_ms")
                version = call.get("reported", reported if len(calls) == 1 else None)
            yield {
                "request_id": row["request_id"].encode(),
                "time": row["time"],
                "expert": self._experts[name],
                "chosen": drawn,
                "preferred": preferred,
                "propensity": known,
                "selected": selected,
                "error": error,
                "rate": rate,
                "dollars": np.nan if dollars is None else dollars,
                "latency": np.nan if latency is None else latency / 1000,
                "source": SOURCE_NAMES.index(source),
                "router": router,
                "reported": UNKNOWN
                if version is None
                else reports.setdefault(version, len(reports)),
                "episode": episode,
            }

    def _episode(self, row: Mapping[str, Any]) -> int:
        """The number of the draw; requests of a pinned session repeat that of its first one."""
        number = self._episodes
        if row["session"] is not None or row["pinned_by"] is not None:
            number = self._sessions.setdefault(row["pinned_by"] or row["request_id"], number)
        self._episodes += number == self._episodes
        return number

    def _with_first_steps(self, X: FloatArray, columns: dict[str, Any]) -> dict[str, Any]:
        """Propensities of experts that exploration drew, and that the cascade would have asked first."""
        cascade = self.router.cascade
        own = self._routers.get(self._own or "", -1)
        if cascade is None or not len(X):
            return columns
        drawn = (columns["router"] == own) & (columns["chosen"] >= 0) & ~columns["selected"]
        rows = np.flatnonzero(drawn)
        columns["preferred"][rows] = WHOLE_CASCADE
        n_experts, first = len(self._experts), cascade.first_steps(X[rows])
        for row, step in zip(rows.tolist(), first.tolist(), strict=True):
            if columns["expert"][row] in cascade.steps[step]:
                drawn_with = columns["propensity"][row]
                columns["propensity"][row] = 1 - drawn_with * n_experts + drawn_with
        return columns


def _failed(call: Mapping[str, Any]) -> bool:
    return call.get("step") is not None and call["outcome"] not in ("ok", "open", "cancelled")
