"""Tuning for a target: settings -> held-out outcomes -> objective -> router and verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.info import EstimatorInfo, RouterInfo, TargetInfo
from mild.artifact.novelty import Novelty
from mild.artifact.targets import (
    Choice,
    Target,
    certainty_rows,
    figures_in_words,
    point_figures,
    policy_at,
    target_info,
)
from mild.core.arrays import BoolArray, FloatArray
from mild.core.rounding import tie_ranks
from mild.data.splits import folds as group_folds
from mild.metrics import Verdict, verdict_of_choices
from mild.metrics.operating_points import (
    ALONE,
    CASCADE,
    ROUTER,
    Frontier,
    OperatingPoint,
    prediction_interval,
)
from mild.metrics.outcomes import Outcomes
from mild.metrics.target_verdict import ASKED, TargetVerdict
from mild.policies import TradeoffPolicy
from mild.routers.baselines import mean_costs
from mild.routers.calibration import fit_novelty
from mild.routers.cost_models import HeadEstimates
from mild.tuning.cascades import cascade_summary, no_cascade, unused_answers
from mild.tuning.fitting import (
    NOVELTY_FOLDS,
    Fitted,
    changed_shares,
    contents,
    router_of,
    table_features,
)
from mild.tuning.held_out import HeldOut, calibration_frontier, cross_fit
from mild.tuning.objectives import (
    CalibrationRows,
    CertifiedPoint,
    HoldLimit,
    MeetTarget,
    Objective,
)
from mild.tuning.request import TuneRequest
from mild.tuning.result import TuneResult
from mild.tuning.rows import TuningRows, tuning_rows
from mild.tuning.settings import (
    Cascades,
    FurtherRouters,
    SettingKind,
    TradeOffs,
    fit_price_heads,
    group_weights,
)
from mild.tuning.tasks import Task, make_task, task_splits

#: Share of the rows that a guarantee keeps for calibration.
CALIBRATION_SHARE = 0.5
# A single expert is near the target if it meets it with this probability.
NEAR_PROBABILITY = 0.2


def tune_for_target(request: TuneRequest) -> TuneResult:
    """The router at the operating point that an objective chooses, and the verdict on it."""
    task = request.task
    calibration_task = None
    if request.target.guarantee is not None:
        task, calibration_task = _calibration_split(request)
    step = request.text_step(task)
    assert step is not None
    step.fit(contents(task.table, step))
    features = table_features(task.table, step)
    rows = tuning_rows(task, features, step, request.folds(task), request.n_jobs, request.stage(1))
    heads = fit_price_heads(rows)
    request.stage(0)(1, 1, "trade-offs")
    can_mix = step.kind != "vectors"
    held_out = cross_fit(_kinds(request, heads), rows, can_mix)
    tuned = tuned_policy(rows, heads, held_out)
    limit = None
    certified = None
    if calibration_task is None:
        point = _objective(request).choose(held_out)
    else:
        X = table_features(calibration_task.table, step)
        calibration = CalibrationRows(calibration_task, X)
        limit = HoldLimit(request.target, calibration, tuned, request.random_state)
        certified = limit.certified(held_out)
        point = certified.point
    fit = TargetFit(request, rows, held_out, tuned, point, limit, certified)
    verdict = fit.verdict()
    router = fit.router(step, verdict)
    changed = changed_shares(router, held_out.asked_shares(point))
    if changed is not None:
        request.notes.append(changed)
    return fit.result(router, verdict, step.kind)


def tuned_policy(rows: TuningRows, heads: HeadEstimates, held_out: HeldOut) -> TradeoffPolicy:
    """The policy that can be set to every setting; it decides by the heads alone."""
    ranks = rows.task.ranks
    of_heads = rows.unscaled(heads.router.policy_.with_ranks(ranks))
    policies = held_out.policies
    return TradeoffPolicy(of_heads, of_heads, policies.get(CASCADE, []), policies.get(ROUTER, []))


def _kinds(request: TuneRequest, heads: HeadEstimates) -> list[SettingKind]:
    """The kinds of settings to choose from, beside single experts."""
    kinds: list[SettingKind] = [TradeOffs(heads)]
    if request.search.candidates:
        kinds.append(FurtherRouters(request.search.candidates))
    if request.max_calls:
        kinds.append(Cascades(request.max_calls))
    return kinds


def _objective(request: TuneRequest) -> Objective:
    """The objective of the search, or by default that of the target."""
    objective = request.search.objective
    if objective is not None:
        chosen: Objective = objective
        return chosen
    return MeetTarget(request.target)


def _calibration_split(request: TuneRequest) -> tuple[Task, Task]:
    """The rows to fit on and the calibration rows of a task, queries and groups whole."""
    task = request.task
    (split,) = task_splits(task, 1, CALIBRATION_SHARE, request.time, request.random_state)
    table = task.table
    if table.has_answers and table.kind_detected:
        # Scores of calibration rows must not tell how answers are compared.
        fitting_table = replace(table.take(split.train), answer_kind=None)
        table = replace(table, answer_kind=fitting_table.kind_of_answers())
    fitting = make_task(table.take(split.train), task.terms, task.group_column)
    calibration = make_task(table.take(split.test), task.terms, task.group_column)
    request.notes.append(
        f"{fitting.table.rows:,} rows to fit on, {calibration.table.rows:,} rows kept for calibration."
    )
    return fitting, calibration


@dataclass(frozen=True, eq=False)
class JudgedPoint:
    """An operating point, and what its two settings did on the rows that it is judged on.

    Attributes
    ----------
    task : the rows
    known : mask of those in which everything is known
    outcomes : what the two settings did on the known rows
    frontier, point : what to expect of the settings, and of the point, on new rows
    rows_in_words : what kind of rows they are
    """

    task: Task
    known: BoolArray
    outcomes: Outcomes
    frontier: Frontier
    point: OperatingPoint
    rows_in_words: str

    @property
    def costs(self) -> FloatArray:
        """Costs (n_known,) of the point, with the mean that is expected on new rows.

        Cascades were fitted on the rows themselves, and the point was chosen on them.
        """
        share = self.point.share
        scores = self.outcomes.scores
        assert scores is not None
        weights = group_weights(self.task.groups[self.known])
        quality = float(weights @ ((1 - share) * scores[:, 0] + share * scores[:, 1]))
        costs: FloatArray = (1 - share) * self.outcomes.costs[:, 0] + share * self.outcomes.costs[
            :, 1
        ]
        mean_cost = float(weights @ costs)
        expected_cost = max(mean_cost + quality - self.point.quality, 0.0)
        if mean_cost > 0:
            return costs * (expected_cost / mean_cost)
        return costs + expected_cost

    def dollars_over(self, expert: int) -> float:
        """By how much a query is expected to cost more than with always one expert."""
        prices = self.task.table.prices
        assert prices is not None
        weights = group_weights(self.task.groups[self.known])
        return self.point.dollars / 1000 - float(weights @ prices[self.known, expert])


@dataclass(frozen=True, eq=False)
class TargetFit:
    """The operating point that was chosen, and what it was chosen from."""

    request: TuneRequest
    rows: TuningRows
    held_out: HeldOut
    tuned: TradeoffPolicy
    point: OperatingPoint
    limit: HoldLimit | None
    certified: CertifiedPoint | None

    @property
    def target(self) -> Target:
        """What was asked for."""
        return self.request.target

    @property
    def frontier(self) -> Frontier:
        """What can be expected of the settings."""
        return self.held_out.frontier

    @property
    def expert_names(self) -> list[str]:
        """The experts."""
        return self.rows.task.table.expert_names

    @property
    def choice(self) -> Choice:
        """The point as a choice for the target."""
        if self.certified is not None:
            is_certified = self.certified.is_certified
            return Choice(self.point, is_certified, is_certified, {})
        if self.request.search.objective is None:
            return self.target.choose(self.frontier)
        return self.target.choice_of(self.frontier, self.point)

    def info(self) -> TargetInfo:
        """What is recorded about the target."""
        info = target_info(self.target, self.frontier, self.choice, self.expert_names)
        if not self.target.wanted:
            objective = type(self.request.search.objective).__name__
            figures = figures_in_words(self.point)
            sentence = f"{objective} takes {info.setting}, with {figures}."
            return replace(info, sentence=sentence, probability=None, likely=None, margins=None)
        if self.certified is None:
            return info
        sentence = f"Target {self.target.words}: {info.setting}. {_certificate_words(self)}"
        return replace(
            info,
            certified=self.certified.is_certified,
            sentence=sentence,
            probability=None,
            likely=None,
            margins=None,
        )

    def router(self, step: Any, verdict: Verdict) -> Router:
        """The router at the point, with what is recorded about it."""
        task = self.request.task
        policy = policy_at(self.tuned, self.frontier, self.point, self.target)
        estimator = EstimatorInfo("PricedRouter", {})
        source = Router(policy, self.expert_names, info=RouterInfo(estimator=estimator))
        features = self.rows.X
        if self.certified is not None or self.rows.scaling is not None:
            features = table_features(task.table, step)
        fitted = Fitted(source, step, features, None, self._novelty(step))
        notes = {
            "frontier": self.frontier.as_dict(self.expert_names),
            "price_head": "dollars",
            "verdict": verdict.as_dict(),
        }
        if self.target.wanted:
            notes["target"] = self.info().as_dict()
        router = router_of(fitted, task, notes)
        if self.point.uses_cascade:
            # The usual shares would be those of the router without answers.
            return replace(router, info=replace(router.info, shares=None))
        return router

    def _novelty(self, step: Any) -> Any:
        """Distances to the training queries; None where there are too few."""
        task = self.rows.task
        n_groups = len(np.unique(task.groups))
        if n_groups < 2:
            return None
        held_out = group_folds(task.groups, min(NOVELTY_FOLDS, n_groups))[0]
        features = self.rows.X
        if self.rows.scaling is not None:
            features = table_features(task.table, step)
        texts = contents(task.table, step)
        return fit_novelty(step, texts, features, held_out, separate_means(task))

    @cached_property
    def judged(self) -> JudgedPoint:
        """What the verdict is about: the point on held-out rows, with a guarantee on calibration rows."""
        settings = [self.point.first, self.point.second]
        if self.limit is None:
            return JudgedPoint(
                self.rows.task,
                self.held_out.known,
                self.held_out.outcomes_at(settings),
                self.frontier,
                self.point,
                "held-out rows",
            )
        task = self.limit.calibration.task
        known = all_known(task)
        outcomes = self.limit.calibration.outcomes(self.tuned, settings).take(known)
        experts = task.outcomes.take(known)
        frontier = calibration_frontier(
            outcomes, experts, task.groups[known], self.point, self.frontier.best_expert
        )
        point = frontier.point(len(frontier) - 1)
        return JudgedPoint(task, known, outcomes, frontier, point, "calibration rows")

    def verdict(self) -> Verdict:
        """The verdict on the point: its cost against the best constant, and whether it meets the target."""
        judged_point = self.judged
        verdict = self._verdict_on_cost(judged_point)
        if self.target.wanted:
            verdict = replace(verdict, target=self._target_verdict(judged_point))
        return replace(verdict, left_out=_left_out(judged_point.task))

    def _verdict_on_cost(self, judged_point: JudgedPoint) -> Verdict:
        """The mean cost of the point against that of the best constant, on the known rows."""
        names = self.expert_names
        task = judged_point.task
        known = judged_point.known
        constant = task.outcomes.take(known).best_constant()
        verdict = verdict_of_choices(
            np.column_stack([judged_point.costs, task.costs[known, constant]]),
            np.zeros(int(known.sum()), np.intp),
            1,
            ["the router", names[constant]],
            groups=task.groups[known],
            counted=task.counted,
            confidence=self.request.search.confidence,
            random_state=self.request.random_state,
            dollars=judged_point.dollars_over(constant),
        )
        router = "the router"
        if self.point.uses_cascade:
            router = "the cascade"
        return replace(
            verdict,
            router=router,
            constant_expert=constant,
            identical=self.point.expert == constant,
        )

    def _target_verdict(self, judged_point: JudgedPoint) -> TargetVerdict:
        """What the point does of the target, with intervals for as many new queries."""
        frontier = judged_point.frontier
        point = judged_point.point
        confidence = self.request.search.confidence
        reference = frontier.best_expert
        share = float(self.held_out.asked_shares(self.point)[reference])
        share_error = float(np.sqrt(2 * share * (1 - share) / frontier.n_queries))
        is_certified = None
        if self.certified is not None:
            is_certified = self.certified.is_certified
        return TargetVerdict(
            asked={name: value for name, value in self.target.wanted.items() if name in ASKED},
            reference=self.expert_names[reference],
            quality_kept=frontier.quality_kept(point, confidence),
            quality_loss=frontier.quality_loss(point, confidence),
            reference_share=prediction_interval(share, share_error, frontier.n_queries, confidence),
            dollars_saved=frontier.dollars_saved(point, confidence),
            dollars_per_1000=frontier.dollars_per_1000(point, confidence),
            quality=point.quality,
            reference_quality=frontier.reference.quality,
            reference_dollars_per_1000=frontier.reference.dollars,
            guarantee=self.target.guarantee,
            certified=is_certified,
            judged_on=judged_point.rows_in_words,
        )

    def result(self, router: Router, verdict: Verdict, text: str) -> TuneResult:
        """What ``tune`` returns."""
        request = self.request
        names = self.expert_names
        cascade = None
        unused = None
        if self.point.uses_cascade:
            cascade = cascade_summary(router, self.rows.task, self.held_out, self.point)
        elif request.max_calls:
            cascade = no_cascade("none meets the target for fewer dollars")
        elif self.target.max_dollars is None:
            # What the hint names keeps the quality that was asked for, for any dollars.
            unused = unused_answers(self.rows.task, request.random_state, self._least_share)
        constant = self.point.expert
        return TuneResult(
            router=router,
            verdict=verdict,
            family=_family(self.point),
            params={"setting": self.point.words(names)},
            rows=tuple(self._candidate_rows()),
            choice=self._why_taken,
            routes_as_constant=constant is not None,
            target=self.info(),
            certainty_rows=tuple(self._certainty_rows()),
            single_expert=self._single_expert(),
            cascade=cascade,
            answers_unused=unused,
            cost=request.task.cost,
            text=text,
            n_folds=len(self.rows.folds),
            interrupted=self.held_out.interrupted,
            notes=tuple(request.notes),
            library=request.task.table.library,
        )

    @property
    def _least_share(self) -> float:
        """Share of the best expert's quality that is asked for; all of it by a target of dollars only."""
        reference_quality = self.frontier.reference.quality
        if not self.target.is_about_quality or reference_quality <= 0:
            return 1.0
        least_quality, _ = self.target.limits(reference_quality)
        return least_quality / reference_quality

    @property
    def _why_taken(self) -> str:
        """Why the point was taken."""
        if self.target.wanted:
            return "target"
        return "objective"

    def _certainty_rows(self) -> list[dict[str, Any]]:
        """The setting for several probabilities of meeting the target, and for a guarantee."""
        if not self.target.wanted:
            return []
        rows = certainty_rows(self.target, self.frontier, self.expert_names)
        if self.certified is not None:
            rows.append(
                {
                    "certainty": f"guarantee {self.target.guarantee:g}",
                    **point_figures(self.judged.frontier, self.judged.point, self.expert_names),
                    "met": self.certified.is_certified,
                }
            )
        return rows

    def _figures(self, point: OperatingPoint) -> dict[str, Any]:
        """Setting, quality and dollars of a point."""
        return point_figures(self.frontier, point, self.expert_names)

    def _candidate_rows(self) -> list[dict[str, Any]]:
        """Every setting of the frontier, and the point that was taken."""
        rows = []
        for index in range(len(self.frontier)):
            point = self.frontier.point(index)
            is_end = point.share in (0.0, 1.0)
            is_repeated = point.expert is not None and self.frontier.path[index] != ALONE
            if is_end and not is_repeated and point != self.point:
                rows.append({**self._figures(point), "taken": False})
        rows.append({**self._figures(self.point), "taken": True})
        return rows

    def _single_expert(self) -> str | None:
        """The cheapest single expert near the target, in a sentence; None if only the best one is."""
        if not self.target.is_about_quality:
            return None
        frontier = self.frontier
        near = []
        for expert in range(len(self.expert_names)):
            point = frontier.alone(expert)
            if self.target.probability_of(frontier, point) >= NEAR_PROBABILITY:
                near.append(point)
        if not near:
            return None
        ranks = tie_ranks([point.dollars for point in near])
        cheapest = near[int(np.argmin(ranks))]
        if cheapest.expert in (frontier.best_expert, self.point.expert):
            return None
        figures = self._figures(cheapest)
        probability = self.target.probability_of(frontier, cheapest)
        words = f"Always {self.expert_names[cheapest.expert or 0]}"
        if figures["quality_kept"] is not None:
            words += f" keeps {100 * figures['quality_kept']:.1f} %"
        if figures["dollars_saved"] is not None:
            words += f", saves {100 * figures['dollars_saved']:.0f} %"
        return f"{words}, and meets the target with probability {100 * probability:.0f} %."


