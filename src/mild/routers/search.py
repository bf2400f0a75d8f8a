"""Search for a router by cross-validated deferral loss, and a verdict on whether routing pays."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from typing import Any, Self

import joblib
import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, check_cv

from mild.core.arrays import BoolArray, FloatArray, IntArray, check_jobs, float_vector, invalid
from mild.core.costs import cheapest_expected
from mild.core.rounding import ESTIMATES, OUTCOMES, first_least, is_less, tie_ranks
from mild.errors import TuningInterruptedWarning, check_arguments, check_constructor, counted
from mild.metrics import (
    Verdict,
    common_constant,
    common_rows,
    count_judged,
    difference_intervals,
    linearised_rows,
)
from mild.metrics.intervals import grouped_rows, student_quantile
from mild.policies import ConstantPolicy, Policy, believed_costs
from mild.routers.base import (
    BaseRouter,
    NamedCosts,
    label_numbers,
    no_convergence_warnings,
)
from mild.routers.baselines import mean_costs
from mild.routers.candidates import (
    Candidate,
    cross_fitted_bias,
    family_candidates,
    further_candidates,
    linear_candidates,
    parse_families,
)
from mild.routers.cost_models import KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import LABEL_LOSSES
from mild.routers.solver import LinearPath
from mild.routers.stack import StackRouter, explained, products

Progress = Callable[[int, int, str], None]
# Candidates of one fold per task.
BLOCK = 16
# Rows per member that draw the weights of the blend towards an average of the members.
AVERAGE_ROWS = 150.0
# With a stack, other margins than the centre of the search are tried at this many strengths.
STACK_STRENGTHS = 2
# Rows of X, at most, by which a memory recognises the inputs.
MEMORY_ROWS = 500
# Families whose candidates of one fold share work.
SHARING = ("linear", "knn")


@check_constructor
@dataclass(eq=False, repr=False)
class RouterCV(BaseRouter):
    """Chooses margins, strength and, if asked, the family of the router, then fits it on all rows.

    Every candidate is judged by the mean cost of its choices on held-out rows. The p - 1 ratios of the
    margins are searched around the theory; their scale is redundant with alpha for linear routers. Also
    tried are margins proportional to a power of how often each expert is cheapest, and a bias per expert
    with equal margins. Linear candidates are fitted along paths, each starting from the last.

    Parameters
    ----------
    estimator : LinearRouter to search around; None for the default one
    alphas : strengths to try; None for 1e-4 to 1 in steps of ten
    margin_factors : factors by which single margins are moved against the first one; (1.0,) keeps the
        estimator's margins, without exponents and bias
    margin_exponents : exponents of margins proportional to a power of how often (at least 1) each expert
        is cheapest, where the stationary rule decides; () for none
    bias : whether a bias per expert is tried, found on held-out scores and judged on other folds
    max_margins : margin vectors at most; beyond, single margins are moved instead of the full product
    grid : "ratios", or "paper": step 1 on [rho* - 5, rho* + 5] per expert, by default at the estimator's
        alpha
    families : None (linear only), "all", "auto" (all but the network), or names among linear, regression,
        knn, clusters, mlp, stack; the stack blends the best of each family by the folds it is then judged
        on, so its own cost is slightly optimistic
    candidates : further routers to try, unfitted, such as ``[KNNRouter(3)]``; the family of each is its
        class, in lower case
    objective : for ``mild.tune``: an object whose ``choose(held_out)`` takes a setting of the router
        (``mild.tuning.objectives.Objective``); None for the lowest cost, or a target
    margin_strengths : at how many strengths other margins than the estimator's are tried: those at which
        its own margins are best; None for 2 with a stack and for all otherwise
    cv : number of folds, a scikit-learn splitter, or a list of (rows to fit on, held-out rows)
    one_standard_error : take the simplest candidate whose paired difference to the best is within one
        standard error; a stack, if there is one, is taken unless another beats it by more than an
        interval that allows for the number of candidates
    constant_if_better : decide as the best constant unless the winner's mean cost on held-out rows is
        lower
    safe : decide as the best constant unless the winner beats it by more than its interval
    confidence : confidence level of the interval of the winner's gain over the best constant, which holds
        for all candidates at once
    search_tol : how well candidates are solved, as a share of what there is to learn; at most 1e-4 with
        few rows. The final fit uses the estimator's own tolerance
    n_jobs : joblib workers, on any joblib backend
    progress : callable(done, total, message) or None
    random_state : int
    memory : SearchMemory that several searches share, so that a candidate is judged once on the same rows
        and folds; None to keep nothing

    Attributes
    ----------
    best_router_ : the fitted winner
    best_params_, best_family_, best_index_ : what won
    choice_ : why it won: "lowest mean cost", "one standard error" or "stack"
    decides_as_constant_ : whether the router decides as the best constant instead
    cv_results_ : dict of lists: family, params, mean_cost, standard_error, difference (to the constant)
    held_out_, held_out_constants_ : (n_samples,) out-of-fold choices of the winner and of the best
        constant; -1 in rows that no fold holds out
    verdict_ : ``mild.metrics.Verdict``: whether routing pays
    interrupted_ : whether the search was stopped early
    skipped_families_ : families left out because a package is missing
    dropped_margins_ : margin vectors left out: not positive in the paper's grid, or beyond max_margins

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
    bias: bool = True
    max_margins: int = 81
    grid: str = "ratios"
    families: Any = None
    candidates: Sequence[Any] = ()
    objective: Any = None
    margin_strengths: int | None = None
    cv: Any = 5
    one_standard_error: bool = True
    constant_if_better: bool = True
    safe: bool = False
    confidence: float = 0.95
    search_tol: float = 5e-3
    n_jobs: int | None = None
    progress: Progress | None = None
    random_state: Any = 0
    memory: SearchMemory | None = None

    @check_arguments
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        groups: Any = None,
    ) -> Self:
        """Learn from inputs X (n_samples, n_features) and costs y (n_samples, n_experts).

        Parameters
        ----------
        X, y, sample_weight : inputs, costs, and weights (n_samples,)
        groups : (n_samples,) labels as in scikit-learn: rows of one group stay in one fold, where ``cv`` is
            a number or a splitter of groups, and count once in the verdict
        """
        inputs, costs, weight = self._check_fit(X, y, sample_weight)
        numbers = None
        if groups is not None:
            numbers = label_numbers(groups, len(costs), "groups")
        self.policy_ = self._fit(inputs, costs, weight, numbers).with_ranks(self._ranks)
        return self

    def _fit(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        groups: IntArray | None = None,
    ) -> Policy:
        check_jobs(self.n_jobs)
        if not np.size(self.margin_factors):
            raise invalid("margin_factors", "must hold at least one factor; got none.")
        factors = self.margin_factors if np.ndim(self.margin_factors) else [self.margin_factors]
        float_vector("margin_factors", factors, positive=True)
        self._warn_if_degenerate(costs)
        if sample_weight is not None:
            # Only ratios matter; with a mean of 1 a weight counts as that many copies of the row.
            sample_weight = sample_weight / sample_weight[sample_weight > 0].mean()
        folds = self._folds(X, costs, groups)
        data = SearchData(X, costs, sample_weight, folds, groups, self._ranks)
        candidates = self._candidates(X, costs, sample_weight)
        stacked = "stack" in self._families and len(candidates) > 1
        biased = any(candidate.keeps_scores for candidate in candidates)
        moved: list[Candidate] = []
        # A linear router is but one member of a stack.
        at_most = STACK_STRENGTHS if self.margin_strengths is None else self.margin_strengths
        late = stacked or self.margin_strengths is not None
        if late and any(candidate.moved is False for candidate in candidates):
            moved = [candidate for candidate in candidates if candidate.moved]
            candidates = [candidate for candidate in candidates if not candidate.moved]
        strengths = {candidate.params["alpha"] for candidate in moved}
        n_moved = len(moved) * min(at_most, len(strengths)) // max(1, len(strengths))
        n_candidates = len(candidates) + n_moved + stacked + biased
        known = None if self.memory is None else self.memory.of(data, self.search_tol)
        search = Search(data, self.search_tol, self.n_jobs, self.progress, n_candidates, known)
        search.run(candidates)
        if moved and not search.interrupted:
            means = data.rows(data.paid(search.made)).mean(axis=0)
            best = _best_strengths(candidates, means, at_most)
            search.run([candidate for candidate in moved if candidate.params["alpha"] in best])
        candidates, made = search.candidates, search.made
        if biased and not search.interrupted:
            candidate, chosen = _with_bias(candidates, made, data, search.scores)
            search.report(len(data.folds), "bias")
            candidates, made = [*candidates, candidate], np.column_stack([made, chosen])
        if stacked and not search.interrupted:
            stack, known_costs = self._stack(candidates, data.paid(made), data, search)
            router: Any = stack.router
            try:
                named = NamedCosts.of(costs, self.expert_names_, self._ranks)
                router.fit(X, named, sample_weight, known_costs=known_costs)
            except KeyboardInterrupt:
                search.interrupted = True
            else:
                search.report(len(data.folds), "stack")
                candidates = [*candidates, stack]
                made = np.column_stack([made, router.held_out_])
        return self._choose(candidates, made, data, search.interrupted)

    def _folds(
        self, X: Any, costs: FloatArray, groups: IntArray | None = None
    ) -> list[tuple[IntArray, IntArray]]:
        cv = self.cv
        if isinstance(cv, (int, np.integer)):
            if cv < 2:
                raise invalid("cv", f"must be at least 2 folds; got {cv}.")
            most, what = (X.shape[0], "samples") if groups is None else (groups.max() + 1, "groups")
            if cv > most:
                got = f"cv={cv} for n_{what}={most}"
                raise invalid("cv", f"must not exceed the number of {what}; got {got}.")
            kind = KFold if groups is None else GroupKFold
            cv = kind(int(cv), shuffle=True, random_state=self.random_state)
        with warnings.catch_warnings():
            # A splitter without groups is what was asked for; groups count in the verdict.
            warnings.filterwarnings("ignore", "The groups parameter is ignored", UserWarning)
            return list(check_cv(cv).split(X, costs, groups))

    def _candidates(
        self, X: Any, costs: FloatArray, sample_weight: FloatArray | None
    ) -> list[Candidate]:
        base = LinearRouter() if self.estimator is None else self.estimator
        if not isinstance(base, LinearRouter):
            raise invalid(
                "estimator",
                f"must be a LinearRouter; got {type(base).__name__}. Other routers are searched by "
                f"families=...",
            )
        base._check_options()
        self._families, self.skipped_families_ = parse_families(self.families)
        found: list[Candidate] = []
        self.dropped_margins_ = 0
        if not self._families or "linear" in self._families:
            found, self.dropped_margins_ = linear_candidates(base, X, costs, sample_weight, self)
        found += family_candidates(self._families, self.alphas, self.random_state, base.ties)
        found += further_candidates(self.candidates, base.ties)
        if not found:
            rule = "must name at least one family besides the stack"
            raise invalid("families", f"{rule}; got only 'stack'.")
        return found

    def _stack(
        self,
        candidates: list[Candidate],
        outcome: FloatArray,
        data: SearchData,
        search: Search,
    ) -> tuple[Candidate, dict[str, FloatArray]]:
        """Stack of the best candidate of each family, linear losses and numbers of clusters apart.

        Also the expected costs of held-out rows that the search has kept. The best estimate of costs is
        that which explains most of the differences between experts; of routers that are fitted for the
        decision, that whose choices cost least.
        """
        means = data.rows(outcome).mean(axis=0)
        for index, candidate in enumerate(candidates):
            if candidate.estimates_costs:
                means[index] = -explained(search.fits[index])
        best: dict[str, int] = {}
        for index, candidate in enumerate(candidates):
            if "bias" in candidate.params:
                continue  # Costs are blended, and a bias distorts expected costs.
            name = candidate.member
            if name not in best or is_less(means[index], means[best[name]], ESTIMATES):
                best[name] = index
        members = [(name, clone(candidates[i].router)) for name, i in best.items()]
        router = StackRouter(members, cv=data.folds, n_jobs=self.n_jobs, average_rows=AVERAGE_ROWS)
        known_costs = {name: search.costs[i] for name, i in best.items() if i in search.costs}
        stack = Candidate("stack", router, {"members": list(best)}, (4.0, 0.0, 0.0))
        return stack, known_costs

    def _beats_stack(self, rows: FloatArray, index: int) -> bool:
        """Whether a candidate beats the stack, which comes last, by an interval for all candidates.

        ``rows`` are costs (n, m) of rows, or of groups, which then are what was drawn.
        """
        if len(rows) < 2:
            return False
        difference = rows[:, index] - rows[:, -1]
        coverage = 1 - 2 * (1 - self.confidence) / rows.shape[1]
        reach = student_quantile(coverage, len(rows) - 1) * difference.std(ddof=1)
        rounding_error = OUTCOMES * float(np.abs(rows).max())
        return bool(difference.mean() + reach / math.sqrt(len(rows)) < -rounding_error)

    def _choose(
        self, candidates: list[Candidate], made: IntArray, data: SearchData, interrupted: bool
    ) -> Policy:
        rows = data.rows(data.paid(made))
        tried = np.flatnonzero(~np.isnan(rows).any(axis=0))
        candidates, made, rows = [candidates[i] for i in tried], made[:, tried], rows[:, tried]
        means = rows.mean(axis=0)
        # Means of the same choices differ by rounding, which must not decide.
        rounding_error = OUTCOMES * float(np.abs(means).max())
        index = lowest = first_least(means)
        # All rows are used for the choice; results are reported on the rows that are comparable.
        common = common_rows(data.costs)
        kept = data.take(common.rows)
        if candidates[-1].family == "stack":
            level = kept.grouped(kept.rows(kept.paid(made[common.rows])))
            if not (
                self._beats_stack(data.grouped(rows), index) and self._beats_stack(level, index)
            ):
                index = len(candidates) - 1
        elif self.one_standard_error:
            drawn = data.grouped(rows)
            error = (drawn - drawn[:, [index]]).std(axis=0) / math.sqrt(len(drawn))
            near = np.flatnonzero(means - means[index] <= error + rounding_error)
            ranks = tie_ranks(means)
            index = int(min(near, key=lambda i: (candidates[i].complexity, ranks[i])))
        self.choice_ = "lowest mean cost"
        if index != lowest:
            stacked = candidates[index].family == "stack"
            self.choice_ = "stack" if stacked else "one standard error"
        expert = common_constant(data.costs, data.sample_weight, data.ranks)
        self.held_out_, self.held_out_constants_ = made[:, index], data.constants()
        both = kept.paid(np.column_stack([made, self.held_out_constants_])[common.rows])
        level = kept.rows(both)
        rows, constant = level[:, :-1], level[:, -1]
        means, root = rows.mean(axis=0), math.sqrt(len(rows))
        known = ~np.isnan(both[:, [index, -1]])
        self.verdict_ = self._verdict(level, known, index, expert, kept.groups, common.sentence)
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
                f"the search was stopped: {counted(len(candidates), 'candidate')} judged on every fold, "
                f"and the best of them is kept.",
                TuningInterruptedWarning,
                stacklevel=3,
            )
        router = candidates[index].router
        if self.best_family_ != "stack":  # which is fitted already
            named = NamedCosts.of(data.costs, self.expert_names_, data.ranks)
            router = clone(router).fit(data.X, named, sample_weight=data.sample_weight)
        router.expert_names_ = self.expert_names_
        self.best_router_: BaseRouter = router
        worse = self.constant_if_better and self.verdict_.estimate >= -rounding_error
        self.decides_as_constant_ = bool(worse or (self.safe and self.verdict_.pays is not True))
        if self.decides_as_constant_:
            means = mean_costs(data.costs, data.sample_weight).astype(data.X.dtype)
            return ConstantPolicy(means, data.X.shape[1], expert)
        return router.policy_

    def _verdict(
        self,
        level: FloatArray,
        known: BoolArray,
        chosen: int,
        expert: int,
        groups: IntArray | None,
        left_out: str | None,
    ) -> Verdict:
        """Verdict on candidate ``chosen`` against the constant ``expert``.

        ``level`` are the out-of-fold costs (n, m + 1) of the candidates and, last, of the constant, as
        ``linearised_rows`` gives them; ``known`` says (n, 2) whether the cost of the chosen candidate and
        of the constant is known.
        """
        labels = np.arange(len(level)) if groups is None else groups
        differences = level[:, :-1] - level[:, -1:]
        found = difference_intervals(
            [differences],
            None if groups is None else [labels],
            self.confidence,
            self.random_state,
        )
        estimate, low, high = found.row(chosen)
        n_rows, n_groups = count_judged(known, labels)
        n_candidates = differences.shape[1]
        return Verdict(
            estimate=estimate,
            low=low,
            high=high,
            confidence=self.confidence,
            constant=self.expert_names_[expert],
            constant_expert=expert,
            router_cost=float(level[:, chosen].mean()),
            constant_cost=float(level[:, -1].mean()),
            n_candidates=n_candidates,
            n_rows=n_rows,
            n_groups=n_groups,
            counted="row" if groups is None else "group",
            left_out=left_out,
            notes=(counted(n_candidates, "candidate"),),
        )


