"""What the ledger knows of the experts: judged answers as arrays, read in blocks."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict, deque, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from mild.errors import UnsupportedError
from mild_gateway import decide
from mild_gateway.arrays import FloatArray
from mild_gateway.database.engine import Database, Location
from mild_gateway.decide import Router
from mild_gateway.learning.draws import why_left_out
from mild_gateway.learning.estimating import WITHOUT_QUERY
from mild_gateway.learning.logged_outcomes import LoggedOutcomes
from mild_gateway.ledger.feedback import SOURCES, feedback
from mild_gateway.ledger.reading import open_ledger, read_blocks, read_experts
from mild_gateway.ledger.records import decisions
from mild_gateway.selection.models import CASCADE
from mild_gateway.selection.stored_features import unpack_features

#: Names behind ``LoggedOutcomes.source``; an outcome is that of a request or a call that failed.
SOURCE_NAMES = (*SOURCES, "outcome")
#: ``chosen`` and ``preferred`` where they are not one expert.
UNKNOWN = -1
WHOLE_CASCADE = -2
# Decisions that are read at a time.
_BLOCK = 5000
# Bytes of features that are kept unless the caller says otherwise.
_BYTES = 2**29
# Outcomes of a call that are no failure of its expert.
_NOT_FAILED = ("ok", "open", "cancelled")
_Row = namedtuple(
    "_Row",
    "request_id time asked chosen propensity price outcome text pinned_by probabilities latency_ms "
    "router calls preferred draws reported features",
)


class Decision(NamedTuple):
    """The decision that a request follows: its own, or that of the request that pinned its session."""

    router: str
    preferred: str | None
    draws: str | None  # JSON


class StoredScore(NamedTuple):
    """Feedback on one answer to a request."""

    expert: str
    source: str
    score: float
    rate: float | None  # with which it was picked; None if it was volunteered


# Of the columns, while they are collected: an episode has the name of its first request, and X is the index
# of a row of features.
_TYPES: dict[str, Any] = {
    "request_id": "S", "time": np.float64, "expert": np.int16, "chosen": np.int16,
    "preferred": np.int16, "propensity": np.float64, "selected": np.bool_, "error": np.float64,
    "rate": np.float64, "dollars": np.float64, "latency": np.float64, "source": np.int16,
    "router": np.int32, "reported": np.int32, "episode": "S", "X": np.intp, "draws": np.float32,
}  # fmt: skip


def read_logged(
    ledger: Location,
    router: Router,
    since: float | None = None,
    until: float | None = None,
    max_answers: int | None = None,
) -> LoggedOutcomes:
    """The judged and the failed answers in a ledger, with features of the router's text step.

    Features come from the stored text, or from stored features of the same text step.

    Parameters
    ----------
    ledger : where it is
    router : the one that serves; its experts and its text step count
    since, until : span of time of the requests
    max_answers : answers to keep at most, the newest; None for as many as have 512 MiB of features
    """
    if decide.input_of(router) == "numbers":
        message = "learning needs a router that reads text; this one was fitted on numbers."
        raise UnsupportedError(message, parameter="router")
    reader = _AnswerReader(router, read_experts(ledger))
    if max_answers is None:
        max_answers = max(1, _BYTES // (4 * decide.n_features(router)))
    # The first one is empty: without any answer, the arrays still have their types.
    blocks = deque([reader.block([], {}, {})])
    n_answers = 0
    n_older = 0
    with open_ledger(ledger) as database:
        for values in read_blocks(ledger, since, until, _Row._fields, _BLOCK, _says_something()):
            rows = [_Row(*row_values) for row_values in values]
            block = reader.block(rows, _scores_of(database, rows), _pinning(database, rows))
            blocks.append(block)
            n_answers += len(block["time"])
            # Whole blocks that are too old are forgotten at once.
            while n_answers - n_older - len(blocks[0]["time"]) >= max_answers:
                n_older += len(blocks.popleft()["time"])
    arrays: dict[str, Any] = {}
    for name in list(blocks[0]):
        arrays[name] = np.concatenate([block.pop(name) for block in blocks])[-max_answers:]
    if n_answers > max_answers:
        reader.left_out["older than the newest ones that are used"] = n_answers - max_answers
    _, arrays["episode"] = np.unique(arrays["episode"], return_inverse=True)
    return LoggedOutcomes(**arrays, **reader.facts())


def _says_something() -> sa.ColumnElement[bool]:
    """Whether a request says something about an answer: it failed, or it was judged."""
    return sa.or_(
        decisions.c.outcome.in_(("failed", "cut")),
        # In a cascade, calls may have failed although the request did not.
        decisions.c.calls.is_not(None),
        sa.exists().where(feedback.c.request_id == decisions.c.request_id),
    )


def _scores_of(database: Database, rows: Sequence[Any]) -> dict[str, list[StoredScore]]:
    """The scores of the answers to requests, by request."""
    columns = feedback.c
    requests = [row.request_id for row in rows]
    query = sa.select(
        columns.request_id, columns.expert, columns.source, columns.score, columns.rate
    ).where(columns.request_id.in_(requests))
    scores: dict[str, list[StoredScore]] = defaultdict(list)
    with database.transaction() as connection:
        for request, *values in connection.execute(query):
            scores[request].append(StoredScore(*values))
    return scores


def _pinning(database: Database, rows: Sequence[Any]) -> dict[str, Decision]:
    """The decisions that pinned requests follow, by the request that was decided."""
    columns = decisions.c
    requests = {row.pinned_by for row in rows} - {None}
    query = sa.select(columns.request_id, columns.router, columns.preferred, columns.draws).where(
        columns.request_id.in_(requests)
    )
    pinning = {}
    with database.transaction() as connection:
        for request, *values in connection.execute(query):
            pinning[request] = Decision(*values)
    return pinning


class KnownAnswer(NamedTuple):
    """An answer whose error is known."""

    expert: str
    error: float
    rate: float  # with which it was picked; NaN if it was volunteered
    source: str


class _AnswerReader:
    """Makes answers of decisions, block by block."""

    def __init__(self, router: Router, experts: Mapping[str, Sequence[str]]) -> None:
        self._router = router
        self._logged_experts = experts
        self._experts = {name: index for index, name in enumerate(router.experts)}
        self._codes = {**self._experts, CASCADE: WHOLE_CASCADE}
        self._tag = decide.step_tag(router)
        self._routers: dict[str, int] = {str(decide.fingerprint_of(router)): 0}
        self._reports: dict[str, int] = {}
        self._n_from_text = 0
        self._n_from_features = 0
        self.left_out: Counter[str] = Counter()

    def facts(self) -> dict[str, Any]:
        """The fields of ``LoggedOutcomes`` that are no arrays."""
        return {
            "expert_names": tuple(self._experts),
            "routers": tuple(self._routers),
            "reports": tuple(self._reports),
            "requests": self._n_from_text + self._n_from_features,
            "from_text": self._n_from_text,
            "from_features": self._n_from_features,
            "left_out": dict(self.left_out),
        }

    def block(
        self,
        rows: Sequence[Any],
        scores: Mapping[str, Sequence[StoredScore]],
        pinning: Mapping[str, Decision],
    ) -> dict[str, Any]:
        """Arrays of the answers to requests; ``scores`` and ``pinning`` are by request."""
        contents: list[Any] = []  # texts, or features
        cells: list[dict[str, Any]] = []
        for row in rows:
            answers = _known_answers(row, scores.get(row.request_id, ()))
            content = row.text
            if content is None and row.features is not None:
                content = unpack_features(row.features, self._tag)
            reason = self._why_left_out(row, content)
            if reason is not None:
                self.left_out.update([reason] * len(answers))
                continue
            decision = Decision(row.router, row.preferred, row.draws)
            if row.pinned_by is not None:
                decision = pinning.get(row.pinned_by, Decision(row.router, None, None))
            draws = self._draws_of(decision)
            row_cells = self._cells(row, answers, draws, decision.preferred)
            for cell in row_cells:
                cell["X"] = len(contents)
                cell["draws"] = draws
            cells += row_cells
            if row_cells:
                contents.append(content)
        X = self._features(contents)
        columns: dict[str, Any] = {}
        for name, kind in _TYPES.items():
            columns[name] = np.array([cell[name] for cell in cells], kind)
        columns["X"] = X[columns["X"]]
        columns["draws"] = columns["draws"].reshape(-1, len(self._experts))
        self._add_first_steps(columns)
        return columns

    def _why_left_out(self, row: Any, content: Any) -> str | None:
        """Why a request is not learned from; None if it is."""
        reason = why_left_out(
            row.asked,
            row.chosen,
            row.propensity,
            row.price,
            row.outcome,
            content,
            row.probabilities,
            needs_exploration=False,
        )
        if reason == WITHOUT_QUERY and row.features is not None:
            return "with features of another text step"
        if reason is None and self._lacks_draw(content):
            return "without the text, which says what a mix does"
        return reason

    def _lacks_draw(self, content: Any) -> bool:
        """Whether features do not have the draw that the router's mix decides by."""
        return not isinstance(content, str) and len(content) < decide.n_columns(self._router)

    def _features(self, contents: Sequence[Any]) -> FloatArray:
        """Features (n, d) of contents, of which some are texts and the others features already."""
        X = np.empty((len(contents), decide.n_columns(self._router)), np.float32)
        text_rows = []
        for index, content in enumerate(contents):
            if isinstance(content, str):
                text_rows.append(index)
            else:
                X[index] = content
        if text_rows:
            X[text_rows] = decide.features_of(
                self._router, [contents[index] for index in text_rows]
            )
        self._n_from_text += len(text_rows)
        self._n_from_features += len(contents) - len(text_rows)
        return X

    def _draws_of(self, decision: Decision) -> list[float]:
        """Probabilities of this router's experts in the draw of a decision; NaN where it has none."""
        logged_names = self._logged_experts.get(decision.router, ())
        shares = json.loads(decision.draws or "[]")
        if not shares or len(shares) != len(logged_names):
            return [np.nan] * len(self._experts)
        share_of_expert = dict(zip(logged_names, shares, strict=True))
        return [share_of_expert.get(name, 0.0) for name in self._experts]

    def _cells(
        self,
        row: Any,
        answers: Iterable[KnownAnswer],
        draws: Sequence[float],
        preferred: str | None,
    ) -> list[dict[str, Any]]:
        """What is known of each answer to a request, by the name of its column."""
        router = self._routers.setdefault(row.router, len(self._routers))
        is_cascade = row.chosen == CASCADE
        calls = _calls_of(row)
        steps = [call["step"] for call in calls.values() if call.get("step")]
        first_step = min(steps, default=None)
        cells = []
        for answer in answers:
            expert = self._experts.get(answer.expert)
            call = calls.get(answer.expert)
            if expert is None:
                self.left_out["of an expert that the router does not have"] += 1
                continue
            if is_cascade and call is None:
                self.left_out["of an expert that was not asked"] += 1
                continue
            selected = answer.expert != row.chosen
            propensity = row.propensity
            dollars = row.price
            latency_ms = row.latency_ms
            version = row.reported
            if is_cascade and call is not None:
                # Whoever is asked first is asked by the cascade, and when exploration draws it.
                selected = call.get("step") != first_step or router != 0
                # A cascade that could not be drawn otherwise has no draws.
                if not np.isnan(draws[expert]):
                    propensity += draws[expert]
                dollars = call.get("dollars")
                latency_ms = call.get("latency_ms")
                if len(calls) > 1:
                    version = None
                version = call.get("reported", version)
            cells.append(
                {
                    "request_id": row.request_id.encode(),
                    "time": row.time,
                    "expert": expert,
                    "chosen": self._codes.get(row.chosen, UNKNOWN),
                    "preferred": self._codes.get(preferred or "", UNKNOWN),
                    "propensity": propensity,
                    "selected": selected,
                    "error": answer.error,
                    "rate": answer.rate,
                    "dollars": _or_nan(dollars),
                    "latency": _or_nan(latency_ms) / 1000,
                    "source": SOURCE_NAMES.index(answer.source),
                    "router": router,
                    "reported": self._report_number(version),
                    "episode": (row.pinned_by or row.request_id).encode(),
                }
            )
        return cells

    def _report_number(self, version: str | None) -> int:
        """The number of a version that an expert reported; -1 for none."""
        if version is None:
            return -1
        return self._reports.setdefault(version, len(self._reports))

    def _add_first_steps(self, columns: dict[str, Any]) -> None:
        """Propensities of experts that exploration drew, and that the cascade would have asked first."""
        cascade = decide.cascade_of(self._router)
        draws = columns["draws"]
        is_beside = (columns["preferred"] == WHOLE_CASCADE) & (columns["chosen"] != WHOLE_CASCADE)
        rows = np.flatnonzero(is_beside & (columns["router"] == 0) & ~columns["selected"])
        if cascade is None or not len(rows):
            return
        explore = draws[rows].sum(axis=1)
        first_steps = decide.first_asked(cascade, columns["X"][rows])
        experts = columns["expert"][rows]
        is_asked = [expert in step for expert, step in zip(experts, first_steps, strict=True)]
        columns["propensity"][rows] += np.where(is_asked, 1 - explore, 0.0)


