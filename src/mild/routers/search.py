"""Search for a router by cross-validated deferral loss, and a verdict on whether routing pays.

``RouterCV`` makes a list of *candidates*, which are unfitted routers with their parameters. ``Search`` fits
each of them once per fold and keeps its *choices* for the held-out rows: the index of an expert for each
row. The mean cost of these choices decides between candidates; the winner is fitted on all rows. The
*best constant* is the expert with the lowest mean cost: a router that is no better is not worth having.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from typing import Any, Self

import numpy as np
from joblib import delayed
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, check_cv

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_jobs, float_vector, invalid
from mild.core.costs import cheapest_expected
from mild.core.rounding import (
    ESTIMATE_TOLERANCE,
    OUTCOME_TOLERANCE,
    first_smallest,
    is_less,
    tie_ranks,
)
from mild.errors import TuningInterruptedWarning, check_arguments, check_constructor, count_noun
from mild.metrics import (
    Verdict,
    common_rows,
    count_judged,
    linearised_rows,
    split_intervals,
)
from mild.metrics.intervals import grouped_rows, student_quantile
from mild.metrics.routing import common_constant
from mild.policies import ConstantPolicy, Policy, believed_costs
from mild.routers.base import (
    BaseRouter,
    NamedCosts,
    label_numbers,
    no_convergence_warnings,
    weights_of,
    weights_or_ones,
)
from mild.routers.baselines import mean_costs
from mild.routers.candidates import (
    Candidate,
    family_candidates,
    further_candidates,
    linear_candidates,
    parse_families,
)
from mild.routers.cost_models import KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import LABEL_LOSSES
from mild.routers.parallel import parallel_results
from mild.routers.solver import LinearPath
from mild.routers.stack import BlendRouter, explained, products

Progress = Callable[[int, int, str], None]
Folds = list[tuple[IntArray, IntArray]]
# Largest number of candidates that one task fits on a fold.
BLOCK = 16
# ``average_rows`` of the stack.
AVERAGE_ROWS = 150.0
# With a stack, margins other than those at the centre of the search are tried at this many strengths.
STACK_STRENGTHS = 2
# Families whose candidates are fitted faster together: their fits on one fold share work.
SHARING_FAMILIES = ("linear", "knn")


@check_constructor
@dataclass(eq=False, repr=False)
class RouterCV(BaseRouter):
    """Chooses margins, strength and, if asked, the family of the router, then fits it on all rows.

    Every candidate is judged by the mean cost of its choices on held-out rows. The p - 1 ratios of the
    margins are searched around the theory; their scale is redundant with alpha for linear routers. Also
    tried are margins proportional to a power of how often each expert is cheapest. Linear candidates are
    fitted along paths, each starting from the last.

    Parameters
    ----------
    estimator : LinearRouter, default=None
        The router to search around; None for one with default parameters.
    alphas : sequence of float, default=None
        Strengths to try; None for 1e-4 to 1 in steps of ten.
    margin_factors : sequence of float, default=(0.5, 1.0, 2.0)
        Factors by which single margins are moved against the first one. With ``(1.0,)`` the estimator's
        margins are kept, without exponents.
    margin_exponents : sequence of float, default=(0, 1/6, 1/3, 1/2)
        Exponents of margins proportional to a power of how often (at least once) each expert is cheapest,
        where the stationary rule decides; () for none.
    max_margins : int, default=81
        The largest number of margin vectors. Beyond it, single margins are moved instead of the full
        product.
    grid : {"ratios", "paper"}, default="ratios"
        "ratios", or "paper": step 1 on [rho* - 5, rho* + 5] per expert, by default at the estimator's
        alpha.
    families : {"all", "auto"}, str or sequence of str, default=None
        None searches linear routers only, "all" every family, and "auto" all but the network. The names
        are linear, ridge, knn, neural and stack. The stack blends the best of each family by
        the folds it is then judged on, so its own cost is slightly optimistic.
    candidates : sequence of routers, default=()
        Further routers to try, unfitted, such as ``[KNNRouter(3)]``. The family of each is its class, in
        lower case.
    margin_strengths : int, default=None
        Number of strengths at which margins other than the estimator's are tried: those at which its own
        are best. None for 2 with a stack and for all otherwise.
    cv : int, splitter, list of tuple or None, default=None
        The folds: their number, one of scikit-learn's splitters, or pairs of the rows to fit on and the
        held-out rows. None for 5, and for 10 in ``mild.tune`` with a target and fewer than 500 queries.
    one_standard_error : bool, default=True
        Whether to take the simplest candidate whose paired difference to the best is within one standard
        error. A stack, if there is one, is taken unless another candidate beats it by more than an
        interval that allows for the number of candidates.
    constant_if_better : bool, default=True
        Whether to decide as the best constant unless the winner's mean cost on held-out rows is lower.
    safe : bool, default=False
        Whether to decide as the best constant unless the winner beats it by more than its interval.
    confidence : float, default=0.95
        Confidence level of the interval of the winner's gain over the best constant, which holds for all
        candidates at once.
    search_tol : float, default=5e-3
        How well candidates are solved, as a share of what there is to learn; at most 1e-4 with few rows.
        The final fit uses the estimator's own tolerance.
    n_jobs : int, default=None
        Number of joblib workers, on any joblib backend.
    progress : callable, default=None
        Called as ``progress(done, total, message)``.
    random_state : int, default=0
        Seed of the folds, of the families that draw random numbers, and of the intervals.

    Attributes
    ----------
    best_estimator_ : BaseRouter
        The fitted winner.
    best_params_, best_family_, best_index_ : dict, str, int
        What won.
    choice_ : str
        Why it won: "lowest mean cost", "one standard error" or "stack".
    decides_as_constant_ : bool
        Whether the router decides as the best constant instead.
    cv_results_ : dict of list
        One entry per candidate of family, params, mean_cost, standard_error and difference (to the
        constant).
    held_out_, held_out_constants_ : ndarray of shape (n_samples,)
        Out-of-fold choices of the winner and of the best constant; -1 in rows that no fold holds out.
    verdict_ : Verdict
        Whether routing pays.
    interrupted_ : bool
        Whether the search was stopped early.
    skipped_families_ : list of str
        Families left out because a package is missing.
    dropped_margins_ : int
        Number of margin vectors left out: not positive in the paper's grid, or beyond ``max_margins``.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 40).reshape(-1, 1)
    >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
    >>> search = RouterCV(alphas=[0.01], cv=2).fit(X, costs)
    >>> search.best_family_, search.predict([[-0.5], [0.5]]).tolist()
    ('linear', [0, 1])
    """

    estimator: LinearRouter | None = None
    _: KW_ONLY
    alphas: Sequence[float] | None = None
    margin_factors: Sequence[float] = (0.5, 1.0, 2.0)
    margin_exponents: Sequence[float] = (0.0, 1 / 6, 1 / 3, 1 / 2)
    max_margins: int = 81
    grid: str = "ratios"
    families: Any = None
    candidates: Sequence[Any] = ()
    margin_strengths: int | None = None
    cv: Any = None
    one_standard_error: bool = True
    constant_if_better: bool = True
    safe: bool = False
    confidence: float = 0.95
    search_tol: float = 5e-3
    n_jobs: int | None = None
    progress: Progress | None = None
    random_state: Any = 0

    @check_arguments
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Learn from inputs and costs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            What each expert costs; NaN where it was never asked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        groups : array-like of shape (n_samples,), default=None
            Labels as in scikit-learn: rows of one group stay in one fold, where ``cv`` is a number or a
            splitter of groups, and count once in the verdict.

        Returns
        -------
        self : RouterCV
            The fitted search.
        """
        inputs, costs, weight = self._check_fit(X, y, sample_weight)
        group_numbers = None
        if groups is not None:
            group_numbers = label_numbers(groups, len(costs), "groups")
        self.policy_ = self._fit(inputs, costs, weight, group_numbers).with_ranks(self._ranks)
        return self

    def _fit(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        groups: IntArray | None = None,
    ) -> Policy:
        """Judge all candidates on held-out rows, and return the policy of the winner or of the constant."""
        check_jobs(self.n_jobs)
        self._check_margin_factors()
        self._warn_if_degenerate(costs)
        if sample_weight is not None:
            # Only ratios matter; with a mean of 1 a weight counts as that many copies of the row.
            sample_weight = sample_weight / sample_weight[sample_weight > 0].mean()
        folds = self._folds(X, costs, groups)
        data = SearchData(X, costs, sample_weight, folds, groups, self._ranks)
        plan = self._plan(self._candidates(X, costs, sample_weight))

        search = Search(data, self.search_tol, self.n_jobs, self.progress, plan.n_candidates)
        search.run(plan.first)
        if plan.moved and not search.interrupted:
            # Moved margins are tried only at the strengths that were best for the central margins.
            best_strengths = _best_strengths(search, plan.n_strengths)
            search.run([moved for moved in plan.moved if moved.params["alpha"] in best_strengths])
        # The stack is made from the best of the candidates above.
        if plan.with_stack and not search.interrupted:
            self._add_stack(search)
        return self._choose(search)

    def _check_margin_factors(self) -> None:
        """Refuse factors that are not positive, or none at all."""
        if not np.size(self.margin_factors):
            raise invalid("margin_factors", "must hold at least one factor; got none.")
        float_vector("margin_factors", np.atleast_1d(self.margin_factors), positive=True)

    def _folds(self, X: Any, costs: FloatArray, groups: IntArray | None = None) -> Folds:
        """Return the training rows and the held-out rows of each fold."""
        cv = 5 if self.cv is None else self.cv
        if isinstance(cv, (int, np.integer)):
            cv = self._shuffled_folds(int(cv), X.shape[0], groups)
        with warnings.catch_warnings():
            # A splitter without groups is what was asked for; groups count in the verdict.
            warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
            return list(check_cv(cv).split(X, costs, groups))

    def _shuffled_folds(self, n_folds: int, n_samples: int, groups: IntArray | None) -> Any:
        """Return a splitter into ``n_folds``, which keeps groups together if there are any."""
        if n_folds < 2:
            raise invalid("cv", f"must be at least 2 folds; got {n_folds}.")
        unit = "samples"
        n_units = n_samples
        splitter: Any = KFold
        if groups is not None:
            unit = "groups"
            n_units = groups.max() + 1
            splitter = GroupKFold
        if n_folds > n_units:
            got = f"cv={n_folds} for n_{unit}={n_units}"
            raise invalid("cv", f"must not exceed the number of {unit}; got {got}.")
        return splitter(n_folds, shuffle=True, random_state=self.random_state)

    def _candidates(
        self, X: Any, costs: FloatArray, sample_weight: FloatArray | None
    ) -> list[Candidate]:
        """List all candidates but the stack, which is made from the best of them."""
        base = self.estimator
        if base is None:
            base = LinearRouter()
        if not isinstance(base, LinearRouter):
            raise invalid(
                "estimator",
                f"must be a LinearRouter; got {type(base).__name__}. Other routers are searched by "
                f"families=...",
            )
        base._check_options()
        self._families, self.skipped_families_ = parse_families(self.families)
        candidates: list[Candidate] = []
        self.dropped_margins_ = 0
        if not self._families or "linear" in self._families:
            candidates, self.dropped_margins_ = linear_candidates(
                base, X, costs, sample_weight, self
            )
        candidates += family_candidates(self._families, self.alphas, self.random_state, base.ties)
        candidates += further_candidates(self.candidates, base.ties)
        if not candidates:
            rule = "must name at least one family besides the stack"
            raise invalid("families", f"{rule}; got only 'stack'.")
        return candidates

    def _plan(self, candidates: list[Candidate]) -> SearchPlan:
        """Decide in which order candidates are judged, and what is made from the best of them."""
        with_stack = "stack" in self._families and len(candidates) > 1
        # A linear router is but one member of a stack: its margins need fewer strengths.
        n_strengths = STACK_STRENGTHS
        if self.margin_strengths is not None:
            n_strengths = self.margin_strengths
        in_two_steps = with_stack or self.margin_strengths is not None
        has_centre = any(candidate.has_central_margins for candidate in candidates)
        if not in_two_steps or not has_centre:
            return SearchPlan(candidates, [], n_strengths, with_stack)
        first = [candidate for candidate in candidates if not candidate.has_moved_margins]
        moved = [candidate for candidate in candidates if candidate.has_moved_margins]
        return SearchPlan(first, moved, n_strengths, with_stack)

    def _add_stack(self, search: Search) -> None:
        """Fit a stack of the best candidates, and add it to the search unless it is interrupted."""
        data = search.data
        members = _stack_members(search)
        estimators = []
        known_costs = {}
        for name, index in members.items():
            estimators.append((name, clone(search.candidates[index].router)))
            if index in search.expected_costs:
                known_costs[name] = search.expected_costs[index]
        router: Any = BlendRouter(
            estimators, cv=data.folds, n_jobs=self.n_jobs, average_rows=AVERAGE_ROWS
        )
        named_costs = NamedCosts.of(data.costs, self.expert_names_, data.ranks)
        try:
            router.fit(data.X, named_costs, data.sample_weight, known_costs=known_costs)
        except KeyboardInterrupt:
            search.interrupted = True
            return
        stack = Candidate("stack", router, {"members": list(members)}, (4.0, 0.0, 0.0))
        search.add(stack, router.held_out_)
        search.report(len(data.folds), "stack")

    def _choose(self, search: Search) -> Policy:
        """Choose the winner, fit it on all rows, and return the policy to decide by.

        This is the winner's, or that of the best constant where the winner is not good enough.
        """
        data = search.data
        results = search.complete_results()
        comparable = data.comparable_costs(results.choices)
        index = self._winner(results, comparable)
        self._set_results(results, comparable, index)
        self.held_out_constants_ = data.held_out_constants()
        self.interrupted_ = search.interrupted
        if search.interrupted:
            n_judged = count_noun(len(results.candidates), "candidate")
            warnings.warn(
                f"the search was stopped: {n_judged} judged on every fold, and the best of them is kept.",
                TuningInterruptedWarning,
                stacklevel=3,
            )

        self.best_estimator_: BaseRouter = self._fitted(results.candidates[index], data)
        gain = data.gain_over_constant(results.choices[:, index])
        self.decides_as_constant_ = self._prefers_constant(gain, results.rounding_error)
        if not self.decides_as_constant_:
            return self.best_estimator_.policy_
        means = mean_costs(data.costs, data.sample_weight).astype(data.X.dtype)
        return ConstantPolicy(means, data.X.shape[1], comparable.best_constant)

    def _fitted(self, winner: Candidate, data: SearchData) -> BaseRouter:
        """Return the router of a candidate, fitted on all rows."""
        router = winner.router
        if winner.family != "stack":  # a stack is fitted already
            named_costs = NamedCosts.of(data.costs, self.expert_names_, data.ranks)
            router = clone(router).fit(data.X, named_costs, sample_weight=data.sample_weight)
        router.expert_names_ = self.expert_names_
        return router

    def _prefers_constant(self, gain: float, rounding_error: float) -> bool:
        """Whether to decide as the best constant, given the gain of the winner and the verdict on it."""
        gains_nothing = gain <= rounding_error
        if self.constant_if_better and gains_nothing:
            return True
        return bool(self.safe and self.verdict_.pays is not True)

    def _winner(self, results: CompleteResults, comparable: ComparableCosts) -> int:
        """Return the index of the candidate to take; sets ``choice_``, which says why."""
        lowest = first_smallest(results.mean_costs)
        index = lowest
        if results.candidates[-1].family == "stack":
            # A candidate must beat the stack on all rows, and on those that the verdict is about.
            beats_on_all_rows = self._beats_stack(results.drawn_costs, lowest)
            if not beats_on_all_rows or not self._beats_stack(comparable.drawn_costs, lowest):
                index = len(results.candidates) - 1
        elif self.one_standard_error:
            index = _simplest_near(results, lowest)

        self.choice_ = "lowest mean cost"
        if index != lowest:
            self.choice_ = "one standard error"
            if results.candidates[index].family == "stack":
                self.choice_ = "stack"
        return index

    def _beats_stack(self, costs: FloatArray, index: int) -> bool:
        """Whether a candidate beats the stack (the last one) by an interval that holds for all of them.

        ``costs`` (n, m) has a row per independent draw: per sample or, if there are groups, per group.
        """
        n_drawn = len(costs)
        if n_drawn < 2:
            return False
        difference = costs[:, index] - costs[:, -1]
        # Two-sided, at the level that allows for as many comparisons as there are candidates.
        coverage = 1 - 2 * (1 - self.confidence) / costs.shape[1]
        reach = student_quantile(coverage, n_drawn - 1) * difference.std(ddof=1)
        rounding_error = OUTCOME_TOLERANCE * float(np.abs(costs).max())
        return bool(difference.mean() + reach / math.sqrt(n_drawn) < -rounding_error)

    def _set_results(
        self, results: CompleteResults, comparable: ComparableCosts, index: int
    ) -> None:
        """Set the attributes that say which candidate won, and what all of them cost."""
        winner = results.candidates[index]
        self.best_index_ = index
        self.best_family_ = winner.family
        self.best_params_ = dict(winner.params)
        self.held_out_ = results.choices[:, index]
        self.verdict_ = self._verdict(comparable, index)

        costs = comparable.candidates
        means = costs.mean(axis=0)
        standard_errors = costs.std(axis=0) / math.sqrt(len(costs))
        self.cv_results_ = {
            "family": [candidate.family for candidate in results.candidates],
            "params": [candidate.params for candidate in results.candidates],
            "mean_cost": means.tolist(),
            "standard_error": standard_errors.tolist(),
            "difference": (means - comparable.constant.mean()).tolist(),
        }

    def _verdict(self, comparable: ComparableCosts, index: int) -> Verdict:
        """Return the verdict on whether a candidate costs less than the best constant.

        Its interval is that of the mean difference in cost. It holds for all candidates at once, because
        the candidate was chosen on the same rows.
        """
        if comparable.groups is None:
            unit = "row"
            groups = np.arange(len(comparable.constant))
            groups_of_tables = None
        else:
            unit = "group"
            groups = comparable.groups
            groups_of_tables = [groups]
        differences = comparable.candidates - comparable.constant[:, None]
        n_candidates = differences.shape[1]
        intervals = split_intervals(
            [differences], groups_of_tables, self.confidence, self.random_state
        )
        estimate, low, high = intervals.row(index)
        # Of the candidate and of the constant, which has the last column.
        is_known = comparable.is_known[:, [index, n_candidates]]
        n_rows, n_groups = count_judged(is_known, groups)
        return Verdict(
            estimate=estimate,
            low=low,
            high=high,
            confidence=self.confidence,
            constant=self.expert_names_[comparable.best_constant],
            constant_expert=comparable.best_constant,
            router_cost=float(comparable.candidates[:, index].mean()),
            constant_cost=float(comparable.constant.mean()),
            n_candidates=n_candidates,
            n_rows=n_rows,
            n_groups=n_groups,
            unit=unit,
            left_out=comparable.left_out,
            notes=(count_noun(n_candidates, "candidate"),),
        )


