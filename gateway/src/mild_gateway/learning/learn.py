"""Learn a new version of a router from a gateway's ledger, and promote it if it is surely better."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mild.artifact import (
    Router,
    Versions,
    load,
    load_candidate,
    read_versions,
    serve_version,
    write_version,
)
from mild.core import BoolArray, FloatArray, IntArray, check_share, decimals, first_columns, invalid
from mild.data import OutcomeTable, as_frame, frame_library, html_table, read_outcomes
from mild.errors import check_arguments, counted
from mild.evaluation import ENOUGH_CHANGED
from mild.tuning import (
    CostWeights,
    KnownRows,
    LoggedOutcomes,
    dropped_mix,
    fit_candidate,
    is_current,
)
from mild_gateway.learning.judging import ENOUGH, GradedRows, Judgement, judge
from mild_gateway.learning.rows import SOURCE_NAMES, read_logged
from mild_gateway.ledger.reading import ledger_location, moment

#: With ``accept="cheaper"``, the rise of the error that counts as not worse.
NOT_WORSE = 0.01
# A candidate that decides nearly all of the newest answers alike need not be tried out.
_ALIKE, _TRIED = 0.999, 2000


@dataclass(frozen=True, repr=False)
class LearnResult:
    """What ``mild_gateway.learn`` did.

    Attributes
    ----------
    promoted : whether the new router serves now; with ``dry_run``, whether it would
    reason : "better", "cheaper", "worse", "noise" (not clear), "same" or "too_few"
    sentence : the same for people
    version : the new version, promoted or a candidate; None if nothing was written
    judgement : old against new, on answers that neither has learned from
    cost : what a cost is
    trained_on : answers of the log that the new router has learned from, by source, and rows of the table
    left_out : answers that were not used, by reason
    notes : what to know about the data
    """

    promoted: bool
    reason: str
    sentence: str
    version: int | None
    judgement: Judgement
    cost: str
    trained_on: Mapping[str, int]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]
    router: Router

    def as_dict(self) -> dict[str, Any]:
        """What ``mild learn --json`` prints."""
        found = {
            name: getattr(self, name) for name in self.__dataclass_fields__ if name != "router"
        }
        return {**found, "judgement": self.judgement.as_dict(), "notes": list(self.notes)}

    def to_frame(self) -> Any:
        """The differences of the routers, a row per quantity and method."""
        return as_frame(self._rows, frame_library())

    @property
    def _rows(self) -> list[dict[str, Any]]:
        differences = self.judgement.as_dict()["differences"]
        return [
            {"quantity": quantity, "method": method, **interval}
            for quantity, methods in differences.items()
            for method, interval in methods.items()
        ]

    def __repr__(self) -> str:
        return f"<LearnResult: {self.sentence}>"

    def _repr_html_(self) -> str:
        return html_table(self.sentence, self._rows)


@check_arguments
def learn(
    router: str | os.PathLike[str],
    ledger: str | os.PathLike[str],
    *,
    table: Any = None,
    accept: str = "better",
    trust_feedback: bool = False,
    all_versions: bool = False,
    min_judged: int | None = None,
    since: str | float | datetime | None = None,
    until: str | float | datetime | None = None,
    confidence: float = 0.98,
    dry_run: bool = False,
) -> LearnResult:
    """Learn a new version of a router from a ledger with feedback, and promote it if it is surely better.

    Judged answers train the new router, weighted by the inverse probability of their draw (at most 20
    times the most frequent one), beside the rows of ``table``. Old and new are compared on the newest
    answers that neither has learned from and that were graded as a sample of a known rate. If the new
    router is not surely better, it is kept as the candidate, which a gateway with ``explore = "auto"``
    tries out, and judged by the requests that follow. A running gateway has to reload (``mild reload``).

    Parameters
    ----------
    router : folder of the router
    ledger : SQLite file, postgresql:// URL, or the mild.toml that names it
    table : table of outcomes that the router was fitted on; None for the ledger only
    accept : "better" promotes if the mean cost is surely less; "cheaper" also if dollars are surely less
        and the error rises by surely less than 0.01
    trust_feedback : whether feedback of clients judges, too, although they choose what they judge
    all_versions : whether answers of model versions that an expert no longer reports count as its own
    min_judged : graded answers that a promotion needs; None for 100
    since, until : span of time of the requests, as in ``mild_gateway.replay``
    confidence : of the intervals. At 0.95, in simulations with a first router that was good already, up to
        9 % of the promotions were truly worse; at 0.98 it was 3 %.
    dry_run : whether to judge only, and write nothing

    Returns
    -------
    LearnResult

    Examples
    --------
    >>> found = learn("router", "ledger.sqlite", table="log.parquet")  # doctest: +SKIP
    >>> found.promoted, found.sentence  # doctest: +SKIP
    """
    if accept not in ("better", "cheaper"):
        raise invalid("accept", f'must be "better" or "cheaper"; got {accept!r}.')
    check_share("confidence", confidence)
    folder, now = Path(router), time.time()
    versions, serving = read_versions(folder), load(folder)
    place = ledger_location(ledger)
    logged = read_logged(place, serving, moment("since", since, now), moment("until", until, now))
    left_out = dict(logged.left_out)
    if not all_versions:
        logged = _leave_out(logged, ~is_current(logged), "of an older version", left_out)
    weights = CostWeights.of(serving)
    costs = weights.costs(logged)
    logged = _leave_out(logged, np.isnan(costs), "without a price or latency", left_out)
    data = None
    if table is not None:
        data = table if isinstance(table, OutcomeTable) else read_outcomes(table)
    task = Learning(
        serving, logged, KnownRows.of(data, serving), weights, trust_feedback, confidence,
        ENOUGH if min_judged is None else min_judged, accept,
    )  # fmt: skip
    # What was known before a rollback must not undo it.
    rolled_back = [event.time for event in versions.history if event.event == "rolled back"]
    known = [versions[versions.serving].learned_until, *rolled_back]
    learned = max((one for one in known if one is not None), default=None)
    found = task.find(learned, _candidate(versions, serving))
    trained = task.trained_on(found)
    version = None
    if not dry_run:
        version = _write(folder, serving, found, sum(trained.values()) - trained["table"])
    return LearnResult(
        found.promotes,
        found.reason,
        task.sentence(found, version, dry_run),
        version,
        found.judgement,
        weights.formula,
        trained,
        left_out,
        tuple(task.notes()),
        found.router,
    )


class Learned(NamedTuple):
    """A router that has learned, and what the log says about it."""

    router: Router
    judgement: Judgement
    reason: str
    learned_until: float | None  # time of the newest request that it has learned from
    version: int | None = None  # of a candidate that is in the folder already
    differs: bool = False  # whether it decides otherwise than the serving router, now and then

    @property
    def promotes(self) -> bool:
        """Whether it is to serve."""
        return self.reason in ("better", "cheaper")


class TriedRouter(NamedTuple):
    """A router that has learned and was tried out since."""

    router: Router
    learned_until: float
    version: int | None = None


@dataclass(frozen=True, eq=False)
class Learning:
    """Trains routers, and judges them."""

    serving: Router
    logged: LoggedOutcomes
    known: KnownRows
    weights: CostWeights
    trust_feedback: bool
    confidence: float
    least: int
    accept: str

    def find(self, learned_until: float | None, candidate: TriedRouter | None = None) -> Learned:
        """The router to promote; otherwise the one to try out.

        ``learned_until`` is the time of the newest request that the serving router has learned from;
        only later ones judge.
        """
        logged, times = self.logged, self.logged.time
        unseen = logged.sampled | self.trust_feedback
        unseen &= ~logged.selected & (logged.propensity < 1)
        if learned_until is None:
            # What was logged before may be in the table that it was fitted on.
            names = np.array(logged.routers, object)
            unseen &= names[logged.router] == self.serving.info.fingerprint
        else:
            unseen &= times > learned_until
        # One test a run: every further one would be another chance to promote by luck.
        if candidate is not None:
            # It has been tried out since it was trained, and all that came later is new to both.
            later = unseen & (times > candidate.learned_until)
            found = self._judged(candidate.router, later, candidate.learned_until)
            if found.promotes or found.reason == "too_few":
                return found._replace(version=candidate.version)
        else:
            # The older half of what is new trains, and the newer one judges.
            cut = float(np.median(times[unseen])) if unseen.any() else -np.inf
            found = self._judged(self._train(times <= cut), unseen & (times > cut), cut)
            if found.promotes:
                return found
        # It is not proven: one that has learned from everything is tried out.
        last = self._train(np.ones(len(logged), bool))
        until = float(times.max()) if len(logged) else None
        X = logged.X[-_TRIED:]
        alike = _choices(self.serving, X) == _choices(last, X)
        differs = bool(alike.mean() < _ALIKE) if len(X) else False
        return found._replace(router=last, learned_until=until, differs=differs)

    def _train(self, rows: BoolArray) -> Router:
        logged = self.logged.take(rows & ~self.logged.selected)
        return fit_candidate(self.serving, self.known, logged, self.weights)

    def _judged(self, router: Router, rows: BoolArray, until: float | None) -> Learned:
        logged = self.logged.take(rows)
        _, request = np.unique(logged.request_id, return_inverse=True)
        graded = GradedRows(
            logged.expert.astype(np.intp),
            logged.propensity,
            logged.draws,
            1 / np.where(logged.sampled, logged.rate, 1.0),
            # Each source of judgements is a sample of its own.
            request * len(SOURCE_NAMES) + logged.source,
            logged.episode,
        )
        policy: Any = router.direct.policy
        old = _choices(self.serving, logged.X)
        new = _choices(router, logged.X)
        X = first_columns(logged.X, policy.n_columns)
        quantities = {}
        if len(logged):
            errors = np.clip(policy.expected_errors(X), 0, 1)
            prices = policy.expected_prices(X)
            cost = self.weights.costs(logged)
            quantities["cost"] = (cost, errors + policy.price_weight * prices)
            quantities["error"] = (logged.error, errors)
            if not np.isnan(logged.dollars).any():
                quantities["dollars"] = (logged.dollars, prices - policy.betas)
        judgement = judge(graded, old, new, quantities, self.confidence, self.least)
        reason = judgement.reason
        if reason == "noise" and self.accept == "cheaper":
            gaps = {name: one["doubly_robust"] for name, one in judgement.differences.items()}
            if "dollars" in gaps and gaps["dollars"].high < 0 and gaps["error"].high < NOT_WORSE:
                reason = "cheaper"
        return Learned(router, judgement, reason, until)

    def trained_on(self, found: Learned) -> dict[str, int]:
        """Answers of the log by source, and rows of the table."""
        times, until = self.logged.time, found.learned_until
        used = times <= (-np.inf if until is None else until)
        sources = {
            name: int((used & (self.logged.source == k)).sum())
            for k, name in enumerate(SOURCE_NAMES)
        }
        return {"table": len(self.known.X), **sources}

    def notes(self) -> list[str]:
        """What to know about the data."""
        logged, found = self.logged, []
        if logged.from_features:
            found.append(
                f"{counted(logged.from_features, 'request')} without text: learned from stored features."
            )
        mix = dropped_mix(self.serving)
        if mix is not None:
            found.append(
                f"the new router has one setting; the mix of the old one is not kept: {mix}."
            )
        if not len(self.known.X):
            found.append(
                "no table of outcomes was given: experts that were hardly drawn are little known."
            )
        selected = int((~logged.sampled).sum())
        if selected:
            use = "trains and judges" if self.trust_feedback else "trains, and does not judge"
            found.append(f"feedback that was not sampled {use}: {counted(selected, 'answer')}.")
        return found

    def sentence(self, found: Learned, version: int | None, dry_run: bool) -> str:
        """The result in a sentence or two."""
        one, gap = found.judgement, ""
        if "cost" in one.differences:
            interval = one.differences["cost"]["doubly_robust"]
            gap = (
                f" {decimals(interval.estimate, sign=True)} per request ({self.confidence:.0%} interval "
                f"{decimals(interval.low, sign=True)} to {decimals(interval.high, sign=True)}, "
                f"{counted(one.rows, 'graded answer')})"
            )
        few = f"{counted(one.rows, 'graded answer')} new to both routers; {self.least:,} are needed"
        if one.rows >= self.least:
            few = (
                f"of {one.rows:,} graded answers, {one.changed_draws} show what the new router changes; "
                f"{ENOUGH_CHANGED} are needed"
            )
        told = {
            "better": f"The new router costs less:{gap}.",
            "cheaper": f"The new router is cheaper, and its error is not worse. Cost:{gap}.",
            "worse": f"Not promoted: the new router costs more:{gap}.",
            "noise": f"Not promoted: it is not clear whether the new router is better:{gap}.",
            "same": "Not promoted: the new router decides like the serving one.",
            "too_few": f"Not promoted: {few}. Grade or explore more.",
        }[found.reason]
        if dry_run:
            return f"{told} Nothing was written (dry run)."
        if found.promotes:
            return f"{told} Version {version} serves."
        if version is None:
            return told
        return f'{told} Version {version} is the candidate, which explore = "auto" tries out.'


def _choices(router: Router, X: FloatArray) -> IntArray:
    """Choices (n,) of a router without answers, for features that may have the draws of a mix."""
    policy = router.direct.policy
    return policy.predict(first_columns(X, policy.n_columns))


def _leave_out(
    logged: LoggedOutcomes, rows: BoolArray, reason: str, left_out: dict[str, int]
) -> LoggedOutcomes:
    if not rows.any():
        return logged
    left_out[reason] = int(rows.sum())
    return logged.take(~rows)


def _candidate(versions: Versions, serving: Router) -> TriedRouter | None:
    """The candidate in a folder; None without one that has the serving router's experts and features."""
    until = versions.candidate and versions[versions.candidate].learned_until
    router = None if until is None else load_candidate(versions.folder)
    if router is None or until is None or router.expert_names != serving.expert_names:
        return None
    if router.n_features != serving.n_features:
        return None
    return TriedRouter(router, until, versions.candidate)


def _write(folder: Path, serving: Router, found: Learned, answers: int) -> int | None:
    """Promote or keep a router; its version, None if it need not be kept."""
    details: dict[str, Any] = {
        "why": f"learned from {counted(answers, 'answer')}: {found.reason}",
        "reason": found.reason,
        "expected": serving.info.fingerprint,
        "facts": {"judgement": found.judgement.as_dict()},
    }
    if not (found.promotes or found.differs):
        return None
    if found.version is not None:
        serve_version(folder, found.version, **details)
        return found.version
    details |= {"serve": found.promotes, "learned_until": found.learned_until}
    return write_version(folder, found.router, **details)
