"""A router from a table of outcomes and from logged answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router
from mild.artifact.facts import mix_words
from mild.artifact.info import EstimatorInfo, SharesInfo
from mild.core.arrays import BoolArray, FloatArray, IntArray, first_columns, invalid
from mild.data import OutcomeTable
from mild.errors import listed
from mild.metrics import expert_shares
from mild.money import plain_number
from mild.policies import PricedPolicy
from mild.policies.mix import tradeoff_of
from mild.routers.pooled_heads import Cells, PooledHeads, pooled_heads
from mild.tuning.fitting import contents

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
        """The cost that a router was made for; at a trade-off that meets a target, that of a dollar."""
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
        beta = np.array([betas.get(name, 0.0) for name in router.expert_names])
        return cls(price_weight, latency_weight, beta)

    def costs(self, logged: LoggedOutcomes) -> FloatArray:
        """(n,) what each logged answer cost; NaN where a term that counts is not known."""
        costs = logged.error + self.beta[logged.expert]
        if self.price_weight:
            costs = costs + self.price_weight * logged.dollars
        if self.latency_weight:
            costs = costs + self.latency_weight * logged.latency
        return costs

    @property
    def formula(self) -> str:
        """For people."""
        terms = ["error"]
        if self.beta.any():
            terms.append("beta")
        if self.price_weight:
            terms.append(f"{plain_number(self.price_weight)} * dollars")
        if self.latency_weight:
            terms.append(f"{self.latency_weight:g} * seconds")
        return " + ".join(terms)


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Complete or partial rows of a table, for the experts of a router."""

    X: FloatArray  # (n, d)
    errors: FloatArray  # (n, p) NaN where unknown, as below
    dollars: FloatArray
    seconds: FloatArray

    @classmethod
    def of(cls, table: OutcomeTable | None, router: Router) -> KnownRows:
        """The rows of a table; none without one."""
        if table is None:
            none = np.empty((0, router.n_experts))
            return cls(np.empty((0, router.n_features), np.float32), none, none, none)
        names = router.expert_names
        if not set(names) & set(table.expert_names):
            rule = f"must have scores of experts of the router: {listed(names)}"
            raise invalid("table", f"{rule}; got {listed(table.expert_names)}.")
        assert router.text is not None
        X = router.text.vectorize(contents(table, router.text))
        scores, dollars, seconds = table.outcomes_of(names)
        return cls(X, 1 - scores, dollars, seconds)


def logged_weights(logged: LoggedOutcomes) -> FloatArray:
    """(n,) inverse propensities, relative to the most frequent draw, and at most ``CLIP``.

    The propensity of a graded answer is that of its draw times that of being picked. Self-selected
    feedback counts as if all answers were judged.
    """
    chance = logged.propensity * np.where(logged.sampled, logged.rate, 1.0)
    weight = np.ones(len(logged))
    for same in (logged.sampled, ~logged.sampled):
        if same.any():
            weight[same] = chance[same].max() / chance[same]
    return np.minimum(weight, CLIP)


