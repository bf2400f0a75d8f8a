"""Search for a router by cross-validated deferral loss, with a guard against routing that does not pay."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv

from mild.core.arrays import FloatArray, IntArray, check_strength
from mild.errors import InvalidInputError, TuningInterruptedWarning
from mild.metrics import common_constant, common_rows
from mild.policies import ConstantPolicy, Policy
from mild.routers.base import BaseRouter
from mild.routers.bias import cross_fitted_bias
from mild.routers.candidates import (
    Candidate,
    family_candidates,
    linear_candidates,
    parse_families,
)
from mild.routers.constant import mean_costs
from mild.routers.linear import LinearRouter
from mild.routers.search import Progress, Search, SearchData
from mild.routers.stack import StackRouter
from mild.routers.verdict import Verdict, judge

__all__ = ["RouterCV"]


class RouterCV(BaseRouter):
    """Chooses margins, strength and, if asked, the family of the router, then fits it on all rows.

    Every candidate is judged by the mean cost of its choices on held-out rows. The p - 1 ratios of the
    margins are searched around the theory; their scale is redundant with alpha for linear routers. Beside
    them, margins proportional to a power of how often each expert is cheapest, and a bias per expert for
    equal margins: with many experts and few rows a margin says how strongly its expert is regularised,
    which no bias can copy; with few experts the bias is often all there is to gain. Linear candidates are
    fitted along paths, each starting from the last.

    Parameters
    ----------
    estimator : LinearRouter to search around; None for the default one
    alphas : strengths to try; None for 1e-4 to 1 in steps of ten
    margin_factors : factors by which single margins are moved against the first one; (1.0,) keeps the
        estimator's margins, and then neither exponents nor a bias are tried
    margin_exponents : margins proportional to ``m_k ** exponent`` are tried, ``m_k`` how often expert k is
        cheapest (at least 1), where the stationary rule decides; () for none
    bias : whether a bias per expert is tried with equal margins, found on held-out scores; its own cost is
        judged with the bias that the other folds ask for
    max_margins : margin vectors at most; beyond, the full product gives way to single moves
    grid : "ratios", or "paper": step 1 on [rho* - 5, rho* + 5] per expert, at the estimator's alpha
        unless ``alphas`` is given
    families : None (linear only), "all", "auto" (all, the network up to about 5,000 rows), or names among
        linear, regression, knn, mlp, stack; the stack blends the best of each family by the folds it is
        then judged on, so its own cost is a little flattered
    cv : number of folds, or a scikit-learn splitter
    clusters : (n_samples,) labels of rows that count once together in the verdict, such as equal queries;
        None if each row is alone
    one_standard_error : take the simplest candidate whose paired difference to the best is within one
        standard error; where there is a stack, that is taken unless the best of the others beats it by
        more than its interval, which allows for the number of candidates: a mean of beliefs is steadier
        than the luckiest of many
    safe : route as the best constant when nothing beats it by more than its interval
    confidence : of that interval, which holds for all candidates at once
    search_tol : how well candidates are solved among many rows, as a share of what there is to learn;
        with few rows it is 1e-5 of the value, and the final fit uses the estimator's own tolerance
    n_jobs : joblib workers (any joblib back end serves, Ray and Dask included)
    progress : callable(done, total, message) or None
    random_state : int

    Attributes
    ----------
    best_router_ : the fitted winner
    best_params_, best_family_, best_index_ : what won
    cv_results_ : dict of lists: family, params, mean_cost, standard_error, difference (to the constant)
    held_out_, held_out_constants_ : (n_samples,) what the winner, and the best constant, would have chosen
        for each row without having seen it; -1 where no fold judges
    verdict_ : Verdict, with a sentence
    interrupted_ : whether the search was stopped early
    skipped_families_ : families left out because a package is missing, or by "auto"
    dropped_margins_ : margin vectors left out: not positive in the paper's grid, or beyond max_margins
    """

    def __init__(
        self,
        estimator: LinearRouter | None = None,
        *,
        alphas: Sequence[float] | None = None,
        margin_factors: Sequence[float] = (0.5, 1.0, 2.0),
        margin_exponents: Sequence[float] = (0.0, 1 / 6, 1 / 3, 1 / 2),
        bias: bool = True,
        max_margins: int = 81,
        grid: str = "ratios",
        families: Any = None,
        cv: Any = 5,
        clusters: Any = None,
        one_standard_error: bool = True,
        safe: bool = False,
        confidence: float = 0.95,
        search_tol: float = 5e-3,
        n_jobs: int | None = None,
        progress: Progress | None = None,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.alphas = alphas
        self.margin_factors = margin_factors
        self.margin_exponents = margin_exponents
        self.bias = bias
        self.max_margins = max_margins
        self.grid = grid
        self.families = families
        self.cv = cv
        self.clusters = clusters
        self.one_standard_error = one_standard_error
        self.safe = safe
        self.confidence = confidence
        self.search_tol = search_tol
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        if not (isinstance(self.confidence, Real) and 0 < self.confidence < 1):
            raise InvalidInputError(f"confidence must lie in (0, 1); got {self.confidence!r}.")
        check_strength("search_tol", self.search_tol)
        if self.n_jobs == 0:
            raise InvalidInputError("n_jobs must not be 0; -1 takes every core.")
        if not np.size(self.margin_factors):
            raise InvalidInputError("margin_factors must hold at least one factor; got none.")
        self._warn_if_degenerate(costs)
        if sample_weight is not None:
            # Only ratios matter; a mean of 1 keeps families comparable that count weights as copies.
            sample_weight = sample_weight / sample_weight[sample_weight > 0].mean()
        data = SearchData(X, costs, sample_weight, self._folds(X, costs))
        candidates = self._candidates(X, costs, sample_weight)
        stacked = "stack" in self._families and len(candidates) > 1
        biased = any(candidate.keeps_scores for candidate in candidates)
        search = Search(
            data, self.search_tol, self.n_jobs, self.progress, len(candidates) + stacked + biased
        )
        made = search.run(candidates)
        if biased and not search.interrupted:
            candidate, chosen = _biased(candidates, made, data, search.scores)
            search.tell(len(data.folds), "bias")
            candidates, made = [*candidates, candidate], np.column_stack([made, chosen])
        if stacked and not search.interrupted:
            stack = self._stack(candidates, data.paid(made), data)
            try:
                stack.router.fit(X, costs, sample_weight=sample_weight)
            except KeyboardInterrupt:
                search.interrupted = True
            else:
                search.tell(len(data.folds), "stack")
                candidates = [*candidates, stack]
                made = np.column_stack([made, stack.router.held_out_])
        return self._choose(candidates, made, data, search.interrupted)

    def _folds(self, X: Any, costs: FloatArray) -> list[tuple[IntArray, IntArray]]:
        cv = self.cv
        if isinstance(cv, (int, np.integer)):
            if cv < 2:
                raise InvalidInputError(f"cv must be at least 2 folds; got {cv}.", parameter="cv")
            if cv > X.shape[0]:
                raise InvalidInputError(
                    f"cv must not exceed the number of samples; got cv={cv} for "
                    f"n_samples={X.shape[0]}."
                )
            cv = KFold(int(cv), shuffle=True, random_state=self.random_state)
        return list(check_cv(cv).split(X, costs))

    def _clusters(self, n_samples: int) -> IntArray | None:
        if self.clusters is None:
            return None
        labels = np.unique(np.asarray(self.clusters), return_inverse=True)[1]
        if labels.shape != (n_samples,):
            raise InvalidInputError(
                f"clusters must have shape (n_samples,) = ({n_samples},); got {labels.shape}."
            )
        return labels

    def _candidates(
        self, X: Any, costs: FloatArray, sample_weight: FloatArray | None
    ) -> list[Candidate]:
        base = LinearRouter() if self.estimator is None else self.estimator
        if not isinstance(base, LinearRouter):
            raise InvalidInputError(
                f"estimator must be a LinearRouter; got {type(base).__name__}. Other routers are "
                f"searched by families=..."
            )
        self._families, self.skipped_families_ = parse_families(self.families, X.shape)
        found: list[Candidate] = []
        self.dropped_margins_ = 0
        if not self._families or "linear" in self._families:
            found, self.dropped_margins_ = linear_candidates(
                base,
                X,
                costs,
                sample_weight,
                self.alphas,
                self.margin_factors,
                self.max_margins,
                self.margin_exponents,
                self.grid,
                self.bias,
            )
        found += family_candidates(self._families, self.alphas, self.random_state)
        if not found:
            raise InvalidInputError(
                "families must name at least one family besides the stack; got only 'stack'."
            )
        return found

    def _stack(
        self, candidates: list[Candidate], outcome: FloatArray, data: SearchData
    ) -> Candidate:
        """Stack of the best candidate of each family, linear losses apart."""
        means = data.rows(outcome).mean(axis=0)
        best: dict[str, int] = {}
        for index, candidate in enumerate(candidates):
            if "bias" in candidate.params:
                continue  # Costs are blended, and a bias distorts what a router believes of them.
            name = candidate.params.get("loss", candidate.family)
            if name not in best or means[index] < means[best[name]]:
                best[name] = index
        members = [(name, clone(candidates[i].router)) for name, i in best.items()]
        router = StackRouter(members, cv=data.folds, n_jobs=self.n_jobs)
        return Candidate("stack", router, {"members": list(best)}, (4.0, 0.0, 0.0))

    def _beats_stack(self, rows: FloatArray, index: int) -> bool:
        """Whether a candidate beats the stack, which comes last, by an interval for all candidates."""
        difference = rows[:, index] - rows[:, -1]
        allowed = ndtri(1 - (1 - self.confidence) / rows.shape[1])
        return bool(difference.mean() + allowed * difference.std() / math.sqrt(len(rows)) < 0)

    def _choose(
        self,
        candidates: list[Candidate],
        made: IntArray,
        data: SearchData,
        interrupted: bool,
    ) -> Policy:
        rows = data.rows(data.paid(made))
        tried = np.flatnonzero(~np.isnan(rows).any(axis=0))
        candidates, made, rows = [candidates[i] for i in tried], made[:, tried], rows[:, tried]
        means = rows.mean(axis=0)
        root = math.sqrt(len(rows))
        index = int(np.argmin(means))
        # All rows have a say in the choice; what is told of it is compared on the same rows.
        common = common_rows(data.costs)
        kept = data.take(common.rows)
        if candidates[-1].family == "stack":
            level = kept.rows(kept.paid(made[common.rows]))
            if not (self._beats_stack(rows, index) and self._beats_stack(level, index)):
                index = len(candidates) - 1
        elif self.one_standard_error:
            error = (rows - rows[:, [index]]).std(axis=0) / root
            near = np.flatnonzero(means - means[index] <= error)
            index = int(min(near, key=lambda i: (candidates[i].complexity, means[i])))
        expert = common_constant(data.costs, data.sample_weight)
        self.held_out_, self.held_out_constants_ = made[:, index], data.constants()
        both = kept.paid(np.column_stack([made, self.held_out_constants_])[common.rows])
        clusters = self._clusters(len(rows))
        level = kept.rows(both)
        rows, constant = level[:, :-1], level[:, -1]
        means, root = rows.mean(axis=0), math.sqrt(len(rows))
        self.verdict_: Verdict = judge(
            rows,
            constant,
            ~np.isnan(both[:, [index, -1]]),
            index,
            expert,
            self.expert_names_[expert],
            self.confidence,
            self.random_state,
            None if clusters is None else clusters[common.rows],
            common.sentence,
        )
        self.interrupted_ = interrupted
        self.best_index_ = index
        self.best_family_ = candidates[index].family
        self.best_params_ = dict(candidates[index].params)
        self.cv_results_ = {
            "family": [candidate.family for candidate in candidates],
            "params": [candidate.params for candidate in candidates],
            "mean_cost": means.tolist(),
            "standard_error": (rows.std(axis=0) / root).tolist(),
            "difference": (means - constant.mean()).tolist(),
        }
        if interrupted:
            warnings.warn(
                f"the search was stopped: {len(candidates)} candidate(s) were judged on every fold and "
                f"the best of them is kept.",
                TuningInterruptedWarning,
                stacklevel=3,
            )
        router = candidates[index].router
        if self.best_family_ != "stack":  # which is fitted already
            router = clone(router).fit(data.X, data.costs, sample_weight=data.sample_weight)
        router.expert_names_ = self.expert_names_
        self.best_router_: BaseRouter = router
        if self.safe and self.verdict_.pays is not True:
            means = mean_costs(data.costs, data.sample_weight).astype(data.X.dtype)
            return ConstantPolicy(means, data.X.shape[1], expert)
        return router.policy_


def _biased(
    candidates: list[Candidate], made: IntArray, data: SearchData, scores: dict[int, FloatArray]
) -> tuple[Candidate, IntArray]:
    """The best of the candidates whose scores were kept, with a bias, and its held-out choices."""
    kept = list(scores)
    means = data.rows(data.paid(made[:, kept])).mean(axis=0)
    index = kept[int(np.argmin(means))]
    parent = candidates[index]
    margin = float(parent.params["margins"][0])
    bias, chosen = cross_fitted_bias(
        scores[index], data.costs, data.sample_weight, data.folds, margin
    )
    params = {**parent.params, "bias": tuple(bias.tolist())}
    router = clone(parent.router).set_params(bias=params["bias"])
    return Candidate("linear", router, params, (*parent.complexity, 1.0)), chosen