def _best_strengths(candidates: list[Candidate], means: FloatArray, count: int) -> set[float]:
    """The ``count`` strengths at which the margins at the centre of the search cost least."""
    by_cost = np.argsort(tie_ranks(means), kind="stable")
    centre = [index for index in by_cost if candidates[index].moved is False]
    return {candidates[index].params["alpha"] for index in centre[:count]}


def _with_bias(
    candidates: list[Candidate], made: IntArray, data: SearchData, scores: dict[int, FloatArray]
) -> tuple[Candidate, IntArray]:
    """The best of the candidates whose scores were kept, with a bias, and its held-out choices."""
    kept = list(scores)
    means = data.rows(data.paid(made[:, kept])).mean(axis=0)
    index = kept[first_least(means)]
    parent = candidates[index]
    margin = float(parent.params["margins"][0])
    rows = data.costs, data.sample_weight, data.folds
    bias, chosen = cross_fitted_bias(scores[index], *rows, margin)
    params = {**parent.params, "bias": tuple(bias.tolist())}
    router = clone(parent.router).set_params(bias=params["bias"])
    return Candidate("linear", router, params, (*parent.complexity, 1.0)), chosen


@dataclass(frozen=True)
class SearchData:
    """Rows and folds of a search."""

    X: Any
    costs: FloatArray
    sample_weight: FloatArray | None
    folds: list[tuple[IntArray, IntArray]]
    groups: IntArray | None = None
    ranks: IntArray | None = None  # (n_experts,) which decide ties between experts

    def take(self, rows: BoolArray) -> SearchData:
        """The costs, weights and groups of some rows, without folds."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        groups = None if self.groups is None else self.groups[rows]
        return SearchData(None, self.costs[rows], weight, [], groups)

    def rows(self, outcome: FloatArray) -> FloatArray:
        """Out-of-fold costs (n, m) as rows with plain means, whatever is weighted or missing."""
        return linearised_rows(outcome, self.sample_weight)

    def grouped(self, rows: FloatArray) -> FloatArray:
        """The same means, with one row per group: the rows of a group are alike, and are drawn together."""
        return rows if self.groups is None else grouped_rows(rows, self.groups)

    def paid(self, chosen: IntArray) -> FloatArray:
        """Cost of choices (n, m) row by row; NaN for -1 and where the cost is unknown."""
        found = np.take_along_axis(self.costs, np.maximum(chosen, 0), axis=1)
        return np.where(chosen < 0, np.nan, found.astype(np.float64, copy=False))

    def constants(self) -> IntArray:
        """The constant (n,) of least mean cost over all rows, which is named; -1 without a fold."""
        expert = common_constant(self.costs, self.sample_weight, self.ranks)
        result = np.full(len(self.costs), -1, dtype=np.intp)
        for _, test in self.folds:
            result[test] = expert
        return result


@dataclass(frozen=True, eq=False)
class Judged:
    """What a candidate did on held-out rows."""

    chosen: IntArray  # (n,) experts
    fit: FloatArray | None  # ``products`` of its expected costs, where a search may ask for them
    scores: FloatArray | None  # (n, p), where they are kept
    costs: FloatArray | None  # (n, p) expected costs, where they are kept


class SearchMemory:
    """What searches found out about candidates, for later searches on the same rows and folds.

    Pass one memory to several searches: ``RouterCV(..., memory=memory)``. Other rows, costs, weights
    and folds have entries of their own.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Judged]] = {}

    def of(self, data: SearchData, tol: float) -> dict[str, Judged]:
        """Candidates that were judged on these rows and folds, by ``Candidate.key``."""
        some = data.X[:: 1 + data.X.shape[0] // MEMORY_ROWS]
        rows = (data.X.shape, some, data.costs, data.sample_weight)
        same = (*rows, data.folds, data.ranks, tol)
        return self._found.setdefault(joblib.hash(same), {})


@dataclass
class Search:
    """Runs candidates over folds; an interrupt keeps those that are complete.

    ``known`` are candidates that an earlier search on the same rows and folds has judged, by
    ``Candidate.key``; those of this search are added. None to keep none.
    """

    data: SearchData
    tol: float
    n_jobs: int | None
    progress: Progress | None
    n_candidates: int
    known: dict[str, Judged] | None = None
    interrupted: bool = False
    candidates: list[Candidate] = field(default_factory=list)
    made: IntArray = field(init=False)  # (n, candidates) choices for held-out rows
    scores: dict[int, FloatArray] = field(default_factory=dict)
    # Expected costs (n, p) of held-out rows, of candidates that are fitted alike in a stack, and how well
    # costs are estimated.
    costs: dict[int, FloatArray] = field(default_factory=dict)
    fits: dict[int, FloatArray] = field(default_factory=dict)
    done: int = 0

    def __post_init__(self) -> None:
        self.made = np.empty((len(self.data.costs), 0), dtype=np.intp)

    def report(self, fits: int, message: str) -> None:
        """Report progress."""
        self.done += fits
        if self.progress is not None:
            self.progress(self.done, self.n_candidates * len(self.data.folds), message)

    def run(self, candidates: list[Candidate]) -> None:
        """Judge candidates, which are numbered after those of earlier runs; -1 where they were not run."""
        data, start = self.data, len(self.candidates)
        self.candidates += candidates
        fresh_columns = np.full((len(data.costs), len(candidates)), -1, dtype=np.intp)
        made = self.made = np.column_stack([self.made, fresh_columns])
        judged = np.zeros(len(self.candidates), dtype=int)
        numbered = dict(enumerate(candidates, start))
        for index, candidate in numbered.items():
            if candidate.keeps_scores:
                self.scores[index] = np.full(data.costs.shape, np.nan, data.X.dtype)
            if candidate.family != "linear":
                self.costs[index] = np.full(data.costs.shape, np.nan, data.X.dtype)
            if self._recall(index):
                judged[index] = len(data.folds)
        fresh = [index for index in numbered if not judged[index]]
        blocks = _blocks([(index, numbered[index].family) for index in fresh])
        tasks = [(fold, block) for block in blocks for fold in range(len(data.folds))]
        sharing = self.known is not None
        stream = Parallel(n_jobs=self.n_jobs, return_as="generator_unordered")(
            delayed(_judge_block)(
                data, fold, block, [numbered[i] for i in block], self.tol, sharing
            )
            for fold, block in tasks
        )
        try:
            for fold, block, chosen, scores, expected in stream:
                test = data.folds[fold][1]
                made[test[:, None], block] = chosen
                for index, values in scores.items():
                    self.scores[index][test] = values
                weight = None if data.sample_weight is None else data.sample_weight[test]
                for index, values in expected.items():
                    found = products(values, data.costs[test], weight)
                    self.fits[index] = self.fits.get(index, 0) + found
                    if index in self.costs:
                        self.costs[index][test] = values
                judged[block] += 1
                self.report(len(block), f"fold {fold + 1}")
        except KeyboardInterrupt:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of tasks that are given up
                stream.close()
            if not start and not (judged == len(data.folds)).any():
                raise
            self.interrupted = True
        for index in fresh:
            if judged[index] < len(data.folds):
                made[:, index] = -1
            elif self.known is not None:
                kept = self.fits.get(index), self.scores.get(index), self.costs.get(index)
                self.known[numbered[index].key] = Judged(made[:, index], *kept)

    def _recall(self, index: int) -> bool:
        """Take over what an earlier search found; False if it has not judged this candidate."""
        candidate = self.candidates[index]
        found = (self.known or {}).get(candidate.key)
        if found is None or (candidate.keeps_scores and found.scores is None):
            return False
        self.made[:, index] = found.chosen
        if found.fit is not None:
            self.fits[index] = found.fit
        if candidate.keeps_scores and found.scores is not None:
            self.scores[index] = found.scores
        if found.costs is not None:
            self.costs[index] = found.costs
        self.report(len(self.data.folds), "known")
        return True


def _blocks(candidates: list[tuple[int, str]]) -> list[list[int]]:
    """Groups of neighbouring linear or k-NN candidates (index, family), which share work; others alone."""
    blocks: list[list[int]] = []
    for family, group in groupby(candidates, lambda pair: pair[1]):
        indices, size = [index for index, _ in group], BLOCK if family in SHARING else 1
        blocks += [indices[start : start + size] for start in range(0, len(indices), size)]
    return blocks


def _judge_block(
    data: SearchData,
    fold: int,
    block: list[int],
    candidates: list[Candidate],
    tol: float,
    every_cost: bool = False,
) -> tuple[int, list[int], IntArray, dict[int, FloatArray], dict[int, FloatArray]]:
    """Choices (n_test, len(block)) on one fold's held-out rows, the scores to keep, and expected costs.

    Expected costs are those of candidates that estimate costs, with ``every_cost`` also of those that do so
    in another search.
    """
    train, test = data.folds[fold]
    X, costs = data.X[train], data.costs[train]
    weight = None if data.sample_weight is None else data.sample_weight[train]
    held_out = data.X[test]
    routers = [candidate.router for candidate in candidates]
    if weight is None and all(isinstance(router, KNNRouter) for router in routers):
        nearest = _nearest_costs(routers, X, costs, held_out)
        chosen = np.column_stack([cheapest_expected(costs, data.ranks) for costs in nearest])
        return fold, block, chosen, {}, dict(zip(block, nearest, strict=True))
    path = None
    chosen = np.empty((len(test), len(block)), dtype=np.intp)
    kept, expected = {}, {}
    for place in _walk(candidates):
        index, candidate = block[place], candidates[place]
        policy: Policy
        with no_convergence_warnings():
            if isinstance(candidate.router, LinearRouter):
                router = copy.copy(candidate.router)
                if path is None:
                    path = LinearPath(X, np.ones(len(train)) if weight is None else weight)
                policy = router._fit_from(X, costs, weight, path=path, search_tol=tol)
            else:
                policy = clone(candidate.router).fit(X, costs, sample_weight=weight).policy_
        chosen[:, place] = policy.with_ranks(data.ranks).predict(held_out)
        if candidate.keeps_scores:
            kept[index] = policy.decision_function(held_out)
        if candidate.estimates_costs or (every_cost and _loss(candidate) != "mild"):
            expected[index] = believed_costs(policy, held_out)
    return fold, block, chosen, kept, expected


def _walk(candidates: list[Candidate]) -> list[int]:
    """The order in which candidates start from each other: label-based losses last, strong penalties first.

    With a weak penalty a label-based loss is hard to solve from far away.
    """

    def place(index: int) -> tuple[str, float]:
        router: Any = candidates[index].router
        loss = _loss(candidates[index])
        if loss in LABEL_LOSSES:
            return loss, -router.alpha
        return "", 0.0

    return sorted(range(len(candidates)), key=place)


def _loss(candidate: Candidate) -> str:
    """The loss of a linear candidate; "" for others."""
    return candidate.router.loss if isinstance(candidate.router, LinearRouter) else ""


def _nearest_costs(routers: list[Any], X: Any, costs: FloatArray, held_out: Any) -> FloatArray:
    """Expected costs (routers, n_test, p) for several numbers of neighbours, from one set of distances."""
    largest = max(routers, key=lambda router: int(router.n_neighbors))
    policy = clone(largest).fit(X, costs).policy_
    counts = [min(int(router.n_neighbors), policy.n_neighbors) for router in routers]
    return policy.costs_by_neighbours(held_out, counts)
