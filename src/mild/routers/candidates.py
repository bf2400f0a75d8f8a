"""What a search tries: margins and strengths of a linear router, and other families."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from mild.core.arrays import FloatArray, check_strength, invalid
from mild.core.losses import floored_counts
from mild.core.margins import membership, paper_grid, ratio_grid
from mild.errors import check_option
from mild.routers.base import BaseRouter, weights_or_ones
from mild.routers.cost_models import KNNRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.objective import tie_means, training_margins

FAMILIES = ("linear", "ridge", "knn", "neural", "stack")
#: What "auto" leaves out: the network changes the cost of the blend little (-0.0033 to +0.0006 over six
#: draws, docs/science/published.md), and takes longer than all the others.
RARELY_USEFUL = ("neural",)
# Strengths of the penalty for linear routers, which is weighed against a mean over rows.
ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# Strengths of the penalty for cost regression, which is weighed against a sum over rows.
REGRESSION_ALPHAS = (1.0, 1e1, 1e2, 1e3, 3e3, 1e4)
NEIGHBOUR_COUNTS = (10, 40, 160, 640)
HIDDEN_WIDTHS = (32, 128)
#: Strengths of the baseline between contrast (0) and others (1).
BASELINE_STRENGTHS = (0.25, 0.5)


@dataclass(frozen=True)
class Candidate:
    """One router to try.

    Attributes
    ----------
    family : the kind of router, such as "linear" or "knn"
    router : the unfitted router
    params : the parameters that distinguish it from other candidates of its family
    complexity : of candidates of nearly equal cost, the search takes the one of smallest complexity; tuples
        are compared, whose first number orders the families
    margin_distance : how far the margins are from those at the centre of the search; None for candidates
        that do not come from the search of margins
    """

    family: str
    router: BaseRouter
    params: dict[str, Any]
    complexity: tuple[float, ...]
    margin_distance: float | None = None

    @property
    def has_central_margins(self) -> bool:
        """Whether its margins are the centre of the search of margins."""
        return self.margin_distance == 0

    @property
    def has_moved_margins(self) -> bool:
        """Whether the search of margins has moved its margins away from the centre."""
        return self.margin_distance is not None and self.margin_distance > 0

    @property
    def member(self) -> str:
        """Name in a stack, which has the best candidate of each name."""
        if self.family == "linear":
            return str(self.params.get("loss", self.family))
        return self.family

    @property
    def estimates_costs(self) -> bool:
        """Whether a stack takes it for how well it estimates costs, not for what its choices cost."""
        return self.family != "linear" or "loss" in self.params


def linear_candidates(
    base: LinearRouter, X: Any, costs: FloatArray, sample_weight: FloatArray | None, search: Any
) -> tuple[list[Candidate], int]:
    """List copies of a router with different margins, each with every penalty strength.

    Parameters
    ----------
    base : LinearRouter
        The router to search around: its margins are the centre of the search.
    X, costs, sample_weight : arrays
        The training data, on which the theory's margins depend.
    search : RouterCV
        Its parameters say which margins and strengths are tried.

    Returns
    -------
    candidates : list of Candidate
        Ordered so that neighbours are similar: the solver starts each at the previous solution.
    n_dropped : int
        How many margin vectors were left out, as there were too many or they were not positive.
    """
    weight = weights_or_ones(sample_weight, len(costs))
    central_margins = training_margins(base, X, costs, weight)
    default_strengths: Sequence[float] = (base.alpha,)
    if search.grid == "ratios":
        default_strengths = ALPHAS
    strengths = _strengths(search.alphas, default_strengths)
    if base.loss != "mild" or costs.shape[1] == 1:
        # Margins make no difference here: there is only the base router, with each strength.
        return [_linear_candidate(base, {"alpha": alpha}, 0.0) for alpha in strengths], 0

    vectors, n_dropped = _margin_vectors(base, costs, weight, central_margins, search)
    candidates = []
    for number, margins in enumerate(vectors):
        distance = _margin_distance(margins, central_margins)
        # The direction alternates, so that each vector starts at the strength where the previous one ended.
        ordered_strengths = strengths
        if number % 2 == 1:
            ordered_strengths = strengths[::-1]
        for alpha in ordered_strengths:
            params = {"alpha": alpha, "margins": tuple(margins.tolist())}
            candidates.append(_linear_candidate(base, params, distance))
    return candidates, n_dropped


def _linear_candidate(
    base: LinearRouter, params: dict[str, Any], margin_distance: float
) -> Candidate:
    """Return the base router with other parameters; it is simpler with a stronger penalty."""
    router = type(base)(**{**base.get_params(deep=False), **params})
    complexity = (0.0, margin_distance, -params["alpha"])
    return Candidate("linear", router, params, complexity, margin_distance)


def _moves_margins(search: Any) -> bool:
    """Whether the search tries other ratios of the margins than those at its centre."""
    return search.grid == "ratios" and bool(np.not_equal(search.margin_factors, 1).any())


def _margin_vectors(
    base: LinearRouter, costs: FloatArray, weight: FloatArray, centre: FloatArray, search: Any
) -> tuple[list[FloatArray], int]:
    """Return the margin vectors (n_experts,) to try, and the number of those that are left out."""
    if search.grid != "ratios":
        paper = paper_grid(centre)
        return list(paper), paper.dropped

    limit = search.max_margins
    grid = ratio_grid(centre, search.margin_factors, limit)
    vectors = list(grid)
    n_dropped = grid.dropped
    # Argmax is not consistent with margins from counts: they need the stationary rule.
    if base.decision == "stationary" and _moves_margins(search):
        powers = _count_power_vectors(
            base, costs, weight, vectors, search.margin_exponents, centre.sum()
        )
        n_dropped += max(0, len(vectors) + len(powers) - limit)
        # The first vector of the grid is its centre.
        central_and_powers = [*vectors[:1], *powers][:limit]
        # From equal margins to very different ones, so that neighbours are similar.
        central_and_powers.sort(key=lambda margins: np.ptp(np.log(margins)))
        vectors = [*central_and_powers, *vectors[1:]]
    return vectors[:limit], n_dropped


def _count_power_vectors(
    base: LinearRouter,
    costs: FloatArray,
    weight: FloatArray,
    vectors: list[FloatArray],
    exponents: Sequence[float],
    total: float,
) -> list[FloatArray]:
    """Return margins that are powers of how often each expert is cheapest, unless ``vectors`` has them.

    Each vector sums to ``total``.
    """
    means = tie_means(base, costs, weight)
    is_cheapest = membership(costs, base.rewards, "best", means=means)
    counts = (is_cheapest * weight[:, None]).sum(axis=0)
    powers: list[FloatArray] = []
    for exponent in exponents:
        power = power_margins(counts, exponent, total)
        earlier = [*vectors, *powers]
        if not any(np.allclose(power, margins, rtol=1e-9, atol=0) for margins in earlier):
            powers.append(power)
    return powers


def _margin_distance(margins: FloatArray, centre: FloatArray) -> float:
    """Return the largest difference, over the experts, of the logarithms of their shares in the margins."""
    log_ratio = np.log(margins / margins.sum()) - np.log(centre / centre.sum())
    return float(np.abs(log_ratio).max().round(9))


def power_margins(counts: FloatArray, exponent: float, total: float) -> FloatArray:
    """Return margins proportional to ``counts ** exponent``; a count of 0 is taken as 1.

    >>> power_margins(np.array([16.0, 1.0, 0.0]), 0.5, 3.0)
    array([2. , 0.5, 0.5])
    """
    power = floored_counts(counts) ** check_strength("margin_exponents", exponent)
    result: FloatArray = power * (total / power.sum())
    return result


def parse_families(families: Any) -> tuple[list[str], list[str]]:
    """Return the families to search, and those left out because their package is missing.

    >>> parse_families("auto")
    (['linear', 'ridge', 'knn', 'stack'], [])
    """
    if families is None:
        return [], []
    if families == "auto":
        return [name for name in FAMILIES if name not in RARELY_USEFUL], []
    if families == "all":
        missing = []
        if importlib.util.find_spec("torch") is None:
            missing = ["neural"]
        return [name for name in FAMILIES if name not in missing], missing
    names = [families] if isinstance(families, str) else _listed(families)
    if not names:
        raise invalid("families", f"must name at least one family, or be None; got {families!r}.")
    for name in names:
        check_option("families", name, FAMILIES)
    return names, []


def _listed(values: Any) -> list[Any]:
    """Return the values as a list; empty if they cannot be listed."""
    if not isinstance(values, Iterable):
        return []
    return list(values)


def family_candidates(
    families: Sequence[str],
    alphas: Sequence[float] | None,
    random_state: Any,
    ties: str | None = None,
) -> list[Candidate]:
    """List the candidates of these families; the stack is made later, from the best of them.

    Parameters
    ----------
    families : sequence of str
        Some of ``FAMILIES``.
    alphas : sequence of float or None
        Strengths of the penalty of linear routers; None for ``ALPHAS``.
    random_state : int, RandomState or None
        Seed of the families that draw random numbers.
    ties : {"mean", "first"}, default=None
        As for LinearRouter.

    Returns
    -------
    candidates : list of Candidate
        Their complexity begins with the rank of the family: linear routers are the simplest, then
        regression, nearest neighbours and networks.
    """
    candidates: list[Candidate] = []
    strengths = _strengths(alphas, ALPHAS)
    if "linear" in families:
        candidates += _linear_family(strengths, ties)
    if "ridge" in families:
        for alpha in REGRESSION_ALPHAS:
            regression = RidgeRouter(alpha)
            complexity = (1.0, 0.0, -alpha)
            candidates.append(Candidate("ridge", regression, {"alpha": alpha}, complexity))
    if "knn" in families:
        for n_neighbors in NEIGHBOUR_COUNTS:
            params = {"n_neighbors": n_neighbors}
            complexity = (2.0, 0.0, -float(n_neighbors))
            candidates.append(Candidate("knn", KNNRouter(**params), params, complexity))
    if "neural" in families:
        candidates += _network_family(random_state)
    return candidates


def _linear_family(strengths: Sequence[float], ties: str | None) -> list[Candidate]:
    """List linear routers with other rewards or another loss, with every strength of the penalty."""
    settings: list[dict[str, Any]] = [
        {"rewards": kind, "margins": "uniform"} for kind in ("others", "complement", "contrast")
    ]
    settings.extend(
        {"rewards": "baseline", "strength": strength, "margins": "uniform"}
        for strength in BASELINE_STRENGTHS
    )
    settings += [{"loss": "tdef"}, {"loss": "ce"}]

    candidates = []
    for setting in settings:
        setting_rank = 1.0
        if "loss" in setting:
            setting_rank = 2.0
        for alpha in strengths:
            params = {**setting, "alpha": alpha}
            router = LinearRouter(**params, ties=ties)
            complexity = (0.0, setting_rank, -alpha)
            candidates.append(Candidate("linear", router, params, complexity))
    return candidates


def _network_family(random_state: Any) -> list[Candidate]:
    """List networks with one hidden layer."""
    from mild.routers.neural import NeuralRouter  # torch is an extra

    candidates = []
    for width in HIDDEN_WIDTHS:
        network = NeuralRouter(hidden=(width,), random_state=random_state)
        complexity = (3.0, 0.0, float(width))
        candidates.append(Candidate("neural", network, {"hidden": (width,)}, complexity))
    return candidates


def further_candidates(routers: Sequence[Any], ties: str | None = None) -> list[Candidate]:
    """Make candidates from the user's unfitted routers; their family is the name of the class.

    Nothing is known of how simple they are, so their complexity is above that of the built-in families, in
    the order of the sequence. ``ties`` is that of LinearRouter.

    >>> [candidate] = further_candidates([KNNRouter(n_neighbors=3)])
    >>> candidate.family, candidate.params
    ('knnrouter', {'n_neighbors': 3})
    """
    if not isinstance(routers, Iterable):
        rule = f"must be a list of unfitted routers, such as [KNNRouter(3)]; got {routers!r}."
        raise invalid("candidates", rule)
    candidates = []
    for number, original in enumerate(routers):
        if not isinstance(original, BaseRouter):
            rule = f"must hold unfitted routers of mild, such as KNNRouter(3); got {original!r}."
            raise invalid("candidates", rule)
        router = clone(original)
        params = changed_parameters(router)
        if "ties" in router.get_params() and router.ties is None:
            router.set_params(ties=ties)
        family = type(router).__name__.lower()
        candidates.append(Candidate(family, router, params, (3.5, 0.0, float(number))))
    return candidates


def changed_parameters(router: BaseRouter) -> dict[str, Any]:
    """Return the parameters of a router that differ from the default."""
    defaults: Mapping[str, inspect.Parameter] = inspect.signature(type(router)).parameters
    params = {}
    for name, value in router.get_params(deep=False).items():
        # Values may be arrays, for which == is no answer; their text is what is shown.
        if repr(value) != repr(defaults[name].default):
            params[name] = value
    return params


def _strengths(alphas: Sequence[float] | None, default: Sequence[float]) -> list[float]:
    """Return the strengths to try, as checked floats."""
    if alphas is None:
        return [float(alpha) for alpha in default]
    strengths = _listed(alphas)
    if not strengths:
        raise invalid("alphas", f"must hold at least one strength; got {alphas!r}.")
    return [float(check_strength("alphas", alpha)) for alpha in strengths]