def separate_means(task: Task) -> FloatArray:
    """Mean errors and mean prices (2, n_experts) of the experts."""
    table = task.table
    assert table.prices is not None
    is_priced = ~np.isnan(table.prices).all(axis=1)
    return np.stack([mean_costs(1 - table.scores), mean_costs(table.prices[is_priced])])


def with_separate_means(novelty: Novelty | None, task: Task) -> Novelty | None:
    """The novelty of a router with what experts err and cost on average, apart."""
    if novelty is None:
        return None
    return replace(novelty, means=separate_means(task).astype(novelty.means.dtype))


def all_known(task: Task) -> BoolArray:
    """Mask (n_samples,) of the rows in which score and price of every expert are known."""
    table = task.table
    assert table.prices is not None
    unknown = np.isnan(table.scores) | np.isnan(table.prices)
    known: BoolArray = ~np.any(unknown, axis=1)
    return known


def _left_out(task: Task) -> str | None:
    """Rows that were left out because something is not known, in a sentence; None if there are none."""
    n_left = int((~all_known(task)).sum())
    if not n_left:
        return None
    n_rows = task.table.rows
    return f"{n_left:,} of {n_rows:,} rows are left out because not every score and price is known."


def _family(point: OperatingPoint) -> str:
    """The kind of router that a point is."""
    if point.expert is not None:
        return "constant"
    if point.is_mix:
        return "mix"
    return point.only.kind


def _certificate_words(fit: TargetFit) -> str:
    """What is certified, in a sentence."""
    certified = fit.certified
    assert certified is not None
    limit = f"with probability {fit.target.guarantee:g} over the calibration queries"
    needed = ""
    if certified.rows_needed is not None:
        next_point = "The limit"
        if certified.is_certified:
            next_point = "A cheaper setting"
        needed = f" {next_point} needs about {certified.rows_needed:,} calibration queries."
    if certified.is_certified:
        return f"The limit is certified {limit}.{needed}"
    best = fit.expert_names[fit.frontier.best_expert]
    return f"No setting can be certified to hold the limit {limit}: the router always asks {best}.{needed}"
