"""Tuning for a target, such as 95 % of the best expert's quality for the fewest dollars.

Settings (ways to decide) are fitted, and judged on held-out rows; the target chooses one of them, or a
mix of two, as the operating point; the router is set to this point, and a verdict says what to expect.
"""

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
    point_figures,
    policy_at,
    target_info,
)
from mild.core.arrays import BoolArray, FloatArray
from mild.data.splits import folds as group_folds
from mild.metrics import Verdict, judge_cost
from mild.metrics.operating_points import (
    ALONE,
    CASCADE,
    ROUTER,
    Frontier,
    OperatingPoint,
    prediction_interval,
)
from mild.metrics.results import Results
from mild.metrics.target_verdict import LIMITED_FIGURES, TargetVerdict
from mild.policies import TradeoffPolicy
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import HeadEstimates
from mild.routers.novelty import fit_novelty
from mild.tuning.baselines import Coin, cheapest_single, coin_for, level_experts, share_rows
from mild.tuning.cascades import cascade_hint, cascade_summary, no_cascade
from mild.tuning.fitting import (
    NOVELTY_FOLDS,
    Fitted,
    changed_shares,
    feature_inputs,
    make_saved_router,
    table_features,
)
from mild.tuning.guarantees import (
    CalibrationRows,
    CertifiedPoint,
    HoldLimit,
)
from mild.tuning.held_out import HeldOut, calibration_frontier, cross_fit
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


def tune_for_target(request: TuneRequest) -> TuneResult:
    """Return the router that meets a target, such as 95 % of the best expert's quality, most cheaply.

    A setting is one way to decide: a trade-off between error and dollars, a cascade, a router, or always
    the same expert. Settings are fitted and judged by cross-validation, and the target chooses an
    operating point among them: one setting, or a mix of two. With a guarantee, half of the rows are kept
    apart and certify the loss of quality of the chosen point.
    """
    task = request.task
    calibration_task = None
    if request.target.guarantee is not None:
        task, calibration_task = _calibration_split(request)
    text_features = request.text_features(task)
    # Only a table of numbers has none; it has no scores either, so that a target was refused.
    assert text_features is not None
    text_features.fit(feature_inputs(task.table, text_features))
    features = table_features(task.table, text_features)
    rows = tuning_rows(
        task, features, text_features, request.folds(task), request.n_jobs, request.stage(1)
    )
    heads = fit_price_heads(rows)
    request.stage(0)(1, 1, "trade-offs")
    # The queries of a mix are divided by a hash of their text, which vectors do not have.
    can_mix = text_features.kind != "vectors"
    held_out = cross_fit(_kinds(request, heads), rows, can_mix)
    tuned = tuned_policy(rows, heads, held_out)
    if calibration_task is None:
        point = request.target.choose(held_out.frontier).point
        fit = TargetFit(request, rows, held_out, tuned, point)
    else:
        calibration_features = table_features(calibration_task.table, text_features)
        calibration = CalibrationRows(calibration_task, calibration_features)
        limit = HoldLimit(request.target, calibration, tuned, request.random_state)
        certified = limit.certified(held_out)
        fit = TargetFit(request, rows, held_out, tuned, certified.point, limit, certified)
    verdict = fit.verdict()
    router = fit.router(text_features, verdict)
    changed = changed_shares(router, held_out.asked_shares(fit.point))
    if changed is not None:
        request.notes.append(changed)
    return fit.result(router, verdict, text_features.kind)


def tuned_policy(rows: TuningRows, heads: HeadEstimates, held_out: HeldOut) -> TradeoffPolicy:
    """Return the policy that can later be set to each of the settings; now it decides by the heads."""
    head_policy = rows.unscaled(heads.router.policy_.with_ranks(rows.task.ranks))
    policies = held_out.policies
    cascades = policies.get(CASCADE, [])
    routers = policies.get(ROUTER, [])
    return TradeoffPolicy(head_policy, head_policy, cascades, routers)


def _kinds(request: TuneRequest, heads: HeadEstimates) -> list[SettingKind]:
    """Return the kinds of settings to choose from, besides single experts, which are always tried."""
    kinds: list[SettingKind] = [TradeOffs(heads)]
    if request.search.candidates:
        kinds.append(FurtherRouters(request.search.candidates))
    if request.max_calls:
        kinds.append(Cascades(request.max_calls))
    return kinds


