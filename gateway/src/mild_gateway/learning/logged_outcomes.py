"""Learn a router from a table of outcomes and from the answers that a gateway logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import EstimatorInfo, SharesInfo
from mild.errors import InvalidInputError, listed
from mild.metrics import expert_shares
from mild.policies import PricedPolicy, tradeoff_of
from mild_gateway.arrays import BoolArray, FloatArray, IntArray
from mild_gateway.decide import Router, mix_in_words
from mild_gateway.learning.pooled_heads import PooledHeads, SparseOutcomes, pooled_heads
from mild_gateway.learning.tables import Outcomes

#: The largest weight of a logged answer; that of the most frequent draw, and of a row of a table, is 1.
CLIP = 20.0


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
    # The expert that was drawn; negative for a whole cascade, or one that the router has no more.
    chosen: IntArray
    preferred: IntArray  # what would have been chosen without exploration, likewise
    propensity: FloatArray  # probability with which this expert was asked for this text
    selected: BoolArray  # asked because of other answers: no unbiased sample, whatever the propensity says
    error: FloatArray  # in [0, 1]
    rate: FloatArray  # probability with which the answer was picked to be judged; NaN if self-selected
    dollars: FloatArray  # of the answer; NaN if not known
    latency: FloatArray  # seconds; NaN if not known
    source: IntArray  # number of who judged it
    router: IntArray  # router that decided, by its place in ``routers``
    reported: IntArray  # version that the expert reported, by its place in ``reports``; -1 for none
    episode: IntArray  # equal for requests of a pinned session, for which one draw was made
    # (n, p) float32, probability of each expert in the draw of the episode, a cascade's being the rest;
    # NaN if not known.
    draws: FloatArray
    expert_names: tuple[str, ...]
    routers: tuple[str, ...]  # fingerprints
    reports: tuple[str, ...]
    requests: int  # requests that were judged or failed, and are used
    from_text: int  # of them with stored text, and with stored features
    from_features: int
    left_out: Mapping[str, int]  # answers that are not used, by reason

    def __len__(self) -> int:
        return len(self.expert)

    @property
    def sampled(self) -> BoolArray:
        """Whether the answer was picked to be judged with a known probability."""
        return np.isfinite(self.rate)

    def take(self, index: Any) -> LoggedOutcomes:
        """Some of the answers; a slice takes no memory."""
        arrays = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                arrays[field.name] = value[index]
        return replace(self, **arrays)

    def __repr__(self) -> str:
        return f"<LoggedOutcomes: {len(self)} answers, {self.sampled.sum()} of a known rate>"


@dataclass(frozen=True)
class CostWeights:
    """What an answer costs: ``error + beta_k + price_weight * dollars + latency_weight * seconds``."""

    price_weight: float
    latency_weight: float
    beta: FloatArray  # (p,)

    @classmethod
    def of(cls, router: Router) -> CostWeights:
        """Return the cost that a router was tuned for; with a target, the dollar weight that meets it."""
        price_weight = 0.0
        latency_weight = 0.0
        betas: Mapping[str, float] = {}
        cost = router.info.cost
        if cost is not None:
            price_weight = cost.price_weight or 0.0
            latency_weight = cost.latency_weight or 0.0
            betas = cost.beta or {}
        target = router.info.target
        if target is not None and target.t is not None:
            price_weight = target.t
        # Looked up by name: a beta may be that of an expert that was removed.
        beta = np.array([betas.get(name, 0.0) for name in router.experts])
        return cls(price_weight, latency_weight, beta)

    def costs(self, logged: LoggedOutcomes) -> FloatArray:
        """Return the cost (n,) of each logged answer; NaN where a term of it is not known."""
        costs = logged.error + self.beta[logged.expert]
        if self.price_weight:
            costs = costs + self.price_weight * logged.dollars
        if self.latency_weight:
            costs = costs + self.latency_weight * logged.latency
        return costs

    @property
    def formula(self) -> str:
        """The cost as a formula, for people."""
        terms = ["error"]
        if self.beta.any():
            terms.append("beta")
        if self.price_weight:
            terms.append(f"{self.price_weight:.10g} * dollars")
        if self.latency_weight:
            terms.append(f"{self.latency_weight:g} * seconds")
        return " + ".join(terms)


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table with outcomes of a router's experts, of which some may be unknown."""

    X: FloatArray  # (n, d)
    errors: FloatArray  # (n, p) NaN where unknown, as below
    dollars: FloatArray
    seconds: FloatArray

    @classmethod
    def of(cls, table: Outcomes | None, router: Router) -> TableRows:
        """Return the rows of a table; no rows without one."""
        if table is None:
            none = np.empty((0, router.n_experts))
            return cls(np.empty((0, router.n_features), np.float32), none, none, none)
        names = router.experts
        if not set(names) & set(table.experts):
            rule = f"must have scores of experts of the router: {listed(names)}"
            rule = f"{rule}; got {listed(table.experts)}."
            raise InvalidInputError(parameter="table", rule=rule)
        assert router.text is not None
        inputs = table.vectors if router.text.kind == "vectors" else table.queries
        X = router.text.vectorize(inputs)
        scores, dollars, seconds = table.outcomes_of(names)
        return cls(X, 1 - scores, dollars, seconds)