@dataclass(frozen=True)
class SearchPlan:
    """In which order candidates are judged.

    Attributes
    ----------
    first : candidates that are judged first: all but ``moved``
    moved : linear candidates whose margins are not those at the centre of the search
    n_strengths : ``moved`` are tried at this many strengths, those that were best for the central margins
    with_stack : whether a stack of the best candidates is added
    """

    first: list[Candidate]
    moved: list[Candidate]
    n_strengths: int
    with_stack: bool

    @property
    def n_candidates(self) -> int:
        """Return how many candidates will be judged, for the progress."""
        n_candidates = len(self.first) + self.with_stack
        if self.moved:
            strengths = {candidate.params["alpha"] for candidate in self.moved}
            n_tried = min(self.n_strengths, len(strengths))
            n_candidates += len(self.moved) * n_tried // len(strengths)
        return n_candidates


@dataclass(frozen=True)
class SearchData:
    """Rows and folds of a search."""

    X: Any
    costs: FloatArray
    sample_weight: FloatArray | None
    folds: Folds
    groups: IntArray | None = None
    ranks: IntArray | None = None  # (n_experts,) which decide ties between experts

    def paid(self, choices: IntArray) -> FloatArray:
        """Return what the choices (n, m) of m candidates cost; NaN for -1 and where that is unknown."""
        costs = np.take_along_axis(self.costs, np.maximum(choices, 0), axis=1)
        return np.where(choices < 0, np.nan, costs.astype(np.float64, copy=False))

    def best_constant(self) -> int:
        """Return the expert of least mean cost over all rows."""
        return common_constant(self.costs, self.sample_weight, self.ranks)

    def held_out_constants(self) -> IntArray:
        """Return the best constant as choices (n,): in rows that a fold holds out, -1 in others."""
        constants = np.full(len(self.costs), -1, dtype=np.intp)
        expert = self.best_constant()
        for _, test in self.folds:
            constants[test] = expert
        return constants

    def gain_over_constant(self, choices: IntArray) -> float:
        """Return how much less the choices (n,) cost than the best constant, where both are known.

        These are more rows than those in which every expert was asked: a new expert may have been asked
        in few, which say little of the choices among the others.
        """
        both = self.paid(np.column_stack([choices, self.held_out_constants()]))
        both[np.isnan(both).any(axis=1)] = np.nan
        chosen, constant = linearised_rows(both, self.sample_weight).mean(axis=0)
        return float(constant - chosen)

    def comparable_costs(self, choices: IntArray) -> ComparableCosts:
        """Return what the choices (n, m) of candidates cost on rows on which experts are comparable.

        These are the rows in which every expert was asked, if there are enough (``common_rows``).
        """
        common = common_rows(self.costs)
        groups = self.groups
        if groups is not None:
            groups = groups[common.rows]
        with_constant = np.column_stack([choices, self.held_out_constants()])
        paid = self.paid(with_constant)[common.rows]
        costs = linearised_rows(paid, weights_of(self.sample_weight, common.rows))
        return ComparableCosts(
            costs[:, :-1],
            costs[:, -1],
            ~np.isnan(paid),
            groups,
            self.best_constant(),
            common.sentence,
        )


