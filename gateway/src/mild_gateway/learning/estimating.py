"""What another router would have cost on logged traffic: estimates, and a verdict in a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mild.errors import InvalidInputError, count_noun, listed
from mild.evaluation import (
    LoggedAnswers,
    OffPolicyEstimate,
    doubly_robust,
    inverse_propensity,
    self_normalised,
)
from mild.metrics import Interval
from mild_gateway import decide
from mild_gateway.arrays import BoolArray, FloatArray, IntArray
from mild_gateway.decide import Router
from mild_gateway.learning.cost_model import expected_costs

#: Draws of experts that only the new router chooses, below which the log says too little about a change.
ENOUGH_CHANGED = 30
#: Why a row without text is left out.
WITHOUT_QUERY = "without a query"
# More features than WIDE are projected to NARROW for the cost model.
WIDE = 256
NARROW = 128
# Reason for which judged requests are left out.
SELF_SELECTED = "judged, but not picked at random (trust_feedback=True counts them)"
# Effective draws below which the intervals cannot be trusted.
ENOUGH = 100.0


class LoggedRow(NamedTuple):
    """A request that the router decided."""

    text: str  # what was routed
    chosen: str  # name of the expert that was drawn
    propensity: float
    episode: int  # number of the draw that the row belongs to, from 0 in the order of time
    decides: bool  # whether the expert was drawn for this row
    dollars: float
    failed: bool
    error: float  # NaN if the answer was not graded
    weight: float = 1.0  # for how many requests it stands; 0 if its grade is not used
    preferred: bool = True  # whether the router would choose the expert without exploration
    extra: tuple[Any, ...] = ()  # values of further columns that were requested


@dataclass(frozen=True, repr=False)
class ReplayVerdict:
    """The verdict on a new router against the serving one.

    ``reason`` is one word for it: "better", "worse", "same", "noise", "too_few", "unseen", "propensities"
    or "nothing". The figures are the mean cost of the new router minus that of the serving one, with its
    interval; NaN if the log has too few draws.
    """

    reason: str
    sentence: str
    estimate: float
    low: float
    high: float
    confidence: float
    rows: int
    draws: int

    @property
    def pays(self) -> bool | None:
        """Whether the new router is better; None if it is not clear."""
        return {"better": True, "worse": False}.get(self.reason)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; ``better`` is ``pays``, and figures that are not known are None."""
        document: dict[str, Any] = {"better": self.pays, **asdict(self)}
        if math.isnan(self.estimate):
            document.update(estimate=None, low=None, high=None)
        return document

    def __repr__(self) -> str:
        return self.sentence