def _calibration_split(request: TuneRequest) -> tuple[Task, Task]:
    """Divide a task into rows to fit on and rows for calibration.

    Equal queries, and the rows of a group, are on the same side.
    """
    task = request.task
    (split,) = task_splits(task, 1, CALIBRATION_SHARE, request.time, request.random_state)
    table = task.table
    if table.has_answers and table.kind_detected:
        # Scores of calibration rows must not tell how answers are compared.
        fitting_table = replace(table[split.train], answer_kind=None)
        table = replace(table, answer_kind=fitting_table.kind_of_answers())
    fitting = make_task(table[split.train], task.terms, task.group_column)
    calibration = make_task(table[split.test], task.terms, task.group_column)
    request.notes.append(
        f"{len(fitting.table):,} rows to fit on, {len(calibration.table):,} rows kept for calibration."
    )
    return fitting, calibration


@dataclass(frozen=True, eq=False)
class JudgedPoint:
    """An operating point, and what its two settings did on the rows that it is judged on.

    Attributes
    ----------
    task : the rows
    is_known : (n_samples,) mask of the rows in which score and price of every expert are known
    outcomes : (n_known, 2) what the two settings of the point did on the known rows
    frontier : what to expect of all settings on new rows
    point : what to expect of the point on new rows
    rows_in_words : "held-out rows" or "calibration rows"
    """

    task: Task
    is_known: BoolArray
    outcomes: Results
    frontier: Frontier
    point: OperatingPoint
    rows_in_words: str

    @property
    def costs(self) -> FloatArray:
        """Costs (n_known,) of the point, scaled to the mean cost that is expected on new rows.

        The costs on these rows are too low: cascades were fitted on them, and the point was chosen on
        them. A query is expected to cost more by as much as its quality is expected to be lower.
        """
        share = self.point.share
        scores = self.outcomes.scores
        assert scores is not None
        weights = group_weights(self.task.groups[self.is_known])
        mixed_scores = (1 - share) * scores[:, 0] + share * scores[:, 1]
        costs: FloatArray = (1 - share) * self.outcomes.costs[:, 0]
        costs = costs + share * self.outcomes.costs[:, 1]
        quality = float(weights @ mixed_scores)
        mean_cost = float(weights @ costs)
        expected_cost = max(mean_cost + quality - self.point.quality, 0.0)
        if mean_cost > 0:
            return costs * (expected_cost / mean_cost)
        return costs + expected_cost

    def dollars_over(self, expert: int) -> float:
        """Return the expected dollars of a query minus those of always asking an expert."""
        prices = self.task.table.prices
        assert prices is not None
        weights = group_weights(self.task.groups[self.is_known])
        return self.point.dollars / 1000 - float(weights @ prices[self.is_known, expert])