@dataclass(frozen=True, eq=False)
class CompleteResults:
    """What the m candidates that were judged on every fold did on held-out rows.

    Attributes
    ----------
    candidates : list of the m candidates
    choices : (n_samples, m) array, chosen experts; -1 in rows that no fold holds out
    costs : (n_samples, m) array, what the choices cost, made by ``linearised_rows``: the plain mean of a
        column is the candidate's mean cost, whatever is weighted or missing
    groups : (n_samples,) array, or None
    """

    candidates: list[Candidate]
    choices: IntArray
    costs: FloatArray
    groups: IntArray | None

    @property
    def mean_costs(self) -> FloatArray:
        """Mean cost (m,) of each candidate."""
        return self.costs.mean(axis=0)

    @property
    def drawn_costs(self) -> FloatArray:
        """Costs of what was drawn independently: rows, or groups."""
        return _drawn_costs(self.costs, self.groups)

    @property
    def rounding_error(self) -> float:
        """How far rounding can move mean costs of the same choices; it must not decide."""
        return OUTCOME_TOLERANCE * float(np.abs(self.mean_costs).max())


@dataclass(frozen=True, eq=False)
class ComparableCosts:
    """Held-out costs on rows on which all experts can be compared.

    Attributes
    ----------
    candidates : (n, m) array, costs of m candidates, made by ``linearised_rows``
    constant : (n,) array, costs of the best constant, in the same way
    is_known : (n, m + 1) array, whether the cost is known, in the last column the constant's
    groups : (n,) array, or None
    best_constant : index of the expert
    left_out : sentence about rows that are left out, or None
    """

    candidates: FloatArray
    constant: FloatArray
    is_known: BoolArray
    groups: IntArray | None
    best_constant: int
    left_out: str | None

    @property
    def drawn_costs(self) -> FloatArray:
        """Costs of the candidates for what was drawn independently: rows, or groups."""
        return _drawn_costs(self.candidates, self.groups)


