"""One test for all losses of learning to defer: gradients, invariances, the Bayes rule, oracles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from mild.core import decisions  # noqa: E402
from mild.errors import InvalidInputError, OptionError  # noqa: E402
from mild.nn import defer  # noqa: E402

Loss = Callable[..., "torch.Tensor"]


@dataclass(frozen=True)
class Case:
    """A loss with its options, and what its paper claims."""

    loss: Loss
    options: dict[str, object]
    one_expert: bool = False
    softmax: bool = True
    bayes: bool = True
    realizable: bool = False

    def __call__(self, scores, y, correct, **more):
        return self.loss(scores, y, correct, **self.options, **more)


CASES = {
    "cross_entropy": Case(defer.cross_entropy_defer_loss, {}),
    "cross_entropy, alpha": Case(defer.cross_entropy_defer_loss, {"alpha": 0.3}, bayes=False),
    "one_versus_all": Case(defer.one_versus_all_loss, {}, softmax=False),
    "realizable": Case(defer.realizable_loss, {}, one_expert=True, bayes=False, realizable=True),
    "realizable, alpha": Case(
        defer.realizable_loss, {"alpha": 0.6}, one_expert=True, softmax=False, bayes=False
    ),
    "asymmetric_softmax": Case(defer.asymmetric_softmax_loss, {}, one_expert=True),
    "picce": Case(defer.picce_loss, {}),
    "comp_sum, logistic": Case(defer.comp_sum_defer_loss, {}),
    "comp_sum, exponential": Case(defer.comp_sum_defer_loss, {"surrogate": "exponential"}),
    "comp_sum, gce": Case(
        defer.comp_sum_defer_loss, {"surrogate": "generalized_cross_entropy", "q": 0.5}
    ),
    "comp_sum, mae": Case(
        defer.comp_sum_defer_loss, {"surrogate": "mean_absolute_error"}, realizable=True
    ),
    "rl2d": Case(defer.rl2d_loss, {}, one_expert=True, realizable=True),
    "rl2d, q=0.5": Case(defer.rl2d_loss, {"q": 0.5}, one_expert=True, bayes=False, realizable=True),
    "rl2d, q=0": Case(defer.rl2d_loss, {"q": 0}, one_expert=True, bayes=False, realizable=True),
    "mild": Case(defer.mild_defer_loss, {}),
    "mild, others": Case(defer.mild_defer_loss, {"rewards": "others"}),
    "mild, baseline": Case(defer.mild_defer_loss, {"rewards": "baseline", "strength": 0.2}),
    "mixture_of_experts": Case(defer.mixture_of_experts_loss, {}, softmax=False, bayes=False),
}
EVERY = pytest.mark.parametrize("name", CASES)


def where(claim: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name in CASES if getattr(CASES[name], claim)])


def draw(name: str, seed: int, n: int = 12, n_classes: int = 4):
    """Scores, classes, who is right, who was asked."""
    generator = torch.Generator().manual_seed(seed)
    n_experts = 1 if CASES[name].one_expert else 3
    scores = 2 * torch.randn(n, n_classes + n_experts, generator=generator, dtype=torch.float64)
    y = torch.randint(n_classes, (n,), generator=generator)
    correct = torch.rand(n, n_experts, generator=generator) < 0.5
    asked = torch.rand(n, n_experts, generator=generator) < 0.7
    return scores, y, correct, asked


# --- values ---


def slow(name: str, scores, y, correct, asked) -> list[float]:
    """Every loss written anew, row by row, in plain Python."""
    options = CASES[name].options
    values = []
    n_classes = scores.shape[1] - correct.shape[1]
    for row in range(len(y)):
        f = [float(value) for value in scores[row, :n_classes]]
        g = [float(value) for value in scores[row, n_classes:]]
        right = [bool(flag) for flag in correct[row]]
        was_asked = [bool(flag) for flag in asked[row]]
        values.append(slow_row(name, options, f, g, int(y[row]), right, was_asked))
    return values


def slow_row(name, options, f, g, y, right, asked) -> float:
    experts = [j for j in range(len(g)) if asked[j]]
    right_experts = [j for j in experts if right[j]]
    class_total = sum(math.exp(value) for value in f)
    total = class_total + sum(math.exp(g[j]) for j in experts)
    kind = name.partition(",")[0]
    if kind == "cross_entropy":
        weight = options.get("alpha", 1.0) if right_experts else 1.0
        value = -weight * math.log(math.exp(f[y]) / total)
        for j in right_experts:
            value -= math.log(math.exp(g[j]) / total)
        return value
    if kind == "one_versus_all":
        value = 0.0
        for k in range(len(f)):
            value += phi(f[k]) if k == y else phi(-f[k])
        for j in experts:
            value += phi(g[j]) if right[j] else phi(-g[j])
        return value
    if kind == "realizable":
        alpha = options.get("alpha", 1.0)
        above = math.exp(f[y]) + sum(math.exp(g[j]) for j in right_experts)
        of_classes = -math.log(math.exp(f[y]) / class_total)
        return -2 * alpha * math.log(above / total) + (1 - alpha) * of_classes
    if kind == "asymmetric_softmax":
        value = -math.log(math.exp(f[y]) / class_total)
        if experts:
            below = math.exp(g[0]) + class_total - max(math.exp(u) for u in f)
            share = math.exp(g[0]) / below
            value -= math.log(share) if right[0] else math.log(1 - share)
        return value
    if kind == "picce":
        value = -math.log(math.exp(f[y]) / total)
        if right_experts:
            value -= math.log(max(math.exp(g[j]) for j in right_experts) / total)
        return value
    if kind == "comp_sum":
        value = slow_comp_sum(math.exp(f[y]) / total, options)
        for j in right_experts:
            value += slow_comp_sum(math.exp(g[j]) / total, options)
        return value
    if kind == "rl2d":
        q = options.get("q", 1.0)
        share = math.exp(f[y]) / total
        if right_experts:
            share += math.exp(g[0]) / total
        return -math.log(share) if q == 0 else (1 - share**q) / q
    if kind == "mixture_of_experts":
        gate_total = 1 + sum(math.exp(g[j]) for j in experts)
        value = -math.log(math.exp(f[y]) / class_total) / gate_total
        for j in experts:
            value += math.exp(g[j]) / gate_total * (not right[j])
        return value
    assert kind == "mild"
    costs = [float(k != y) for k in range(len(f))] + [float(not right[j]) for j in experts]
    alternatives = f + [g[j] for j in experts]
    value = 0.0
    for k, cost in enumerate(costs):
        reward = slow_reward(options, costs, cost)
        others = sum(math.exp(other - alternatives[k]) for other in alternatives)
        value += reward * math.log(others)
    return value


def phi(u: float) -> float:
    return math.log(1 + math.exp(-u))


def slow_comp_sum(t: float, options) -> float:
    surrogate = options.get("surrogate", "logistic")
    if surrogate == "logistic":
        return -math.log(t)
    if surrogate == "exponential":
        return 1 / t - 1
    if surrogate == "generalized_cross_entropy":
        return (1 - t ** options["q"]) / options["q"]
    return 1 - t


def slow_reward(options, costs, cost) -> float:
    kind = options.get("rewards", "complement")
    if kind == "complement":
        return 1 - cost
    strength = 1.0 if kind == "others" else options["strength"]
    return max(costs) + strength * (sum(costs) - max(costs)) - cost


@EVERY
@pytest.mark.parametrize("all_asked", [True, False])
def test_values_are_those_of_a_slow_transcription(name, all_asked):
    scores, y, correct, asked = draw(name, seed=1, n=40)
    if all_asked:
        asked = torch.ones_like(asked)
        values = CASES[name](scores, y, correct)
    else:
        values = CASES[name](scores, y, correct, asked=asked)
    assert values.shape == (40,)
    np.testing.assert_allclose(values, slow(name, scores, y, correct, asked), rtol=1e-10)


@EVERY
def test_an_expert_that_was_not_asked_changes_nothing(name):
    scores, y, correct, asked = draw(name, seed=2)
    values = CASES[name](scores, y, correct, asked=asked)
    n_classes = scores.shape[1] - correct.shape[1]
    changed = scores.clone()
    changed[:, n_classes:] += torch.where(asked, 0.0, 7.0)
    torch.testing.assert_close(CASES[name](changed, y, correct | ~asked, asked=asked), values)


@EVERY
def test_single_precision_stays_finite_for_extreme_scores(name):
    if CASES[name].options.get("surrogate") == "exponential":
        pytest.skip("an exponential overflows")
    scores, y, correct, asked = draw(name, seed=3)
    f = (30 * scores.float()).requires_grad_(True)
    values = CASES[name](f, y, correct, asked=asked)
    values.sum().backward()
    assert values.dtype == torch.float32
    assert values.isfinite().all()
    assert not f.grad.isnan().any()


# --- gradients ---


@EVERY
def test_gradients_are_those_of_finite_differences(name):
    scores, y, correct, asked = draw(name, seed=4, n=6)
    scores.requires_grad_(True)
    assert torch.autograd.gradcheck(lambda f: CASES[name](f, y, correct), (scores,))
    assert torch.autograd.gradcheck(lambda f: CASES[name](f, y, correct, asked=asked), (scores,))


# --- invariances ---


@where("softmax")
def test_a_constant_added_to_the_scores_of_a_row_changes_nothing(name):
    scores, y, correct, asked = draw(name, seed=5)
    shift = torch.linspace(-3, 3, len(y), dtype=torch.float64)[:, None]
    values = CASES[name](scores, y, correct, asked=asked)
    torch.testing.assert_close(CASES[name](scores + shift, y, correct, asked=asked), values)


@EVERY
def test_classes_can_be_renamed(name):
    scores, y, correct, _ = draw(name, seed=6)
    order = torch.tensor([2, 0, 3, 1])
    n_classes = 4
    columns = torch.cat([order, torch.arange(n_classes, scores.shape[1])])
    values = CASES[name](scores, y, correct)
    torch.testing.assert_close(CASES[name](scores[:, columns], order.argsort()[y], correct), values)


@EVERY
def test_experts_can_be_renamed(name):
    if CASES[name].one_expert:
        pytest.skip("one expert has no other order")
    scores, y, correct, asked = draw(name, seed=7)
    order = torch.tensor([1, 2, 0])
    columns = torch.cat([torch.arange(4), 4 + order])
    values = CASES[name](scores, y, correct, asked=asked)
    torch.testing.assert_close(
        CASES[name](scores[:, columns], y, correct[:, order], asked=asked[:, order]), values
    )


def test_relations_between_the_losses():
    scores, y, correct, asked = draw("cross_entropy", seed=8)
    ce = defer.cross_entropy_defer_loss(scores, y, correct, asked=asked)
    for other in (defer.comp_sum_defer_loss, defer.mild_defer_loss):
        torch.testing.assert_close(other(scores, y, correct, asked=asked), ce)
    contrast = defer.mild_defer_loss(scores, y, correct, asked=asked, rewards="contrast")
    torch.testing.assert_close(contrast, ce)
    one = (scores[:, :5], y, correct[:, :1])
    torch.testing.assert_close(defer.picce_loss(*one), defer.cross_entropy_defer_loss(*one))
    torch.testing.assert_close(2 * defer.rl2d_loss(*one, q=0), defer.realizable_loss(*one))
    cost = torch.rand(len(y), 1, dtype=torch.float64)
    mae = defer.comp_sum_defer_loss(*one, expert_costs=cost, surrogate="mean_absolute_error")
    rl2d = defer.rl2d_loss(*one, expert_costs=cost)
    torch.testing.assert_close(mae - rl2d, 1 - cost[:, 0])


def test_others_rewards_are_complement_rewards_and_a_constant():
    # The docstring of mild_defer_loss: K - 2 + sum_j c_j more for every alternative.
    y, correct = torch.tensor([0, 2]), torch.tensor([[True, False], [False, False]])
    costs = defer.one_stage_costs(y, correct, 3)
    others = costs.sum(dim=1, keepdim=True) - costs
    more = 3 - 2 + costs[:, 3:].sum(dim=1, keepdim=True)
    torch.testing.assert_close(others, 1 - costs + more)


# --- the Bayes rule ---


def small_problem(seed: int, n_classes: int, n_experts: int):
    """All outcomes (class, who is right) with probabilities, drawn at random; value of each option."""
    rng = np.random.default_rng(seed)
    class_share = rng.dirichlet(np.ones(n_classes))
    right_share = rng.uniform(0.1, 0.9, (n_classes, n_experts))
    rows, probability = [], []
    for y, flags in itertools.product(
        range(n_classes), itertools.product([True, False], repeat=n_experts)
    ):
        chance = class_share[y]
        for j, flag in enumerate(flags):
            chance *= right_share[y, j] if flag else 1 - right_share[y, j]
        rows.append((y, flags))
        probability.append(chance)
    values = np.concatenate([class_share, class_share @ right_share])
    y = torch.tensor([y for y, _ in rows])
    correct = torch.tensor([flags for _, flags in rows])
    return y, correct, torch.tensor(probability, dtype=torch.float64), values


def minimum(objective, start):
    """Parameters and value at a local minimum."""
    parameters = [part.clone().requires_grad_(True) for part in start]
    optimizer = torch.optim.LBFGS(
        parameters,
        max_iter=1000,
        tolerance_grad=1e-10,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = objective(*parameters)
        value.backward()
        return value

    optimizer.step(closure)
    return float(closure().detach()), [part.detach() for part in parameters]


def best_minimum(objective, *shapes: tuple[int, ...], n_starts: int = 4):
    """Parameters at the lowest of several local minima."""
    generator = torch.Generator().manual_seed(0)
    best_value, best = math.inf, None
    for _ in range(n_starts):
        start = [
            0.3 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
        ]
        value, parameters = minimum(objective, start)
        if value < best_value - 1e-12:
            best_value, best = value, parameters
    return best


def minimiser(case, y, correct, probability, n_outputs: int) -> np.ndarray:
    """Scores (n_outputs,) with the smallest expected loss."""

    def expected_loss(scores):
        losses = case(scores.expand(len(y), -1), y, correct)
        # Scores without a minimum (a share of 1) end at a finite place.
        return probability @ losses + 1e-9 * scores.square().sum()

    (scores,) = best_minimum(expected_loss, (1, n_outputs))
    return scores.numpy()[0]


@where("bayes")
@pytest.mark.parametrize("seed", range(6))
def test_the_minimiser_decides_as_the_bayes_rule(name, seed):
    n_experts = 1 if CASES[name].one_expert else 1 + seed % 2
    y, correct, probability, values = small_problem(seed, 3, n_experts)
    scores = minimiser(CASES[name], y, correct, probability, len(values))
    # Where two options are nearly as good, the numerical minimum may lie on either side.
    assert values.max() - values[scores.argmax()] < 1e-3


def test_unequal_margins_need_the_stationary_decision():
    wrong_by_argmax = 0
    margins = [0.4, 1.0, 2.0, 0.6, 1.5]
    case = Case(defer.mild_defer_loss, {"margins": margins})
    for seed in range(8):
        y, correct, probability, values = small_problem(seed, 3, 2)
        scores = minimiser(case, y, correct, probability, 5)
        chosen = decisions.decide(scores[None], margins, "stationary")[0]
        assert values.max() - values[chosen] < 1e-3
        shares = decisions.stationary_distribution(scores[None], margins)[0]
        # Complement rewards: shares are proportional to 1 - cost.
        np.testing.assert_allclose(shares / shares[:3].sum(), values, atol=1e-4)
        wrong_by_argmax += values.max() - values[scores.argmax()] > 1e-3
    assert wrong_by_argmax > 0


def half_and_half(share_right: float):
    """Two classes of 1/2 and an expert that is right with this probability."""
    y = torch.tensor([0, 0, 1, 1])
    correct = torch.tensor([[True], [False], [True], [False]])
    chances = [share_right / 2, (1 - share_right) / 2] * 2
    return y, correct, torch.tensor(chances, dtype=torch.float64)


@pytest.mark.parametrize("name", ["realizable", "rl2d, q=0"])
def test_the_realizable_surrogate_is_not_bayes_consistent(name):
    scores = minimiser(CASES[name], *half_and_half(0.6), 3)
    assert scores[2] < scores[:2].max()
    for consistent in ("rl2d", "cross_entropy", "one_versus_all", "asymmetric_softmax"):
        scores = minimiser(CASES[consistent], *half_and_half(0.6), 3)
        assert scores[2] > scores[:2].max()


def test_the_mixture_of_experts_is_not_bayes_consistent():
    # A classifier with probability 0.8 has cross-entropy 0.5: more than the error 0.4 of the expert.
    y = torch.tensor([0, 0, 1, 1])
    correct = torch.tensor([[True], [False], [True], [False]])
    chances = torch.tensor([0.48, 0.32, 0.12, 0.08], dtype=torch.float64)
    scores = minimiser(CASES["mixture_of_experts"], y, correct, chances, 3)
    assert scores[2] > 0


def test_costs_move_the_bayes_rule():
    y, correct, probability, values = small_problem(3, 3, 2)
    asking = torch.tensor([0.05, 0.3], dtype=torch.float64)
    costs = (~correct).double() + asking
    net = values - np.array([0, 0, 0, 0.05, 0.3])
    with_costs = {
        "comp_sum": Case(defer.comp_sum_defer_loss, {"expert_costs": costs, "scale": 1.3}),
        "mild": Case(defer.mild_defer_loss, {"expert_costs": costs, "scale": 1.3}),
        "mild, others": Case(defer.mild_defer_loss, {"expert_costs": costs, "rewards": "others"}),
    }
    for case in with_costs.values():
        scores = minimiser(case, y, correct, probability, 5)
        assert net.max() - net[scores.argmax()] < 1e-3
    one = Case(defer.rl2d_loss, {"expert_costs": costs[:, :1]})
    scores = minimiser(one, y, correct[:, :1], probability, 4)
    assert net[:4].max() - net[scores.argmax()] < 1e-3


# --- realizable data ---


@where("realizable")
def test_realizable_data_are_learned_without_error(name):
    # The classifier can know the left half of the rows, and the expert knows the right half.
    assert_zero_error(CASES[name])


def realizable_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    X = X[(np.abs(X) > 0.1).all(axis=1)]
    on_the_left = X[:, 0] < 0
    y = np.where(on_the_left, X[:, 1] > 0, rng.integers(0, 2, len(X))).astype(int)
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(~on_the_left)[:, None]


def assert_zero_error(case) -> None:
    X, y, correct = realizable_rows()
    W, b = best_minimum(lambda W, b: case(X @ W + b, y, correct).mean(), (2, 3), (3,))
    chosen = (X @ W + b).argmax(dim=1)
    wrong = torch.where(chosen == 2, ~correct[:, 0], chosen != y)
    assert int(wrong.sum()) == 0


def test_cross_entropy_does_not_learn_realizable_data_without_error():
    # Not a claim of its paper: the test above would say nothing if every loss passed it.
    with pytest.raises(AssertionError):
        assert_zero_error(CASES["cross_entropy"])


# --- triage and refusals ---


def test_triage_takes_the_largest_advantages_that_are_positive():
    class_losses = torch.tensor([1.0, 2.0, 0.1, 3.0, 0.5])
    expert_losses = torch.tensor([0.0, 1.5, 0.2, math.inf, 0.5])
    for share, rows in [(0, []), (0.2, [0]), (0.4, [0, 1]), (1, [0, 1])]:
        chosen = defer.triage_rows(class_losses, expert_losses, share)
        assert chosen.nonzero()[:, 0].tolist() == rows
    with pytest.raises(InvalidInputError, match=r"share must lie in \[0, 1\]"):
        defer.triage_rows(class_losses, expert_losses, 1.5)
    with pytest.raises(InvalidInputError, match="expert_losses must have shape"):
        defer.triage_rows(class_losses, expert_losses[:2], 0.5)


@where("one_expert")
def test_losses_for_one_expert_refuse_several(name):
    with pytest.raises(InvalidInputError, match="for one expert") as error:
        CASES[name](torch.zeros(2, 5), torch.tensor([0, 1]), torch.ones(2, 2, dtype=torch.bool))
    assert error.value.code == "one_expert_only"


@EVERY
def test_bad_input_is_refused(name):
    scores, y, correct, asked = draw(name, seed=9)
    with pytest.raises(InvalidInputError, match="correct must be a boolean tensor"):
        CASES[name](scores, y, correct.float())
    with pytest.raises(InvalidInputError, match="correct must have shape"):
        CASES[name](scores, y, correct[:3])
    with pytest.raises(InvalidInputError, match="asked must have shape"):
        CASES[name](scores, y, correct, asked=torch.cat([asked, asked], dim=1))
    with pytest.raises(InvalidInputError, match="y must be integers"):
        CASES[name](scores, y.double(), correct)
    with pytest.raises(InvalidInputError, match="at least two classes"):
        CASES[name](scores[:, : correct.shape[1] + 1], y, correct)
    n_classes = scores.shape[1] - correct.shape[1]
    for label in (-1, n_classes, scores.shape[1]):
        with pytest.raises(InvalidInputError, match=f"y must hold classes .* got {label}") as error:
            CASES[name](scores, torch.full_like(y, label), correct)
        assert error.value.code == "invalid_y"


def test_an_unknown_surrogate_is_refused():
    scores, y, correct, _ = draw("cross_entropy", seed=9)
    with pytest.raises(OptionError, match="surrogate must be one of"):
        defer.comp_sum_defer_loss(scores, y, correct, surrogate="hinge")


def test_half_precision_is_computed_in_single_precision():
    scores, y, correct, _ = draw("cross_entropy", seed=9)
    values = defer.cross_entropy_defer_loss(scores.half(), y, correct)
    assert values.dtype == torch.float32