def logged_weights(logged: LoggedOutcomes) -> FloatArray:
    """Return weights (n,) of the answers: inverse propensities, relative to the most probable answer.

    With ``q_i`` the probability that answer i was drawn and picked to be judged, its weight is
    ``min(max_j q_j / q_i, CLIP)``. The maximum is taken apart over answers that were picked at random and
    over self-selected feedback, which counts as if all answers were judged.
    """
    probability = logged.propensity * np.where(logged.sampled, logged.rate, 1.0)
    weights = np.ones(len(logged))
    for of_one_source in (logged.sampled, ~logged.sampled):
        if of_one_source.any():
            source_probability = probability[of_one_source]
            weights[of_one_source] = source_probability.max() / source_probability
    return np.minimum(weights, CLIP)


def fit_candidate(
    router: Router, known: TableRows, logged: LoggedOutcomes, weights: CostWeights
) -> Router:
    """Learn a router from rows of a table and from logged answers together.

    The learned policy expects expert k to cost, on features x,

        ``e_k(x) + t (d_k(x) + b_k)``

    where ``e_k(x)`` is the error and ``d_k(x)`` are the dollars of its answer, ``t`` is the price weight,
    and ``b_k`` is its constant cost in dollars: beta, and the weighted mean of its seconds, divided by t.

    Parameters
    ----------
    router : the router that serves; its experts and features are kept
    known : rows of a table, which may be none
    logged : logged answers, weighted by their inverse propensities
    weights : weights of dollars and seconds, and beta of each expert

    Returns
    -------
    Router
        The router with the learned policy; the same router where there is nothing to learn from.
    """
    X = logged.X[:, : router.n_features]
    if len(known.X):
        X = np.concatenate([known.X, X])
    if not len(X):
        return router
    n_experts = router.n_experts
    errors = pooled_heads(X, _pooled_cells(known.errors, logged.error, logged), n_experts)
    dollar_cells = _pooled_cells(known.dollars, logged.dollars, logged)
    dollars = relative_heads(X, dollar_cells, n_experts)
    constant_costs = weights.beta.copy()
    if weights.latency_weight:
        second_cells = _pooled_cells(known.seconds, logged.latency, logged)
        seconds = relative_heads(X, second_cells, n_experts)
        mean_seconds = seconds.intercept + seconds.coef @ X.mean(axis=0)
        constant_costs += weights.latency_weight * mean_seconds
    error_intercept = errors.intercept
    constant_dollars = np.zeros_like(constant_costs)
    if weights.price_weight:
        constant_dollars = constant_costs / weights.price_weight
    else:
        # A policy without a price weight ignores dollars, so these costs are added to the errors.
        error_intercept = error_intercept + constant_costs
    policy = PricedPolicy(
        errors.coef.astype(np.float32),
        error_intercept.astype(np.float32),
        dollars.coef.astype(np.float32),
        dollars.intercept.astype(np.float32),
        constant_dollars.astype(np.float32),
        weights.price_weight,
        "ridge",
        ranks=router.policy.ranks,
    )
    return learned_router(router, policy, errors, X)


def _pooled_cells(
    known_values: FloatArray, logged_values: FloatArray, logged: LoggedOutcomes
) -> SparseOutcomes:
    """Return the known values of table and log, each with its row, its expert and its weight.

    Rows are those of the features of the table (n_table_rows, d), with those of the log below them.
    ``known_values`` (n_table_rows, n_experts) and ``logged_values`` (n_answers,) are NaN where unknown.
    """
    answers = np.flatnonzero(~np.isnan(logged_values))
    weights = logged_weights(logged)[answers]
    experts = logged.expert[answers].astype(np.intp)
    logged_cells = SparseOutcomes(answers, experts, logged_values[answers], weights)
    return SparseOutcomes.of_matrix(known_values).joined(logged_cells, len(known_values))