def _drawn_costs(costs: FloatArray, groups: IntArray | None) -> FloatArray:
    """Return costs (n, m) per group, with the same means; per row where there are no groups.

    Rows of a group are alike, so a standard error over rows would be too small.
    """
    if groups is None:
        return costs
    return grouped_rows(costs, groups)


def _simplest_near(results: CompleteResults, lowest: int) -> int:
    """Return the index of the simplest candidate within one standard error of the lowest cost."""
    means = results.mean_costs
    drawn = results.drawn_costs
    standard_error = (drawn - drawn[:, [lowest]]).std(axis=0) / math.sqrt(len(drawn))
    is_near = means - means[lowest] <= standard_error + results.rounding_error
    ranks = tie_ranks(means)

    def complexity_then_cost(index: int) -> tuple[tuple[float, ...], int]:
        return results.candidates[index].complexity, ranks[index]

    return min(np.flatnonzero(is_near).tolist(), key=complexity_then_cost)


@dataclass(eq=False)
class BlockResult:
    """What some candidates did on the rows that one fold holds out, by the number of the candidate."""

    fold: int
    choices: dict[int, IntArray] = field(default_factory=dict)  # (n_test,) experts
    # (n_test, p), of candidates that a stack may take for how well they estimate costs
    expected_costs: dict[int, FloatArray] = field(default_factory=dict)