def fit_candidate(
    router: Router, known: KnownRows, logged: LoggedOutcomes, weights: CostWeights
) -> Router:
    """A router with the experts and features of another, from rows of a table and logged answers.

    With heads ``e_k(x)`` of the error and ``d_k(x)`` of the dollars of expert ``k``, ``beta_k`` and the
    price weight ``t``, an expert is expected to cost ``e_k(x) + t (d_k(x) + beta_k / t)``. Seconds are
    added to ``beta_k`` at their mean.
    """
    X = first_columns(logged.X, router.n_features)
    if len(known.X):
        X = np.concatenate([known.X, X])
    if not len(X):
        return router
    weight = logged_weights(logged)
    n_experts = router.n_experts

    def cells(matrix: FloatArray, values: FloatArray) -> Cells:
        """The known values of the table, and those of the logged answers below them."""
        rows = np.flatnonzero(~np.isnan(values))
        logged_cells = Cells(rows, logged.expert[rows].astype(np.intp), values[rows], weight[rows])
        return Cells.of_matrix(matrix).joined(logged_cells, len(known.X))

    errors = pooled_heads(X, cells(known.errors, logged.error), n_experts)
    dollars = relative_heads(X, cells(known.dollars, logged.dollars), n_experts)
    beta = weights.beta.copy()
    if weights.latency_weight:
        seconds = relative_heads(X, cells(known.seconds, logged.latency), n_experts)
        beta += weights.latency_weight * (seconds.intercept + seconds.coef @ X.mean(axis=0))
    error_intercept = errors.intercept
    dollars_per_query = np.zeros_like(beta)
    if weights.price_weight:
        dollars_per_query = beta / weights.price_weight
    else:
        # A policy without a price weight ignores dollars, so betas are added to the errors.
        error_intercept = error_intercept + beta
    policy = PricedPolicy(
        errors.coef.astype(np.float32),
        error_intercept.astype(np.float32),
        dollars.coef.astype(np.float32),
        dollars.intercept.astype(np.float32),
        dollars_per_query.astype(np.float32),
        weights.price_weight,
        "ridge",
        ranks=router.policy.ranks,
    )
    return learned_router(router, policy, errors, X)


def relative_heads(X: FloatArray, cells: Cells, n_experts: int) -> PooledHeads:
    """Heads of amounts such as dollars: what experts have in common is relative to their means."""
    if not cells.row.size:
        return PooledHeads(
            np.zeros((n_experts, X.shape[1])), np.zeros(n_experts), np.zeros(n_experts)
        )
    total = np.bincount(cells.expert, cells.weight, n_experts)
    sums = np.bincount(cells.expert, cells.weight * cells.value, n_experts)
    mean = np.where(total > 0, sums / np.where(total > 0, total, 1), 0.0)
    # An expert of which nothing is known may cost as much as the dearest.
    mean = np.where(total > 0, mean, mean.max())
    scale = np.where(mean > 0, mean, 1.0)
    paid = cells.kept(mean[cells.expert] > 0)
    if not paid.row.size:
        return relative_heads(X, paid, n_experts)
    heads = pooled_heads(X, paid.scaled(scale), n_experts, shrink_levels=False)
    scale = np.where(mean > 0, mean, 0.0)
    return PooledHeads(
        heads.coef * scale[:, None], heads.intercept * scale, heads.standard_errors * scale
    )


def learned_router(
    router: Router, policy: PricedPolicy, errors: PooledHeads, X: FloatArray
) -> Router:
    """The router with another policy; of a cascade, the router without answers is replaced."""
    names = router.expert_names
    shares = expert_shares(policy.predict(X), len(names)).tolist()
    price_head = None
    if policy.price_coef.any() or policy.price_intercept.any():
        price_head = "dollars"
    info = replace(
        router.info,
        estimator=EstimatorInfo("PooledHeads", {"clip": CLIP}),
        verdict=None,
        calibration=None,
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
    return replace(router, policy=new_policy, calibration=None, info=info)


def dropped_mix(router: Router) -> str | None:
    """The mix that a learned router replaces by one setting, in words; cascades stay mixed."""
    if router.mix is None or router.cascade is not None:
        return None
    return mix_words(router.mix, router.expert_names)


def is_current(logged: LoggedOutcomes, newest: int = 20) -> BoolArray:
    """(n,) whether an answer is of a version that its expert still reports, or of no version.

    A version is current if it is among the ``newest`` answers of its expert that report one.
    """
    current = np.ones(len(logged), bool)
    for k in range(len(logged.expert_names)):
        answers: IntArray = np.flatnonzero((logged.expert == k) & (logged.reported >= 0))
        current_versions = np.unique(logged.reported[answers[-newest:]])
        current[answers] = np.isin(logged.reported[answers], current_versions)
    return current