def relative_heads(X: FloatArray, cells: SparseOutcomes, n_experts: int) -> PooledHeads:
    """Fit linear heads of amounts such as dollars, each relative to its expert's mean amount.

    Experts share what they have in common as a factor of their means: a long query costs twice as much
    with a cheap expert as well as with a dear one.
    """
    if not cells.row.size:
        return PooledHeads(
            np.zeros((n_experts, X.shape[1])), np.zeros(n_experts), np.zeros(n_experts)
        )
    total_weight = np.bincount(cells.expert, cells.weight, n_experts)
    weighted_sum = np.bincount(cells.expert, cells.weight * cells.value, n_experts)
    has_values = total_weight > 0
    mean = np.where(has_values, weighted_sum / np.where(has_values, total_weight, 1), 0.0)
    # An expert of which nothing is known may cost as much as the dearest.
    mean = np.where(has_values, mean, mean.max())
    # Amounts of experts that are free have no relative size.
    priced_cells = cells.kept(mean[cells.expert] > 0)
    if not priced_cells.row.size:
        return relative_heads(X, priced_cells, n_experts)
    divisor = np.where(mean > 0, mean, 1.0)
    heads = pooled_heads(X, priced_cells.scaled(divisor), n_experts, shrink_levels=False)
    scale = np.where(mean > 0, mean, 0.0)
    return PooledHeads(
        heads.coef * scale[:, None], heads.intercept * scale, heads.standard_errors * scale
    )


def learned_router(
    router: Router, policy: PricedPolicy, errors: PooledHeads, X: FloatArray
) -> Router:
    """Return a router with a learned policy, and with what is recorded about it.

    In a cascade, the policy that decides without answers is replaced.

    Parameters
    ----------
    router : the router that serves
    policy : the learned policy
    errors : its heads for the error, with standard errors
    X : (n, d) the features that it was learned on, for the usual share of each expert
    """
    names = router.experts
    shares = expert_shares(policy.predict(X), len(names)).tolist()
    price_head = None
    if policy.price_coef.any() or policy.price_intercept.any():
        price_head = "dollars"
    info = replace(
        router.info,
        estimator=EstimatorInfo("PooledHeads", {"clip": CLIP}),
        verdict=None,
        shares=SharesInfo(len(X), dict(zip(names, shares, strict=True))),
        standard_errors=dict(zip(names, errors.standard_errors.tolist(), strict=True)),
        dropped_mix=dropped_mix(router),
        price_head=price_head,
    )
    new_policy: Any = policy
    tuned = tradeoff_of(router.policy)
    if tuned is not None:
        # It can be set to other targets, as before.
        new_policy = replace(tuned, inner=policy, heads=policy)
    if router.cascade is not None:
        new_policy = router.cascade.with_direct(new_policy)
    return replace(router, policy=new_policy, info=info)


def learned_policy(router: Router) -> Any:
    """What ``fit_candidate`` has learned; a tuned router has it as its heads, beside its other settings."""
    tuned = tradeoff_of(router.policy)
    return router.direct.policy if tuned is None else tuned.heads


def choices(router: Router, X: FloatArray) -> IntArray:
    """Choices (n,) of a router without answers, for features that may have the draws of a mix."""
    policy = router.direct.policy
    return policy.predict(X[:, : policy.n_columns])


def dropped_mix(router: Router) -> str | None:
    """Return the mix that a learned router replaces by one policy, in words; None if it keeps it."""
    if router.cascade is not None:
        return None
    return mix_in_words(router)


def is_current(logged: LoggedOutcomes, newest: int = 20) -> BoolArray:
    """Return a mask (n,) of the answers of versions that their experts still report.

    A version is current if it is among the ``newest`` answers of its expert that report one. Answers
    without a version count as current.
    """
    current = np.ones(len(logged), bool)
    for expert in range(len(logged.expert_names)):
        answers: IntArray = np.flatnonzero((logged.expert == expert) & (logged.reported >= 0))
        current_versions = np.unique(logged.reported[answers[-newest:]])
        current[answers] = np.isin(logged.reported[answers], current_versions)
    return current