@dataclass
class Search:
    """Judges candidates on every fold; if it is interrupted, it keeps those that are complete.

    Candidates have numbers, in the order in which they are added.
    """

    data: SearchData
    tol: float  # of linear routers
    n_jobs: int | None
    progress: Progress | None
    n_candidates: int  # how many will be judged, for the progress
    interrupted: bool = False
    candidates: list[Candidate] = field(default_factory=list)
    choices: IntArray = field(init=False)  # (n, n_candidates) experts, for held-out rows
    # By the number of the candidate, for those that need it, on held-out rows: expected costs (n, p), which
    # a stack takes over, and (3,) ``products`` of expected and true costs, which say how well costs are
    # estimated.
    expected_costs: dict[int, FloatArray] = field(default_factory=dict)
    cost_products: dict[int, FloatArray] = field(default_factory=dict)
    n_fits: int = 0  # so far

    def __post_init__(self) -> None:
        self.choices = np.empty((len(self.data.costs), 0), dtype=np.intp)

    def report(self, n_fits: int, message: str) -> None:
        """Report that some more fits are done."""
        self.n_fits += n_fits
        if self.progress is not None:
            self.progress(self.n_fits, self.n_candidates * len(self.data.folds), message)

    def add(self, candidate: Candidate, choices: IntArray) -> None:
        """Add a candidate that was judged elsewhere, and its choices (n,) for held-out rows."""
        self.candidates = [*self.candidates, candidate]
        self.choices = np.column_stack([self.choices, choices])

    def mean_costs(self) -> FloatArray:
        """Return the mean cost (m,) of each candidate's choices; NaN for those that are incomplete."""
        paid = self.data.paid(self.choices)
        return linearised_rows(paid, self.data.sample_weight).mean(axis=0)

    def complete_results(self) -> CompleteResults:
        """Return the results of the candidates that were judged on every fold."""
        costs = linearised_rows(self.data.paid(self.choices), self.data.sample_weight)
        complete = np.flatnonzero(~np.isnan(costs).any(axis=0))
        candidates = [self.candidates[index] for index in complete]
        return CompleteResults(
            candidates, self.choices[:, complete], costs[:, complete], self.data.groups
        )

    def run(self, candidates: list[Candidate]) -> None:
        """Judge further candidates on every fold, in parallel.

        If the search is interrupted, candidates that were not judged on every fold get choices of -1.
        The interrupt is raised again only if there is no complete candidate.
        """
        n_folds = len(self.data.folds)
        n_before = len(self.candidates)
        self._make_room(candidates)
        numbered = dict(enumerate(candidates, n_before))
        tasks = [(fold, block) for block in _blocks(numbered) for fold in range(n_folds)]
        calls = [delayed(_judge_block)(self.data, fold, block, self.tol) for fold, block in tasks]
        block_results = parallel_results(calls, self.n_jobs, in_order=False)
        n_folds_judged = dict.fromkeys(numbered, 0)
        try:
            for result in block_results:
                self._record(result)
                for index in result.choices:
                    n_folds_judged[index] += 1
                self.report(len(result.choices), f"fold {result.fold + 1}")
        except KeyboardInterrupt:
            with warnings.catch_warnings():
                # joblib warns about the tasks that it abandons.
                warnings.simplefilter("ignore", UserWarning)
                block_results.close()
            if n_before == 0 and n_folds not in n_folds_judged.values():
                raise
            self.interrupted = True
        for index, n_judged in n_folds_judged.items():
            if n_judged < n_folds:
                self.choices[:, index] = -1

    def _make_room(self, candidates: list[Candidate]) -> None:
        """Add candidates, with empty arrays for their results."""
        shape = self.data.costs.shape
        dtype = self.data.X.dtype
        for index, candidate in enumerate(candidates, len(self.candidates)):
            if candidate.family != "linear":
                # Linear ones are fitted to a coarser tolerance here than in a stack, which fits them again.
                self.expected_costs[index] = np.full(shape, np.nan, dtype)
        self.candidates = [*self.candidates, *candidates]
        not_judged = np.full((shape[0], len(candidates)), -1, dtype=np.intp)
        self.choices = np.column_stack([self.choices, not_judged])

    def _record(self, result: BlockResult) -> None:
        """Add what some candidates did on the rows that one fold holds out."""
        test = self.data.folds[result.fold][1]
        weight = weights_of(self.data.sample_weight, test)
        for index, choices in result.choices.items():
            self.choices[test, index] = choices
        for index, expected in result.expected_costs.items():
            fold_products = products(expected, self.data.costs[test], weight)
            self.cost_products[index] = self.cost_products.get(index, 0) + fold_products
            if index in self.expected_costs:
                self.expected_costs[index][test] = expected


