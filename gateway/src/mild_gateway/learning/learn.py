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

from mild.errors import InvalidInputError, check_arguments, count_noun
from mild_gateway.arrays import BoolArray
from mild_gateway.decide import Router, fingerprint_of, load_router, n_features
from mild_gateway.learning.estimating import ENOUGH_CHANGED
from mild_gateway.learning.judging import ENOUGH, GradedRows, Judgement, judge
from mild_gateway.learning.logged_outcomes import (
    CostWeights,
    LoggedOutcomes,
    TableRows,
    choices,
    dropped_mix,
    fit_candidate,
    is_current,
    learned_policy,
)
from mild_gateway.learning.rows import SOURCE_NAMES, read_logged
from mild_gateway.learning.tables import Outcomes, as_frame, frame_library, read_outcomes
from mild_gateway.ledger.reading import ledger_location, moment
from mild_gateway.versions import (
    Versions,
    load_candidate,
    read_versions,
    serve_version,
    write_version,
)

#: With ``accept="cheaper"``, the rise of the error that counts as not worse.
NOT_WORSE = 0.01
# A router that decides nearly all of the newest answers like the serving one need not be tried out.
_ALIKE_SHARE = 0.999
_NEWEST_ROWS = 2000


@dataclass(frozen=True, repr=False)
class LearnResult:
    """What ``mild_gateway.learn`` did.

    Attributes
    ----------
    promoted : whether the new router serves now; with ``dry_run``, whether it would
    reason : "better", "cheaper", "worse", "noise" (not clear), "unsupported" (better where the log
        can tell), "same" or "too_few"
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
        return {
            "promoted": self.promoted,
            "reason": self.reason,
            "sentence": self.sentence,
            "version": self.version,
            "judgement": self.judgement.as_dict(),
            "cost": self.cost,
            "trained_on": self.trained_on,
            "left_out": self.left_out,
            "notes": list(self.notes),
        }

    def to_frame(self) -> Any:
        """The differences of the routers, a row per quantity and method."""
        return as_frame(self._rows, frame_library())

    @property
    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for quantity, methods in self.judgement.as_dict()["differences"].items():
            for method, interval in methods.items():
                rows.append({"quantity": quantity, "method": method, **interval})
        return rows

    def __repr__(self) -> str:
        return f"<LearnResult: {self.sentence}>"


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
    tries out, and judged by the requests that follow. A running gateway takes it over by itself.

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
        rule = f'must be "better" or "cheaper"; got {accept!r}.'
        raise InvalidInputError(parameter="accept", rule=rule)
    if not 0 < confidence < 1:
        rule = f"must lie between 0 and 1; got {confidence!r}."
        raise InvalidInputError(parameter="confidence", rule=rule)
    folder = Path(router)
    now = time.time()
    versions = read_versions(folder)
    serving = load_router(folder)
    location = ledger_location(ledger)
    first = moment("since", since, now)
    last = moment("until", until, now)
    logged = read_logged(location, serving, first, last)
    left_out = dict(logged.left_out)
    if not all_versions:
        logged = _leave_out(logged, ~is_current(logged), "of an older version", left_out)
    weights = CostWeights.of(serving)
    costs = weights.costs(logged)
    logged = _leave_out(logged, np.isnan(costs), "without a price or latency", left_out)
    if table is not None and not isinstance(table, Outcomes):
        table = read_outcomes(table)
    if min_judged is None:
        min_judged = ENOUGH
    task = Learning(
        serving,
        logged,
        TableRows.of(table, serving),
        weights,
        trust_feedback,
        confidence,
        min_judged,
        accept,
    )
    learned = task.find(_known_until(versions), _candidate(versions, serving))
    trained_on = task.trained_on(learned)
    version = None
    if not dry_run:
        n_answers = sum(trained_on.values()) - trained_on["table"]
        version = _write(folder, serving, learned, n_answers)
    return LearnResult(
        learned.promotes,
        learned.reason,
        task.sentence(learned, version, dry_run),
        version,
        learned.judgement,
        weights.formula,
        trained_on,
        left_out,
        tuple(task.notes()),
        learned.router,
    )


def _known_until(versions: Versions) -> float | None:
    """Time until which requests do not judge: the serving router may have learned from them.

    Nor do those before a rollback: what was known then must not undo it.
    """
    times = [event.time for event in versions.history if event.event == "rolled back"]
    learned_until = versions[versions.serving].learned_until
    if learned_until is not None:
        times.append(learned_until)
    return max(times, default=None)


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
    known: TableRows
    weights: CostWeights
    trust_feedback: bool
    confidence: float
    min_judged: int
    accept: str

    def find(self, learned_until: float | None, candidate: TriedRouter | None = None) -> Learned:
        """The router to promote; otherwise the one to try out.

        ``learned_until`` is the time of the newest request that the serving router has learned from;
        only later ones judge.
        """
        times = self.logged.time
        unseen = self._unseen(learned_until)
        # One test a run: every further one would be another chance to promote by luck.
        if candidate is not None:
            # It has been tried out since it was trained, and all that came later is new to both.
            later = unseen & (times > candidate.learned_until)
            compared = self._judged(candidate.router, later, candidate.learned_until)
            has_few_rows = compared.judgement.rows < self.min_judged
            if compared.promotes or (compared.reason == "too_few" and has_few_rows):
                return compared._replace(version=candidate.version)
            if compared.reason != "too_few":
                return self._next_candidate(compared)
            # It decides so much like the serving router that waiting would not tell them apart.
        # The older half of what is new trains, and the newer one judges.
        cut = -np.inf
        if unseen.any():
            cut = float(np.median(times[unseen]))
        learned = self._judged(self._train(times <= cut), unseen & (times > cut), cut)
        if learned.promotes:
            return learned
        return self._next_candidate(learned)

    def _unseen(self, learned_until: float | None) -> BoolArray:
        """Rows (n,) that judge: the serving router has not learned from them."""
        logged = self.logged
        unseen = logged.sampled | self.trust_feedback
        unseen &= ~logged.selected & (logged.propensity < 1)
        if learned_until is None:
            # What was logged before may be in the table that it was fitted on.
            names = np.array(logged.routers, object)
            return unseen & (names[logged.router] == fingerprint_of(self.serving))
        return unseen & (logged.time > learned_until)

    def _next_candidate(self, learned: Learned) -> Learned:
        """A judgement that promotes nothing, with a router to try out that has learned from all rows."""
        logged = self.logged
        router = self._train(np.ones(len(logged), bool))
        if not len(logged):
            return learned._replace(router=router, learned_until=None)
        newest = logged.X[-_NEWEST_ROWS:]
        is_alike = choices(self.serving, newest) == choices(router, newest)
        return learned._replace(
            router=router,
            learned_until=float(logged.time.max()),
            differs=bool(is_alike.mean() < _ALIKE_SHARE),
        )

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
        policy = learned_policy(router)
        old = choices(self.serving, logged.X)
        new = choices(router, logged.X)
        X = logged.X[:, : policy.n_columns]
        quantities = {}
        if len(logged):
            errors = np.clip(policy.expected_errors(X), 0, 1)
            prices = policy.expected_prices(X)
            cost = self.weights.costs(logged)
            quantities["cost"] = (cost, errors + policy.price_weight * prices)
            quantities["error"] = (logged.error, errors)
            if not np.isnan(logged.dollars).any():
                quantities["dollars"] = (logged.dollars, prices - policy.betas)
        judgement = judge(graded, old, new, quantities, self.confidence, self.min_judged)
        reason = judgement.reason
        is_open = reason in ("noise", "unsupported")
        if self.accept == "cheaper" and is_open and _is_cheaper(judgement):
            reason = "cheaper"
        return Learned(router, judgement, reason, until)

    def trained_on(self, learned: Learned) -> dict[str, int]:
        """Answers of the log by source, and rows of the table."""
        used = np.zeros(len(self.logged), bool)
        if learned.learned_until is not None:
            used = self.logged.time <= learned.learned_until
        counts = {"table": len(self.known.X)}
        for source, name in enumerate(SOURCE_NAMES):
            counts[name] = int((used & (self.logged.source == source)).sum())
        return counts

    def notes(self) -> list[str]:
        """What to know about the data."""
        logged = self.logged
        notes = []
        if logged.from_features:
            notes.append(
                f"{count_noun(logged.from_features, 'request')} without text: learned from stored features."
            )
        mix = dropped_mix(self.serving)
        if mix is not None:
            notes.append(
                f"the new router has one setting; the mix of the old one is not kept: {mix}."
            )
        if not len(self.known.X):
            notes.append(
                "no table of outcomes was given: experts that were hardly drawn are little known."
            )
        n_volunteered = int((~logged.sampled).sum())
        if n_volunteered:
            use = "trains, and does not judge"
            if self.trust_feedback:
                use = "trains and judges"
            notes.append(
                f"feedback that was not sampled {use}: {count_noun(n_volunteered, 'answer')}."
            )
        return notes

    def sentence(self, learned: Learned, version: int | None, dry_run: bool) -> str:
        """The result in a few sentences."""
        verdict = self._verdict_sentence(learned.reason, learned.judgement)
        if dry_run:
            return f"{verdict} Nothing was written (dry run)."
        if learned.promotes:
            return f"{verdict} Version {version} serves."
        if version is None:
            return verdict
        return f'{verdict} Version {version} is the candidate, which explore = "auto" tries out.'

    def _verdict_sentence(self, reason: str, judgement: Judgement) -> str:
        """What the log says about the new router, and about how many requests it says nothing."""
        if reason == "same":
            return "Not promoted: the new router decides like the serving one."
        if reason == "too_few":
            return f"Not promoted: {self._missing_answers(judgement)}. Grade or explore more."
        beginnings = {
            "better": "The new router costs less:",
            "cheaper": "The new router is cheaper, and its error is not worse. Cost:",
            "worse": "Not promoted: the new router costs more:",
            "noise": "Not promoted: it is not clear whether the new router is better:",
            "unsupported": "Not promoted: the new router costs less where the log can tell:",
        }
        interval = judgement.differences["cost"]["doubly_robust"]
        verdict = (
            f"{beginnings[reason]} {_signed(interval.estimate)} per request "
            f"({100 * self.confidence:.0f} % interval {_signed(interval.low)} to "
            f"{_signed(interval.high)}, {count_noun(judgement.rows, 'graded answer')})."
        )
        if not judgement.unsupported:
            return verdict
        verdict += (
            f" This leaves out {100 * judgement.unsupported:.0f} % of the requests, for which one of the "
            "two routers chooses an expert that was hardly ever drawn."
        )
        if reason in ("better", "cheaper"):
            verdict += " The same holds if the worst is assumed for them."
        return verdict

    def _missing_answers(self, judgement: Judgement) -> str:
        """Which answers are too few."""
        if judgement.rows < self.min_judged:
            answers = count_noun(judgement.rows, "graded answer")
            return f"{answers} new to both routers; {self.min_judged:,} are needed"
        return (
            f"of {judgement.rows:,} graded answers, {judgement.changed_draws} show what the new router "
            f"changes; {ENOUGH_CHANGED} are needed"
        )


def _signed(value: float) -> str:
    """A figure with its sign and four decimals; 0 has no minus sign."""
    return f"{round(value, 4) + 0.0:+.4f}"


def _is_cheaper(judgement: Judgement) -> bool:
    """Whether dollars are surely less, and the error is surely not worse, also in the worst case."""
    gaps = judgement.worst_case
    return "dollars" in gaps and gaps["dollars"].high < 0 and gaps["error"].high < NOT_WORSE


def _leave_out(
    logged: LoggedOutcomes, rows: BoolArray, reason: str, left_out: dict[str, int]
) -> LoggedOutcomes:
    if not rows.any():
        return logged
    left_out[reason] = int(rows.sum())
    return logged.take(~rows)


def _candidate(versions: Versions, serving: Router) -> TriedRouter | None:
    """The candidate in a folder; None without one that has the serving router's experts and features."""
    if versions.candidate is None:
        return None
    learned_until = versions[versions.candidate].learned_until
    router = load_candidate(versions.folder)
    if learned_until is None or router is None:
        return None
    if router.experts != serving.experts or n_features(router) != n_features(serving):
        return None
    return TriedRouter(router, learned_until, versions.candidate)


def _write(folder: Path, serving: Router, learned: Learned, n_answers: int) -> int | None:
    """Promote or keep a router; its version, None if it need not be kept."""
    if not (learned.promotes or learned.differs):
        return None
    why = f"learned from {count_noun(n_answers, 'answer')}: {learned.reason}"
    facts = {"judgement": learned.judgement.as_dict()}
    expected = fingerprint_of(serving)
    if learned.version is not None:
        serve_version(
            folder, learned.version, why, expected=expected, reason=learned.reason, facts=facts
        )
        return learned.version
    return write_version(
        folder,
        learned.router,
        why=why,
        serve=learned.promotes,
        expected=expected,
        reason=learned.reason,
        learned_until=learned.learned_until,
        facts=facts,
    )
