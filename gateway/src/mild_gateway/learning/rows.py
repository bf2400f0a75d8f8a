"""What the ledger knows of the experts: judged answers as arrays, read in blocks."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque, namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from mild.artifact import Router, features_tag
from mild.errors import UnsupportedError
from mild.evaluation import WITHOUT_QUERY
from mild.tuning import LoggedOutcomes
from mild_gateway.database.engine import Database, Location
from mild_gateway.ledger.draws import why_left_out
from mild_gateway.ledger.feedback import SOURCES, feedback, has_feedback
from mild_gateway.ledger.propensities import is_preferred
from mild_gateway.ledger.reading import ledger_columns, open_ledger, read_blocks, read_experts
from mild_gateway.ledger.records import decisions
from mild_gateway.selection.models import CASCADE
from mild_gateway.selection.stored_features import unpack_features

#: Names behind ``LoggedOutcomes.source``; an outcome is that of a request or a call that failed.
SOURCE_NAMES = (*SOURCES, "outcome")
#: ``chosen`` and ``preferred`` where they are not one expert.
UNKNOWN, WHOLE_CASCADE = -1, -2
# Decisions that are read at a time, and bytes of features that are kept unless the caller says otherwise.
_BLOCK, _BYTES = 5000, 2**29
# By request, lines of values.
_Found = Mapping[str, Sequence[Sequence[Any]]]
_Row = namedtuple(
    "_Row",
    "request_id time asked chosen propensity price outcome text pinned_by probabilities latency_ms "
    "router calls preferred draws reported features",
)


# Of the columns, while they are collected: an episode has the name of its first request, X a place.
_TYPES: dict[str, Any] = {
    "request_id": "S", "time": np.float64, "expert": np.int16, "chosen": np.int16,
    "preferred": np.int16, "propensity": np.float64, "selected": np.bool_, "error": np.float64,
    "rate": np.float64, "dollars": np.float64, "latency": np.float64, "source": np.int16,
    "router": np.int32, "reported": np.int32, "episode": "S", "X": np.intp, "draws": np.float32,
}  # fmt: skip


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
        message = "learning needs a router that reads text; this one was fitted on numbers."
        raise UnsupportedError(message, parameter="router")
    reader = _AnswerReader(router, read_experts(place))
    most = most or max(1, _BYTES // (4 * router.n_features))
    blocks = deque([reader.block([], {}, {})])
    count = older = 0
    with open_ledger(place) as database:
        has_scores, given = has_feedback(database), feedback.c
        calls, *drawn = ledger_columns(database, ("calls", "request_id", "router", "draws"))
        # In a cascade, calls may have failed although the request did not.
        where = sa.or_(decisions.c.outcome.in_(("failed", "cut")), calls.is_not(None))
        if has_scores:
            where = where | sa.exists().where(given.request_id == decisions.c.request_id)
        scores = (given.request_id, given.expert, given.source, given.score, given.rate)
        for found in read_blocks(place, since, until, _Row._fields, _BLOCK, where):
            rows = [_Row(*one) for one in found]
            names = [row.request_id for row in rows]
            judged = _by_request(database, scores, names) if has_scores else {}
            first = _by_request(database, drawn, {row.pinned_by for row in rows} - {None})
            blocks.append(reader.block(rows, judged, first))
            count += len(blocks[-1]["time"])
            while count - older - len(blocks[0]["time"]) >= most:
                older += len(blocks.popleft()["time"])
    arrays: dict[str, Any] = {
        name: np.concatenate([block.pop(name) for block in blocks])[-most:]
        for name in list(blocks[0])
    }
    if count > most:
        reader.left_out["older than the newest ones that are used"] = count - most
    arrays["episode"] = np.unique(arrays["episode"], return_inverse=True)[1]
    return LoggedOutcomes(**arrays, **reader.facts())


def _by_request(
    database: Database, columns: Sequence[sa.ColumnElement[Any]], requests: Iterable[str]
) -> _Found:
    """The columns of some requests; the first one says which."""
    found: dict[str, list[Any]] = defaultdict(list)
    query = sa.select(*columns).where(columns[0].in_(list(requests)))
    with database.transaction() as connection:
        for name, *values in connection.execute(query):
            found[name].append(values)
    return found


class _AnswerReader:
    """Makes answers of decisions, block by block."""

    def __init__(self, router: Router, experts: Mapping[str, Sequence[str]]) -> None:
        assert router.text is not None
        self._router, self._logged_experts = router, experts
        self._experts = {name: k for k, name in enumerate(router.expert_names)}
        self._codes = {**self._experts, CASCADE: WHOLE_CASCADE}
        self._tag = features_tag(router.text, router.mix)
        self._routers: dict[str, int] = {str(router.info.fingerprint): 0}
        self._reports: dict[str, int] = {}
        self._from_text = self._from_features = 0
        self.left_out: Counter[str] = Counter()

    def facts(self) -> dict[str, Any]:
        """The fields of ``LoggedOutcomes`` that are no arrays."""
        return {
            "expert_names": tuple(self._experts),
            "routers": tuple(self._routers),
            "reports": tuple(self._reports),
            "requests": self._from_text + self._from_features,
            "from_text": self._from_text,
            "from_features": self._from_features,
            "left_out": dict(self.left_out),
        }

    def block(self, rows: Sequence[Any], judged: _Found, first: _Found) -> dict[str, Any]:
        """Arrays of the answers to some decisions."""
        contents: list[Any] = []  # texts, or features
        cells: list[dict[str, Any]] = []
        for row in rows:
            answers = _answers(row, judged.get(row.request_id, ()))
            content = row.text
            if content is None and row.features is not None:
                content = unpack_features(row.features, self._tag)
            draw = row.asked, row.chosen, row.propensity, row.price, row.outcome
            reason = why_left_out(*draw, content, row.probabilities, needs_exploration=False)
            if reason == WITHOUT_QUERY and row.features is not None:
                reason = "with features of another text step"
            if reason is None and self._lacks_draw(content):
                reason = "without the text, which says what a mix does"
            if reason is not None:
                self.left_out.update([reason] * len(answers))
                continue
            own = (row.router, None if row.pinned_by else row.draws)
            draws = self._draws(*first.get(row.pinned_by, [own])[0])
            found = list(self._cells(row, answers, draws))
            if found:
                cells += [{**cell, "X": len(contents), "draws": draws} for cell in found]
                contents.append(content)
        texts = [k for k, one in enumerate(contents) if isinstance(one, str)]
        X = np.empty((len(contents), self._router.policy.n_columns), np.float32)
        if texts:
            X[texts] = self._router.features([contents[k] for k in texts])
        for k in set(range(len(contents))).difference(texts):
            X[k] = contents[k]
        self._from_text += len(texts)
        self._from_features += len(contents) - len(texts)
        columns = {
            name: np.array([cell[name] for cell in cells], kind) for name, kind in _TYPES.items()
        }
        columns["X"] = X[columns["X"]]
        columns["draws"] = columns["draws"].reshape(-1, len(self._experts))
        self._add_first_steps(columns)
        return columns

    def _lacks_draw(self, content: Any) -> bool:
        """Whether features do not have the draw that the router's mix decides by."""
        return not isinstance(content, str) and len(content) < self._router.policy.n_columns

    def _draws(self, router: str, packed: str | None) -> list[float]:
        """Probabilities of this router's experts, of draws that were logged by any router."""
        names, shares = self._logged_experts.get(router, ()), json.loads(packed or "[]")
        if not shares or len(shares) != len(names):
            return [np.nan] * len(self._experts)
        known = dict(zip(names, shares, strict=True))
        return [known.get(name, 0.0) for name in self._experts]

    def _cells(
        self, row: Any, answers: Iterable[tuple[str, float, float, str]], draws: Sequence[float]
    ) -> Iterator[dict[str, Any]]:
        router, reports = self._routers.setdefault(row.router, len(self._routers)), self._reports
        climbed, n_experts = row.chosen == CASCADE, (row.probabilities or ",").count(",") + 1
        chosen = preferred = self._codes.get(row.chosen, UNKNOWN)
        if row.preferred is not None:
            preferred = self._codes.get(row.preferred, UNKNOWN)
        elif not climbed and not is_preferred(row.propensity, n_experts):
            cascade = router == 0 and self._router.cascade is not None
            preferred = WHOLE_CASCADE if cascade else UNKNOWN
        calls = _calls(row)
        first = min((call["step"] for call in calls.values() if call.get("step")), default=None)
        for name, error, rate, source in answers:
            expert, call = self._experts.get(name), calls.get(name)
            if expert is None or (climbed and call is None):
                why = "that the router does not have" if expert is None else "that was not asked"
                self.left_out[f"of an expert {why}"] += 1
                continue
            selected, propensity = name != row.chosen, row.propensity
            dollars, latency, version = row.price, row.latency_ms, row.reported
            if climbed and call is not None:
                # Whoever is asked first is asked by the cascade, and when exploration draws it.
                selected = call.get("step") != first or router != 0
                share = draws[expert]
                propensity += (1 - propensity) / n_experts if np.isnan(share) else share
                dollars, latency = call.get("dollars"), call.get("latency_ms")
                version = call.get("reported", version if len(calls) == 1 else None)
            yield {
                "request_id": row.request_id.encode(),
                "time": row.time,
                "expert": expert,
                "chosen": chosen,
                "preferred": preferred,
                "propensity": propensity,
                "selected": selected,
                "error": error,
                "rate": rate,
                "dollars": np.nan if dollars is None else dollars,
                "latency": np.nan if latency is None else latency / 1000,
                "source": SOURCE_NAMES.index(source),
                "router": router,
                "reported": -1 if version is None else reports.setdefault(version, len(reports)),
                "episode": (row.pinned_by or row.request_id).encode(),
            }

    def _add_first_steps(self, columns: dict[str, Any]) -> None:
        """Propensities of experts that exploration drew, and that the cascade would have asked first."""
        cascade, draws = self._router.cascade, columns["draws"]
        beside = (columns["preferred"] == WHOLE_CASCADE) & (columns["chosen"] != WHOLE_CASCADE)
        rows = np.flatnonzero(beside & (columns["router"] == 0) & ~columns["selected"])
        if cascade is None or not len(rows):
            return
        explore = np.where(
            np.isnan(draws[rows, 0]),
            len(self._experts) * columns["propensity"][rows],
            draws[rows].sum(axis=1),
        )
        steps = cascade.first_asked(columns["X"][rows])
        asked = [one in step for one, step in zip(columns["expert"][rows], steps, strict=True)]
        columns["propensity"][rows] += np.where(asked, 1 - explore, 0.0)


def _calls(row: Any) -> dict[str, Mapping[str, Any]]:
    return {call["expert"]: call for call in (json.loads(row.calls) if row.calls else ())}


def _answers(row: Any, given: Sequence[Sequence[Any]]) -> list[tuple[str, float, float, str]]:
    """Expert, error, rate and source of the answers to a request that are known."""
    failed = [row.chosen] if row.outcome in ("failed", "cut") else []
    if row.chosen == CASCADE:
        fine = ("ok", "open", "cancelled")
        calls = _calls(row).items()
        failed = [name for name, call in calls if call.get("step") and call["outcome"] not in fine]
    sampled = {name for name, _, _, rate in given if rate is not None}
    # The judgement of a sample goes before one that was volunteered.
    return [(name, 1.0, 1.0, "outcome") for name in failed] + [
        (name, 1 - score, np.nan if rate is None else rate, source)
        for name, source, score, rate in given
        if name not in failed and (rate is not None or name not in sampled)
    ]