def _best_strengths(search: Search, n_strengths: int) -> set[float]:
    """Return the strengths at which the margins at the centre of the search cost least."""
    by_cost = np.argsort(tie_ranks(search.mean_costs()), kind="stable")
    ordered = [search.candidates[index] for index in by_cost]
    central = [candidate for candidate in ordered if candidate.has_central_margins]
    return {candidate.params["alpha"] for candidate in central[:n_strengths]}


def _stack_members(search: Search) -> dict[str, int]:
    """Return the number of the candidate to take for each member of a stack, by the member's name.

    Among candidates that estimate costs it is the one whose estimates explain the largest share of the
    differences between experts; among those that are fitted for the decision, the one whose choices cost
    least.
    """
    losses = search.mean_costs()
    for index, candidate in enumerate(search.candidates):
        if candidate.estimates_costs:
            losses[index] = -explained(search.cost_products[index])
    best: dict[str, int] = {}
    for index, candidate in enumerate(search.candidates):
        name = candidate.member
        if name not in best or is_less(losses[index], losses[best[name]], ESTIMATE_TOLERANCE):
            best[name] = index
    return best


def _blocks(candidates: dict[int, Candidate]) -> list[dict[int, Candidate]]:
    """Divide candidates, by number, into blocks that are fitted together.

    Neighbours of a family that shares work make blocks of up to ``BLOCK``; other candidates are alone.
    """
    blocks: list[dict[int, Candidate]] = []
    for family, neighbours in groupby(candidates.items(), key=lambda item: item[1].family):
        numbered = list(neighbours)
        size = 1
        if family in SHARING_FAMILIES:
            size = BLOCK
        blocks.extend(
            dict(numbered[start : start + size]) for start in range(0, len(numbered), size)
        )
    return blocks