@dataclass(frozen=True, eq=False)
class TargetFit:
    """The operating point that was chosen, and what it was chosen from.

    Attributes
    ----------
    request : what ``mild.tune`` was asked for
    rows : the rows that the settings were fitted on
    held_out : what each setting did on rows that it was not fitted on
    tuned : the policy that can be set to each of the settings
    point : the operating point that was chosen
    limit, certified : with a guarantee, its test and what it certified; otherwise None
    """

    request: TuneRequest
    rows: TuningRows
    held_out: HeldOut
    tuned: TradeoffPolicy
    point: OperatingPoint
    limit: HoldLimit | None = None
    certified: CertifiedPoint | None = None

    @property
    def target(self) -> Target:
        """The limits of quality and dollars that were asked for."""
        return self.request.target

    @property
    def frontier(self) -> Frontier:
        """What to expect of the settings, and of mixes of them, on new queries."""
        return self.held_out.frontier

    @property
    def expert_names(self) -> list[str]:
        """Names of the experts, in the order of the columns."""
        return self.rows.task.table.experts

    @property
    def choice(self) -> Choice:
        """The point, with whether and how surely it meets the target."""
        if self.certified is not None:
            is_certified = self.certified.is_certified
            return Choice(self.point, is_certified, is_certified, {})
        return self.target.choose(self.frontier)

    def info(self) -> TargetInfo:
        """Return what a saved router records about its target: limits, setting, sentence, ..."""
        info = target_info(self.target, self.frontier, self.choice, self.expert_names)
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

    def router(self, text_features: Any, verdict: Verdict) -> Router:
        """Return the router that is set to the point, with what a saved router records about itself."""
        task = self.request.task
        policy = policy_at(self.tuned, self.frontier, self.point, self.target)
        estimator = EstimatorInfo("PricedRouter", {})
        source = Router(policy, self.expert_names, info=RouterInfo(estimator=estimator))
        features = self.rows.X
        if self.certified is not None or self.rows.scaling is not None:
            features = table_features(task.table, text_features)
        fitted = Fitted(source, text_features, features, self._novelty(text_features))
        notes = {
            "frontier": self.frontier.as_dict(self.expert_names),
            "price_head": "dollars",
            "verdict": verdict.as_dict(),
            "target": self.info().as_dict(),
        }
        router = make_saved_router(fitted, task, notes)
        if self.point.uses_cascade:
            # The usual shares would be those of the router without answers.
            return replace(router, info=replace(router.info, shares=None))
        return router

    def _novelty(self, text_features: Any) -> Any:
        """Fit how unusual a new query is by its distance to training queries; None with one group only."""
        task = self.rows.task
        n_groups = len(np.unique(task.groups))
        if n_groups < 2:
            return None
        held_out = group_folds(task.groups, min(NOVELTY_FOLDS, n_groups))[0]
        features = self.rows.X
        if self.rows.scaling is not None:
            features = table_features(task.table, text_features)
        texts = feature_inputs(task.table, text_features)
        return fit_novelty(text_features, texts, features, held_out, separate_means(task))

    @cached_property
    def judged(self) -> JudgedPoint:
        """The point on the rows of the verdict: held-out rows, or with a guarantee calibration rows."""
        settings = [self.point.first, self.point.second]
        if self.limit is None:
            return JudgedPoint(
                self.rows.task,
                self.held_out.is_known,
                self.held_out.outcomes_at(settings),
                self.frontier,
                self.point,
                "held-out rows",
            )
        task = self.limit.calibration.task
        is_known = all_known(task)
        outcomes = self.limit.calibration.outcomes(self.tuned, settings).take(is_known)
        experts = task.outcomes.take(is_known)
        frontier = calibration_frontier(
            outcomes, experts, task.groups[is_known], self.point, self.frontier.best_expert
        )
        point = frontier.point(len(frontier) - 1)
        return JudgedPoint(task, is_known, outcomes, frontier, point, "calibration rows")

    def verdict(self) -> Verdict:
        """Compare the cost of the point with the best single expert's, and judge it by its target."""
        judged_point = self.judged
        verdict = self._verdict_on_cost(judged_point)
        return replace(
            verdict,
            target=self._target_verdict(judged_point),
            left_out=_left_out(judged_point.task),
        )

    def _verdict_on_cost(self, judged_point: JudgedPoint) -> Verdict:
        """Compare the mean cost of the point with the best single expert's, on the known rows."""
        names = self.expert_names
        task = judged_point.task
        is_known = judged_point.is_known
        constant = task.outcomes.take(is_known).best_constant()
        # The point takes the place of an expert: column 0 is always chosen, and compared with column 1.
        point_and_constant = np.column_stack([judged_point.costs, task.costs[is_known, constant]])
        verdict = judge_cost(
            point_and_constant,
            np.zeros(int(is_known.sum()), np.intp),
            1,
            ["the router", names[constant]],
            groups=task.groups[is_known],
            unit=task.unit,
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
        """Return the figures that a target limits, with intervals for as many new queries."""
        frontier = judged_point.frontier
        point = judged_point.point
        confidence = self.request.search.confidence
        reference = frontier.best_expert
        share = float(self.held_out.asked_shares(self.point)[reference])
        # Of the difference between two samples of n queries, each with the variance p (1 - p) / n.
        share_error = float(np.sqrt(2 * share * (1 - share) / frontier.n_queries))
        is_certified = None
        if self.certified is not None:
            is_certified = self.certified.is_certified
        return TargetVerdict(
            limits={
                name: value
                for name, value in self.target.limits_by_name.items()
                if name in LIMITED_FIGURES
            },
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

    def result(self, router: Router, verdict: Verdict, features_kind: str) -> TuneResult:
        """Return the result of ``mild.tune``, from the router, its verdict and the kind of its features."""
        coin = None
        if self.point.expert is None and self.certified is None:
            coin = coin_for(self.held_out, self.point)
        return TuneResult(
            router=router,
            verdict=verdict,
            family=_family(self.point),
            params={"setting": self.point.words(self.expert_names)},
            rows=tuple(self._candidate_rows()),
            choice="target",
            routes_as_constant=self.point.expert is not None,
            target=self.info(),
            certainty_rows=tuple(self._certainty_rows()),
            shares=tuple(share_rows(self.held_out, self.point, self.judged.point.dollars)),
            baselines=tuple(self._baselines(coin)),
            coin=coin,
            level=level_experts(self.held_out),
            cascade=self._cascade_facts(router),
            answers_unused=self._cascade_hint(),
            cost=self.request.task.cost,
            text=features_kind,
            n_folds=len(self.rows.folds),
            notes=tuple(self.request.notes),
            library=self.request.task.table.library,
        )

    def _cascade_facts(self, router: Router) -> dict[str, Any] | None:
        """Return facts and sentences about the cascade of the router, or why it has none.

        None if no cascades were tried.
        """
        if self.point.uses_cascade:
            return cascade_summary(router, self.rows.task, self.held_out, self.point)
        if self.request.max_calls:
            return no_cascade("none meets the target for fewer dollars")
        return None

    def _cascade_hint(self) -> dict[str, Any] | None:
        """Return what a cascade would save, as a hint; None if cascades were tried.

        There is no hint with a limit of dollars, which the cascade of the hint may exceed.
        """
        has_cascade = self.point.uses_cascade or self.request.max_calls > 0
        if has_cascade or self.target.max_dollars is not None:
            return None
        return cascade_hint(self.rows.task, self.request.random_state, self._least_share)

    @property
    def _least_share(self) -> float:
        """Share of the best expert's quality that the target asks for; 1 if it limits dollars only."""
        reference_quality = self.frontier.reference.quality
        if not self.target.is_about_quality or reference_quality <= 0:
            return 1.0
        least_quality, _ = self.target.limits(reference_quality)
        return least_quality / reference_quality

    def _certainty_rows(self) -> list[dict[str, Any]]:
        """Return a row for each of several probabilities of meeting the target, and for a guarantee."""
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
        """Return setting, quality and dollars of a point, JSON-ready."""
        return point_figures(self.frontier, point, self.expert_names)

    def _candidate_rows(self) -> list[dict[str, Any]]:
        """Return a row for each setting of the frontier, and one for the point that was chosen."""
        rows = []
        for index in range(len(self.frontier)):
            point = self.frontier.point(index)
            is_setting = point.share in (0.0, 1.0)  # otherwise it is a mix of two
            # A single expert that is the end of a path also has a point of its own.
            is_repeated = point.expert is not None and self.frontier.path[index] != ALONE
            if is_setting and not is_repeated and point != self.point:
                rows.append({**self._figures(point), "taken": False})
        rows.append({**self._figures(self.point), "taken": True})
        return rows

    def _baselines(self, coin: Coin | None) -> list[dict[str, Any]]:
        """Return a row for the router and each of its baselines, with quality and dollars."""
        frontier, point = self.judged.frontier, self.judged.point
        rows = []
        for choice, shown in (("router", point), ("named", frontier.reference)):
            rows.append({"choice": choice, **point_figures(frontier, shown, self.expert_names)})
        if self.certified is not None:
            # On the rows of a guarantee, nothing else is judged.
            return rows
        if self.target.is_about_quality:
            single = cheapest_single(self.target, self.held_out)
            if single is not None:
                rows.append({"choice": "single", **self._figures(single)})
        if coin is not None and coin.saved is not None:
            rows.append(self._coin_figures(coin))
        return rows

    def _coin_figures(self, coin: Coin) -> dict[str, Any]:
        """Return setting, quality and dollars of the coin, as of a point."""
        reference = self.frontier.reference
        kept = saved = None
        if reference.quality > 0:
            kept = coin.quality / reference.quality
        if reference.dollars > 0:
            saved = 1 - coin.dollars_per_1000 / reference.dollars
        return {
            "choice": "coin",
            "setting": coin.setting,
            "quality": coin.quality,
            "quality_kept": kept,
            "dollars_per_1000": coin.dollars_per_1000,
            "dollars_saved": saved,
        }


def separate_means(task: Task) -> FloatArray:
    """Return the mean error and the mean price of each expert, (2, n_experts)."""
    table = task.table
    assert table.prices is not None
    is_priced = ~np.isnan(table.prices).all(axis=1)
    return np.stack([mean_costs(1 - table.scores), mean_costs(table.prices[is_priced])])


def with_separate_means(novelty: Novelty | None, task: Task) -> Novelty | None:
    """Return a router's novelty, with mean errors and mean prices in place of mean costs.

    A router with separate heads for error and price decides queries that are unlike all training queries
    by these means.
    """
    if novelty is None:
        return None
    return replace(novelty, means=separate_means(task).astype(novelty.means.dtype))


def all_known(task: Task) -> BoolArray:
    """Return a mask (n_samples,) of the rows in which score and price of every expert are known."""
    table = task.table
    assert table.prices is not None
    unknown = np.isnan(table.scores) | np.isnan(table.prices)
    is_known: BoolArray = ~np.any(unknown, axis=1)
    return is_known


def _left_out(task: Task) -> str | None:
    """Return a sentence about the rows that a verdict leaves out; None if there are none."""
    n_left = int((~all_known(task)).sum())
    if not n_left:
        return None
    n_rows = len(task.table)
    return f"{n_left:,} of {n_rows:,} rows are left out because not every score and price is known."


def _family(point: OperatingPoint) -> str:
    """Return the kind of router that a point is: "constant", "mix" or the kind of its setting."""
    if point.expert is not None:
        return "constant"
    if point.is_mix:
        return "mix"
    return point.only.kind


def _certificate_words(fit: TargetFit) -> str:
    """Return sentences on what the guarantee certifies, and how many rows would certify more."""
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