def _or_nan(value: float | None) -> float:
    if value is None:
        return math.nan
    return value


def _calls_of(row: Any) -> dict[str, Mapping[str, Any]]:
    """Calls of a cascade, by expert."""
    return {call["expert"]: call for call in json.loads(row.calls or "[]")}


def _failed_experts(row: Any) -> list[str]:
    """Experts that were asked and gave no whole answer."""
    if row.chosen != CASCADE:
        if row.outcome in ("failed", "cut"):
            return [row.chosen]
        return []
    failed = []
    for name, call in _calls_of(row).items():
        if call.get("step") and call["outcome"] not in _NOT_FAILED:
            failed.append(name)
    return failed


def _known_answers(row: Any, scores: Sequence[StoredScore]) -> list[KnownAnswer]:
    """The answers to a request whose errors are known: they failed, or they were judged."""
    failed = _failed_experts(row)
    answers = [KnownAnswer(name, 1.0, 1.0, "outcome") for name in failed]
    sampled = {score.expert for score in scores if score.rate is not None}
    for score in scores:
        if score.expert in failed:
            continue
        # The judgement of a sample goes before one that was volunteered.
        if score.rate is None and score.expert in sampled:
            continue
        error = 1 - score.score
        answers.append(KnownAnswer(score.expert, error, _or_nan(score.rate), score.source))
    return answers