def _judge_block(
    data: SearchData, fold: int, block: dict[int, Candidate], tol: float
) -> BlockResult:
    """Fit candidates on the training rows of one fold, and predict its held-out rows.

    Parameters
    ----------
    data : SearchData
        All rows, and the folds.
    fold : int
        Number of the fold.
    block : dict of int to Candidate
        The candidates, by their numbers in the search.
    tol : float
        Tolerance of linear routers.

    Returns
    -------
    result : BlockResult
    """
    train, test = data.folds[fold]
    X = data.X[train]
    costs = data.costs[train]
    weight = weights_of(data.sample_weight, train)
    held_out = data.X[test]
    routers = {index: candidate.router for index, candidate in block.items()}
    result = BlockResult(fold)
    if weight is None and all(isinstance(router, KNNRouter) for router in routers.values()):
        # They differ in the number of neighbours alone, so the distances are computed once for all.
        result.expected_costs = _nearest_costs(routers, X, costs, held_out)
        for index, expected in result.expected_costs.items():
            result.choices[index] = cheapest_expected(expected, data.ranks)
        return result

    path = None
    if any(isinstance(router, LinearRouter) for router in routers.values()):
        path = LinearPath(X, weights_or_ones(weight, len(train)))
    for index in _solving_order(block):
        candidate = block[index]
        with no_convergence_warnings():
            if isinstance(candidate.router, LinearRouter):
                # The solver starts at the solution of the last candidate.
                router = copy.copy(candidate.router)
                policy = router._fit_from(X, costs, weight, path=path, search_tol=tol)
            else:
                fitted = clone(candidate.router).fit(X, costs, sample_weight=weight)
                policy = fitted.policy_
        result.choices[index] = policy.with_ranks(data.ranks).predict(held_out)
        if candidate.estimates_costs:
            result.expected_costs[index] = believed_costs(policy, held_out)
    return result


def _solving_order(block: dict[int, Candidate]) -> list[int]:
    """Return the numbers of the candidates in the order in which the solver goes from one to the next.

    Label-based losses come last, with strong penalties first: with a weak penalty they are hard to solve
    from far away.
    """

    def loss_and_penalty(index: int) -> tuple[str, float]:
        router: Any = block[index].router
        loss = getattr(router, "loss", "")
        if loss in LABEL_LOSSES:
            return loss, -router.alpha
        return "", 0.0

    return sorted(block, key=loss_and_penalty)


def _nearest_costs(
    routers: dict[int, Any], X: Any, costs: FloatArray, held_out: Any
) -> dict[int, FloatArray]:
    """Return the expected costs (n_test, p) of KNN routers, from one set of distances."""
    largest = max(routers.values(), key=lambda router: int(router.n_neighbors))
    policy = clone(largest).fit(X, costs).policy_
    counts = [min(int(router.n_neighbors), policy.n_neighbors) for router in routers.values()]
    expected = policy.costs_by_neighbours(held_out, counts)
    return dict(zip(routers, expected, strict=True))