def replay_draws(
    draws: Iterable[list[LoggedRow]],
    router: Router,
    *,
    left_out: Counter[str],
    graded: bool = False,
    price_weight: float | None = None,
    explore: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimate what a router that reads text would have cost on logged traffic, per request.

    Parameters
    ----------
    draws : blocks of rows, in the order of time
    router : the new router
    left_out : reason -> number of rows that are not among the draws; may grow while these are read
    graded : whether the cost is error + price_weight * dollars, over the rows whose error is known and
        whose weight is not 0 (of weight 0 are answers that were not picked at random to be graded);
        otherwise it is dollars
    price_weight : number of errors that a dollar is worth
    explore : exploration rate of both routers
    confidence : confidence level of the intervals
    seed : of the folds of the cost model, and of the random projection of wide features

    Returns
    -------
    dict
        ``verdict`` (a ``ReplayVerdict``), ``estimates`` by quantity and method, ``overlap``, ``shares`` and
        the other fields of ``mild_gateway.replay``, which reads the draws from a ledger.
    """
    if graded:
        check_price_weight(price_weight)
    if not 0 <= explore <= 1:
        raise InvalidInputError(parameter="explore", rule=f"must lie in [0, 1]; got {explore!r}.")
    if not 0 < confidence < 1:
        rule = f"must lie between 0 and 1; got {confidence!r}."
        raise InvalidInputError(parameter="confidence", rule=rule)
    rows = collect_rows(draws, router, seed)
    if not graded:
        cost = "dollars"
        quantities = {"cost": rows.dollars, "failures": rows.failed}
    else:
        rows = _trusted_rows(rows, left_out)
        cost = f"error + {price_weight or 0.0:.10g} * dollars"
        quantities = {
            "cost": rows.error + (price_weight or 0.0) * rows.dollars,
            "dollars": rows.dollars,
            "errors": rows.error,
            "failures": rows.failed,
        }
    return replay_rows(
        rows,
        quantities,
        router,
        cost=cost,
        serving=rows.serving_weights(explore),
        left_out=left_out,
        explore=explore,
        confidence=confidence,
        seed=seed,
    )


def _trusted_rows(rows: Rows, left_out: Counter[str]) -> Rows:
    """Return the rows that were picked at random and judged; count the others in ``left_out``."""
    is_judged = ~np.isnan(rows.error)
    is_trusted = rows.weight > 0
    left_out["not judged"] += int((~is_judged).sum())
    left_out[SELF_SELECTED] += int((is_judged & ~is_trusted).sum())
    return rows.kept(is_judged & is_trusted)


def replay_rows(
    rows: Rows,
    quantities: Mapping[str, FloatArray],
    router: Router,
    *,
    cost: str,
    serving: FloatArray | None,
    left_out: Mapping[str, int],
    explore: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimate what a new router would have cost on logged rows, with a verdict on it.

    Parameters
    ----------
    rows : n logged rows of E draws, with what the new router would choose
    quantities : name -> values (n,) of a quantity whose mean is estimated; one of them is "cost"
    router : the new router
    cost : what the quantity "cost" is, such as "dollars"
    serving : (E,) probability of each draw under the serving router, without the exploration in the log,
        divided by its propensity; None to take the serving router as it was logged
    left_out : reason -> number of rows that are not used
    explore : exploration rate of the new router
    confidence : confidence level of the intervals
    seed : seed of the folds of the cost model

    Returns
    -------
    dict
        The fields that ``replay_draws`` returns.
    """
    new_probabilities = _new_probabilities(rows, router, explore)
    overlap = {
        **measure_overlap(rows.draws(), new_probabilities, router.experts),
        **rows.changes(),
        "unknown": [name for name in rows.draw_counts if name not in router.experts],
    }
    estimates: dict[str, dict[str, Any]] = {}
    cost_difference = None
    # An interval needs at least two draws.
    if overlap["draws"] >= 2:
        for name, values in quantities.items():
            estimates_by_method = _estimates(
                rows, values, new_probabilities, serving, confidence, seed
            )
            estimates[name] = _estimate_fields(estimates_by_method)
            if name == "cost":
                cost_difference = estimates_by_method["difference_to_serving"].interval
    reasons = {reason: count for reason, count in left_out.items() if count}
    n_rows = int(rows.episode.size)
    return {
        "verdict": _replay_verdict(overlap, cost_difference, cost, reasons, n_rows, confidence),
        "cost": cost,
        "confidence": confidence,
        "estimates": estimates,
        "overlap": overlap,
        "rows": n_rows,
        "draws": overlap["draws"],
        "left_out": reasons,
        "shares": _expert_shares(rows, router, new_probabilities),
        "explore": explore,
    }


def _new_probabilities(rows: Rows, router: Router, explore: float) -> FloatArray:
    """Return the probability (E, n_experts) with which the new router would draw each expert."""
    n_draws = rows.new_choice.size
    probabilities = np.full((n_draws, len(router.experts)), explore / len(router.experts))
    probabilities[np.arange(n_draws), rows.new_choice] += 1 - explore
    return probabilities


def _replay_verdict(
    overlap: Mapping[str, Any],
    cost_difference: Interval | None,
    cost: str,
    left_out: Mapping[str, int],
    n_rows: int,
    confidence: float,
) -> ReplayVerdict:
    """Return the verdict on the new router; ``cost_difference`` is to the serving one, None if unknown."""
    unit = ""
    if cost == "dollars":
        unit = "$"
    reason, sentence = judge(overlap, cost_difference, unit, left_out)
    if cost_difference is None:
        cost_difference = Interval(math.nan, math.nan, math.nan, math.nan, 0, confidence)
    return ReplayVerdict(
        reason,
        sentence,
        cost_difference.estimate,
        cost_difference.low,
        cost_difference.high,
        confidence,
        n_rows,
        overlap["draws"],
    )


def _expert_shares(rows: Rows, router: Router, target: FloatArray) -> dict[str, dict[str, float]]:
    """Return, by name, how often each expert was drawn, and how often the new router would draw it."""
    n_drawn = max(sum(rows.draw_counts.values()), 1)
    new_shares = dict.fromkeys(router.experts, 0.0)
    if len(target):
        means = target.mean(axis=0).tolist()
        new_shares = dict(zip(router.experts, means, strict=True))
    shares = {}
    for name in dict.fromkeys([*router.experts, *rows.draw_counts]):
        shares[name] = {
            "logged": rows.draw_counts.get(name, 0) / n_drawn,
            "new": new_shares.get(name, 0.0),
        }
    return shares


def check_price_weight(price_weight: float | None) -> float:
    """Refuse a weight of dollars that cannot be added to errors."""
    if price_weight is None or not 0 <= price_weight < np.inf:
        rule = (
            "must be the number of errors that a dollar is worth, 0 or more, because answers are "
            f"graded; got {price_weight}."
        )
        raise InvalidInputError(parameter="price_weight", rule=rule)
    return price_weight


def _estimate_fields(
    estimates: Mapping[str, OffPolicyEstimate],
) -> dict[str, dict[str, float]]:
    """Return each estimate with its interval, JSON-ready."""
    fields = {}
    for method, estimate in estimates.items():
        interval = estimate.interval
        fields[method] = {
            "mean": interval.estimate,
            "low": interval.low,
            "high": interval.high,
            "standard_error": interval.standard_error,
        }
    return fields


def _estimates(
    rows: Rows,
    costs: FloatArray,
    draw_target: FloatArray,
    draw_serving: FloatArray | None,
    confidence: float,
    seed: int,
) -> dict[str, OffPolicyEstimate]:
    """Estimate the mean cost of the new and of the serving router, by each method.

    Parameters
    ----------
    rows : n logged rows of E draws
    costs : (n,) what each row cost
    draw_target : (E, n_experts) probability with which the new router would draw each expert
    draw_serving : (E,) ``serving`` of ``replay_rows``; None to take the serving router as it was logged
    confidence : confidence level of the intervals
    seed : seed of the folds of the cost model

    Returns
    -------
    dict
        Estimates by method, and two differences of the doubly robust one.
    """
    answers = rows.answers()
    target = draw_target[rows.episode]
    serving: FloatArray = np.ones(len(costs))
    if draw_serving is not None:
        serving = draw_serving[rows.episode]
    n_experts = target.shape[1]
    expected = expected_costs(rows.features, answers.expert, costs, rows.episode, n_experts, seed)
    new_router = doubly_robust(answers, costs, target, expected, confidence)
    logged_policy = logged_mean(answers, costs, confidence)
    serving_policy = serving_router(answers, costs, target, expected, serving, confidence)
    return {
        "logged": logged_policy,
        "serving": serving_policy,
        "inverse_propensity": inverse_propensity(answers, costs, target, confidence),
        "self_normalised": self_normalised(answers, costs, target, confidence),
        "doubly_robust": new_router,
        "difference": new_router.minus(logged_policy),
        "difference_to_serving": new_router.minus(serving_policy),
    }


def logged_mean(
    answers: LoggedAnswers, costs: FloatArray, confidence: float = 0.95
) -> OffPolicyEstimate:
    """Estimate the mean cost of the logged policy, exploration included."""
    certain = _certain(answers, answers.share)
    return inverse_propensity(certain, costs, np.ones((len(costs), 1)), confidence)


def serving_router(
    answers: LoggedAnswers,
    costs: FloatArray,
    target: FloatArray,
    expected: FloatArray,
    serving: FloatArray,
    confidence: float = 0.95,
) -> OffPolicyEstimate:
    """Estimate the mean cost of the router that wrote the log, without its exploration.

    In the letters of ``mild.evaluation.off_policy``, with ``h_i = sum_k pi_i(k) Q_ik`` of the new router,

        sum_i (s_i h_i + w_i v_i (c_i - h_i)) / sum_i s_i

    ``serving`` (n,) are the ``v_i``: the probability of each answer without exploration, divided by its
    propensity, and 1 to take the router as it was logged. Their mean is 1 given the query, so that any
    ``h_i`` is allowed, and of equal routers the difference to ``doubly_robust`` is 0.
    """
    by_model = (target * expected).sum(axis=1)
    certain = _certain(answers, answers.weight * serving)
    return doubly_robust(certain, costs, np.ones((len(costs), 1)), by_model[:, None], confidence)


def _certain(answers: LoggedAnswers, weight: FloatArray) -> LoggedAnswers:
    """The answers with other weights, as if there were one expert, who is always asked."""
    n_answers = len(weight)
    return replace(
        answers,
        expert=np.zeros(n_answers, np.intp),
        propensity=np.ones(n_answers),
        weight=weight,
    )


@dataclass(frozen=True, eq=False)
class Rows:
    """n logged rows of E draws, or episodes, with what a new router would choose in each."""

    episode: IntArray  # (n,) index of the draw that the row belongs to
    chosen: IntArray  # (E,) expert that was drawn; -1 if the new router does not know it
    propensity: FloatArray
    preferred: BoolArray  # (E,) whether the serving router would draw it without exploration
    new_choice: IntArray  # (E,) what the new router would choose
    draw_counts: dict[str, int]  # how often each expert was drawn, by name
    features: FloatArray  # (n, d) float32 for the cost model
    dollars: FloatArray  # (n,)
    failed: FloatArray
    error: FloatArray  # NaN if the answer was not graded
    weight: FloatArray  # for how many requests it stands

    def kept(self, rows: BoolArray) -> Rows:
        """Some of the rows, and the draws that they belong to."""
        draws, episode = np.unique(self.episode[rows], return_inverse=True)
        return Rows(
            episode=episode,
            chosen=self.chosen[draws],
            propensity=self.propensity[draws],
            preferred=self.preferred[draws],
            new_choice=self.new_choice[draws],
            draw_counts=self.draw_counts,
            features=self.features[rows],
            dollars=self.dollars[rows],
            failed=self.failed[rows],
            error=self.error[rows],
            weight=self.weight[rows],
        )

    @classmethod
    def joined(cls, blocks: Sequence[Rows]) -> Rows:
        """The rows of one or more blocks, in their order."""
        draw_counts: Counter[str] = Counter()
        for block in blocks:
            draw_counts.update(block.draw_counts)

        def join(name: str) -> Any:
            return np.concatenate([getattr(block, name) for block in blocks])

        return cls(
            episode=join("episode"),
            chosen=join("chosen"),
            propensity=join("propensity"),
            preferred=join("preferred"),
            new_choice=join("new_choice"),
            draw_counts=dict(draw_counts),
            features=join("features"),
            dollars=join("dollars"),
            failed=join("failed"),
            error=join("error"),
            weight=join("weight"),
        )

    @classmethod
    def empty(cls) -> Rows:
        """A log without any row."""
        no_index = np.empty(0, np.intp)
        no_number = np.empty(0)
        return cls(
            episode=no_index,
            chosen=no_index,
            propensity=no_number,
            preferred=np.empty(0, bool),
            new_choice=no_index,
            draw_counts={},
            features=np.empty((0, 1), np.float32),
            dollars=no_number,
            failed=no_number,
            error=no_number,
            weight=no_number,
        )

    def answers(self) -> LoggedAnswers:
        """Return the rows as answers, each of a request of its own."""
        expert = self.chosen[self.episode]
        propensity = self.propensity[self.episode]
        return LoggedAnswers(expert, propensity, self.weight, self.weight, self.episode)

    def draws(self) -> LoggedAnswers:
        """Return the draws as answers, each with the mean weight of its rows."""
        n_draws = self.chosen.size
        n_rows = np.bincount(self.episode, minlength=n_draws)
        weight = np.bincount(self.episode, self.weight, minlength=n_draws) / n_rows
        return LoggedAnswers(self.chosen, self.propensity, weight, weight, np.arange(n_draws))

    def serving_weights(self, explore: float) -> FloatArray | None:
        """Return each draw's probability (E,) at another rate of exploration, divided by its propensity.

        With the exploration rate e of the log and m experts, the preferred expert was drawn with the
        probability ``1 - e + e / m``, and each other one with ``e / m``. With ``explore`` in place of e,
        these are the probabilities that are divided. None if the log has only preferred draws, or none
        of them, so that e is not known.
        """
        if not self.preferred.any() or self.preferred.all():
            return None
        missed = 1 - float(self.propensity[self.preferred].mean())
        other = float(self.propensity[~self.preferred].mean())
        # The two are e - e / m and e / m, so their sum is e.
        scale = explore / (missed + other)
        chance = np.where(self.preferred, 1 - scale * missed, scale * other)
        weights: FloatArray = chance / self.propensity
        return weights

    def changes(self) -> dict[str, Any]:
        """Return how often the new router would decide differently, and how many draws show the result.

        "changed" is a share of the draws of preferred experts, None without any. "changed_draws" counts
        the others in which the expert that was drawn is the one that the new router would choose.
        """
        same = self.chosen == self.new_choice
        is_changed = ~same[self.preferred]
        changed_share = None
        if is_changed.size:
            changed_share = float(is_changed.mean())
        return {
            "changed": changed_share,
            "changed_draws": int((same & ~self.preferred).sum()),
        }


def collect_rows(blocks: Iterable[list[LoggedRow]], router: Router, seed: int = 0) -> Rows:
    """Let the new router decide all rows, block by block, so that texts need not be kept."""
    projection = None
    width = decide.n_features(router)
    if width > WIDE:
        rng = np.random.default_rng(seed)
        projection = rng.standard_normal((width, NARROW)) / np.sqrt(NARROW)
        projection = projection.astype(np.float32)
    decided_blocks = [_decided_block(block, router, projection) for block in blocks]
    if not decided_blocks:
        return Rows.empty()
    return Rows.joined(decided_blocks)


def _decided_block(
    block: Sequence[LoggedRow], router: Router, projection: FloatArray | None
) -> Rows:
    """Let the new router decide the rows of a block; wide features are projected for the cost model."""
    X = decide.features_of(router, [row.text for row in block])
    model_features = X[:, : decide.n_features(router)]
    if projection is not None:
        model_features = model_features @ projection
    scores = decide.scores_of(router, X)
    features = np.column_stack([model_features, scores]).astype(np.float32)
    expert_index = {name: index for index, name in enumerate(router.experts)}
    draws = [row for row in block if row.decides]
    draw_counts = Counter(row.chosen for row in draws)
    return Rows(
        episode=_column(block, "episode", np.intp),
        chosen=np.array([expert_index.get(row.chosen, -1) for row in draws], np.intp),
        propensity=_column(draws, "propensity", float),
        preferred=_column(draws, "preferred", bool),
        new_choice=decide.decide(router, X).chosen[_column(block, "decides", bool)],
        draw_counts=dict(draw_counts),
        features=features,
        dollars=_column(block, "dollars", float),
        failed=_column(block, "failed", float),
        error=_column(block, "error", float),
        weight=_column(block, "weight", float),
    )


def _column(rows: Sequence[LoggedRow], name: str, dtype: Any) -> Any:
    """Return a field of the rows as an array (n,)."""
    return np.array([getattr(row, name) for row in rows], dtype)


def measure_overlap(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, Any]:
    """Measure how much a log says about a new policy.

    Draw i counts ``m_i`` times (``draws.weight``), and its weight under the new policy is

        ``w_i = m_i pi_i(a_i) / p_i``

    in the letters of the module's docstring. Divided by ``sum_i m_i``, the weights have the mean 1, within
    its standard error, if the logged propensities are right.

    Parameters
    ----------
    draws : LoggedAnswers
        One answer per episode.
    target : (n_draws, n_experts) array
        Probability with which the new policy would draw each expert.
    expert_names : sequence of str
        Names of the experts of the new policy.

    Returns
    -------
    dict
        JSON-ready: "agreement", the share of the draws that the new policy could have made;
        "effective", the effective sample size ``(sum_i w_i)^2 / sum_i w_i^2``; "largest_share" of one draw
        in the sum of the weights; "mean_weight" and its standard error "weight_error"; "unseen", the share
        of the queries that each expert would get which was never drawn; and the number of "draws".
    """
    weights = draws.weight * draws.ratios(target)
    if weights.size == 0:
        return {
            "draws": 0,
            "agreement": 0.0,
            "effective": 0.0,
            "largest_share": 0.0,
            "mean_weight": 0.0,
            "weight_error": 0.0,
            "unseen": {},
        }
    n_counted = float(draws.weight.sum())
    weight_sum = float(weights.sum())
    square_sum = float((weights**2).sum())
    effective = 0.0
    if square_sum:
        effective = weight_sum**2 / square_sum
    largest_share = 0.0
    if weight_sum:
        largest_share = float(weights.max()) / weight_sum
    weight_error = float("inf")
    if weights.size > 1:
        deviations = weights - draws.weight * weight_sum / max(n_counted, 1)
        weight_error = float(deviations.std(ddof=1) * np.sqrt(weights.size) / n_counted)
    return {
        "draws": weights.size,
        "agreement": float((weights > 0).mean()),
        "effective": effective,
        "largest_share": largest_share,
        "mean_weight": weight_sum / n_counted,
        "weight_error": weight_error,
        "unseen": _unseen_shares(draws, target, expert_names),
    }


def _unseen_shares(
    draws: LoggedAnswers, target: FloatArray, expert_names: Sequence[str]
) -> dict[str, float]:
    """Return, by name, the share of the queries that each expert would get which was never drawn."""
    drawn_experts = set(draws.expert.tolist())
    shares = (draws.weight @ target / float(draws.weight.sum())).tolist()
    unseen = {}
    for expert, share in enumerate(shares):
        if share > 0 and expert not in drawn_experts:
            unseen[expert_names[expert]] = share
    return unseen


class ReplayJudgement(NamedTuple):
    """Reason of a ``ReplayVerdict`` and its sentence."""

    reason: str
    sentence: str


def judge(
    overlap: Mapping[str, Any],
    cost_difference: Interval | None,
    unit: str,
    left_out: Mapping[str, int],
) -> ReplayJudgement:
    """Decide whether a new router is better than the serving one, as far as the log can tell.

    Parameters
    ----------
    overlap : what ``measure_overlap`` and ``Rows.changes`` say about the log
    cost_difference : mean cost of the new router minus that of the serving one; None if it is not known
    unit : "$" if the cost is dollars alone, which the sentence then mentions; otherwise empty
    left_out : reason -> number of rows that are not used

    Returns
    -------
    ReplayJudgement
        What keeps the log from telling, if anything does; otherwise whether there is a clear difference.
    """
    if overlap["draws"] == 0:
        return _nothing(left_out)
    if overlap["unseen"]:
        return _unseen(overlap)
    # Four standard errors: right propensities are hardly ever that far off by chance.
    if abs(overlap["mean_weight"] - 1) > 4 * overlap["weight_error"] + 1e-9:
        return _wrong_propensities(overlap)
    if cost_difference is None or overlap["effective"] < ENOUGH:
        return _too_few_draws(overlap)
    if overlap["changed"] == 0 and cost_difference.estimate == 0:
        return ReplayJudgement(
            "same",
            "The new router decides like the serving one: there is no difference to estimate.",
        )
    if overlap["changed"] and overlap["changed_draws"] < ENOUGH_CHANGED:
        return _too_few_changed_draws(overlap)
    if cost_difference.decided:
        return _clear_difference(cost_difference, unit)
    return _noise(cost_difference, unit)


def _wrong_propensities(overlap: Mapping[str, Any]) -> ReplayJudgement:
    """The mean weight is far from 1, which right propensities do not allow."""
    return _not_clear(
        "propensities",
        f"the weights must be 1 on average; they are {overlap['mean_weight']:.3f} (standard error "
        f"{overlap['weight_error']:.3f}), so the logged propensities do not match the draws.",
    )


def _too_few_draws(overlap: Mapping[str, Any]) -> ReplayJudgement:
    """The effective sample size is too small for an interval."""
    return _not_clear(
        "too_few",
        f"too few draws. The {overlap['draws']:,} draws say as much about the new router as "
        f"{overlap['effective']:.0f} decisions of its own would; with fewer than {ENOUGH:.0f} the "
        "intervals cannot be trusted. Explore more or longer.",
    )


def _too_few_changed_draws(overlap: Mapping[str, Any]) -> ReplayJudgement:
    """The log has too few of the answers that the new router would change to."""
    return _not_clear(
        "too_few",
        f"too few draws. The new router decides {100 * overlap['changed']:.1f} % of the requests "
        f"differently, and only {count_noun(overlap['changed_draws'], 'draw shows', 'draws show')} what "
        f"that costs ({ENOUGH_CHANGED} are needed). Explore more or longer.",
    )


def _not_clear(reason: str, words: str) -> ReplayJudgement:
    return ReplayJudgement(reason, f"It is not clear whether the new router is better: {words}")


def _unseen(overlap: Mapping[str, Any]) -> ReplayJudgement:
    """The new router asks experts of which the log has no answer."""
    names = ", ".join(f"{name} ({100 * share:.1f} %)" for name, share in overlap["unseen"].items())
    remedy = "The log does not say what they would have cost; add them to the gateway and explore."
    if overlap["unknown"]:
        remedy = (
            f"The log has {listed(overlap['unknown'])}, which the router does not know: names must "
            f"be the same in both, and a new expert must be drawn before it can be judged."
        )
    return _not_clear(
        "unseen",
        f"the new router gives queries to experts that were never drawn here: {names}. {remedy}",
    )


def _clear_difference(difference: Interval, unit: str) -> ReplayJudgement:
    """The interval of the difference excludes 0."""
    reason = "worse"
    change = "more"
    if difference.high < 0:
        reason = "better"
        change = "less"
    subject = "The"
    if unit:
        subject = "Dollars only, no feedback on the answers: the"
    sentence = (
        f"{subject} new router would have been {reason}: {_money(abs(difference.estimate), unit)} {change} "
        f"per request than the serving one, exploration aside ({_interval_words(difference, unit)})."
    )
    return ReplayJudgement(reason, sentence)


def _noise(difference: Interval, unit: str) -> ReplayJudgement:
    """The interval of the difference contains 0."""
    quantity = "difference"
    remedy = ""
    if unit:
        quantity = "difference in dollars"
        remedy = " Only dollars are known: give feedback=FILE."
    return _not_clear(
        "noise",
        f"the {quantity} of {_money(difference.estimate, unit)} is within the noise "
        f"({_interval_words(difference, unit)}).{_draws_needed(difference)}{remedy}",
    )


def _interval_words(difference: Interval, unit: str) -> str:
    low = _money(difference.low, unit)
    high = _money(difference.high, unit)
    return f"{difference.confidence * 100:g} % interval of the difference {low} to {high}"


def _draws_needed(difference: Interval) -> str:
    """How many times as many draws would show the difference; empty if it is too small for that."""
    if difference.estimate == 0 or not difference.standard_error > 0:
        return ""
    factor = ((difference.high - difference.low) / 2 / abs(difference.estimate)) ** 2
    if not factor < 100:
        return ""
    return (
        f" If the true difference is this large, about {factor:.1f} times as many draws "
        "would show it."
    )


def _nothing(left_out: Mapping[str, int]) -> ReplayJudgement:
    """No row can be used."""
    certain = left_out.get("drawn without exploration", 0)
    if certain:
        return _not_clear(
            "nothing",
            f"all {certain:,} routed requests were decided without exploration, so no row shows what "
            "another expert would have cost. Set explore = 0.05 under [routing] and collect more requests.",
        )
    if left_out.get(WITHOUT_QUERY):
        return _not_clear(
            "nothing",
            "the ledger has no texts, and the new router needs them. Set keep_text = true under [ledger], "
            "or give the queries with queries=FILE.",
        )
    if not left_out:
        return _not_clear("nothing", "the ledger has no rows in this span.")
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return _not_clear("nothing", f"no row can be used ({reasons}).")


def _money(value: float, unit: str) -> str:
    if unit:
        sign = "-" if value < 0 else ""
        return f"{sign}{unit}{_amount(abs(value))}"
    # Costs of another system may be small.
    if 0 < abs(value) < 0.001:
        return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"
    return f"{value:.4f}"


def _amount(dollars: float) -> str:
    """Dollars without cents from 1,000 on, and with two significant digits below ten cents.

    >>> _amount(1234.5), _amount(3.2), _amount(0.00421), _amount(0)
    ('1,234', '3.20', '0.0042', '0')
    """
    if dollars < 1e-9:
        return "0"
    if dollars >= 1000:
        return f"{dollars:,.0f}"
    if dollars >= 0.1:
        return f"{dollars:.2f}"
    return f"{dollars:.{1 - math.floor(math.log10(dollars))}f}"
