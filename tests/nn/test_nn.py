"""The torch functions: parity with NumPy in value and gradient, and what autograd adds."""

from __future__ import annotations

import importlib
import math
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import oracles  # noqa: E402
from mild import metrics, nn  # noqa: E402
from mild.core import costs, decisions, losses, margins  # noqa: E402
from mild.errors import InvalidInputError, MissingExtraError, UnsupportedError  # noqa: E402
from mild.nn import losses as nn_losses  # noqa: E402
from tolerances import rounding  # noqa: E402

SURROGATES = list(oracles.FORMS)
SMOOTH = ["logistic", 0.5, "exponential", "pairwise_logistic", "pairwise_exponential"]
DTYPES = [(np.float32, 1e-5), (np.float64, 1e-12)]

every_surrogate = pytest.mark.parametrize("surrogate", SURROGATES)


def draw(seed: int, n: int, p: int, shared: bool = False) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    rewards = rng.random((n, p)) * (rng.random((n, p)) < 0.8)
    rho = rng.choice([0.5, 1.3], p) if shared else rng.uniform(0.3, 2, p)
    return rng.normal(size=(n, p)) * 2, rewards, rho


def tensor(values: object, **options: object) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), **options)


def value_and_gradient(
    loss: Callable[[torch.Tensor], torch.Tensor], scores: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    f = tensor(scores).clone().requires_grad_(True)
    values = loss(f)
    values.sum().backward()
    return values.detach().numpy(), f.grad.numpy()


# --- MILD ---


@every_surrogate
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("p", [1, 2, 5])
@pytest.mark.parametrize("shared", [False, True])
def test_mild_loss_agrees_with_numpy_in_value_and_gradient(
    surrogate: object, dtype: type, tolerance: float, p: int, shared: bool
) -> None:
    scores, rewards, rho = draw(p, 25, p, shared)
    scores, rewards = scores.astype(dtype), rewards.astype(dtype)
    expected, slope = losses.mild_loss(scores, rewards, rho, surrogate, return_gradient=True)
    values, gradient = value_and_gradient(
        lambda f: nn.mild_loss(f, tensor(rewards), rho, surrogate), scores
    )
    assert values.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(values, expected, rtol=tolerance * 10, atol=tolerance)
    size = np.abs(slope).max(axis=1, keepdims=True) + 1
    np.testing.assert_allclose(gradient / size, slope / size, atol=tolerance * 10)


@every_surrogate
def test_mild_loss_passes_gradcheck_in_scores_and_rewards(surrogate: object) -> None:
    scores, rewards, rho = draw(1, 4, 4)
    f = tensor(scores).requires_grad_(True)
    w = tensor(rewards + 0.1).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda f, w: nn.mild_loss(f, w, rho, surrogate), (f, w))


def test_the_logistic_loss_is_twice_differentiable() -> None:
    scores, rewards, rho = draw(2, 3, 4, shared=True)
    f = tensor(scores).requires_grad_(True)
    w = tensor(rewards)
    assert torch.autograd.gradgradcheck(lambda f: nn.mild_loss(f, w, rho), (f,))


def test_per_sample_gradients_work_through_vmap() -> None:
    scores, rewards, rho = draw(3, 6, 4)
    f, w = tensor(scores), tensor(rewards)

    def single(row: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return nn.mild_loss(row[None], weight[None], rho)[0]

    got = torch.func.vmap(torch.func.grad(single))(f, w)
    expected = losses.mild_loss(scores, rewards, rho, return_gradient=True)[1]
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-12)


@every_surrogate
def test_a_zero_initialised_router_gets_the_right_first_gradient(surrogate: object) -> None:
    _, rewards, rho = draw(4, 10, 3)
    scores = np.zeros((10, 3))
    expected, slope = losses.mild_loss(scores, rewards, rho, surrogate, return_gradient=True)
    values, gradient = value_and_gradient(
        lambda f: nn.mild_loss(f, tensor(rewards), rho, surrogate), scores
    )
    np.testing.assert_allclose(values, expected)
    np.testing.assert_allclose(gradient, slope, atol=1e-14)


@every_surrogate
@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1.0), (np.float64, 15.0)])
@pytest.mark.parametrize("p", [1, 2, 4, 60])
def test_mild_loss_many_margins_apart_is_numpys(
    surrogate: object, dtype: type, size: float, p: int
) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(20, p)) * (rng.random((20, 1)) < 0.5)
    scores = (rng.choice([-1.0, 0.0, 1.0], (20, p)) * size + noise).astype(dtype)
    rewards = rng.choice([0.0, 0.3, 1.0], (20, p)).astype(dtype)
    rewards[::5] = 0
    rho = rng.choice([0.1, 0.7, 1.9], p)
    expected, slope = losses.mild_loss(scores, rewards, rho, surrogate, return_gradient=True)
    values, gradient = value_and_gradient(
        lambda f: nn.mild_loss(f, tensor(rewards), rho, surrogate), scores
    )
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(values[::5], 0)
    np.testing.assert_array_equal(gradient[::5], 0)


def test_a_row_left_out_of_the_mean_contributes_no_nan_even_if_it_overflows() -> None:
    f = torch.tensor([[0.0, 1.0], [-1e20, 1e20]], requires_grad=True)
    loss = nn.mild_loss(f, torch.ones(2, 2), surrogate="exponential")
    assert loss[1] == math.inf
    loss[0].backward()
    assert torch.isfinite(f.grad).all()
    assert (f.grad[1] == 0).all()


@every_surrogate
def test_experts_never_asked_take_no_part_in_their_row(surrogate: object) -> None:
    scores, rewards, rho = draw(6, 30, 5)
    asked = np.random.default_rng(0).random((30, 5)) < 0.6
    asked[0] = False
    scores[1:4] *= 10
    expected, slope = losses.mild_loss(
        scores, rewards, rho, surrogate, return_gradient=True, asked=asked
    )
    values, gradient = value_and_gradient(
        lambda f: nn.mild_loss(f, tensor(rewards), rho, surrogate, asked=tensor(asked)), scores
    )
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(gradient[~asked], 0)
    assert values[0] == 0


@pytest.mark.parametrize("missing", [False, True])
def test_tdef_loss_agrees_with_numpy(missing: bool) -> None:
    rng = np.random.default_rng(7)
    scores, table = rng.normal(size=(20, 4)), rng.random((20, 4))
    if missing:
        table[rng.random((20, 4)) < 0.3] = np.nan
        table[:, 0] = 0.5
    for scale in (1.5, None):
        expected, slope = losses.tdef_loss(scores, table, scale, return_gradient=True)
        values, gradient = value_and_gradient(
            lambda f, scale=scale: nn.tdef_loss(f, tensor(table), scale), scores
        )
        np.testing.assert_allclose(values, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, slope, atol=1e-12)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(half: torch.dtype) -> None:
    scores, rewards, rho = draw(8, 40, 6)
    f = tensor(scores).to(half).requires_grad_(True)
    values = nn.mild_loss(f, tensor(rewards), rho)
    assert values.dtype == torch.float32
    values.mean().backward()
    assert f.grad.dtype == half
    expected, slope = losses.mild_loss(
        f.detach().double().numpy(), rewards, rho, return_gradient=True
    )
    np.testing.assert_allclose(values.detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(f.grad.float().numpy(), slope / 40, atol=1e-2 * np.abs(slope).max())


class Recorder(TorchDispatchMode):
    """Counts operations and remembers the largest tensor made."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        for value in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(value, torch.Tensor):
                self.largest = max(self.largest, value.numel())
        return result


@every_surrogate
def test_tensors_of_pairs_are_made_for_a_bounded_number_of_rows(
    surrogate: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, p = 70, 40
    scores, rewards, rho = draw(9, n, p)
    f, w = tensor(scores).requires_grad_(True), tensor(rewards)
    whole = nn.mild_loss(f, w, rho, surrogate)
    slope = torch.autograd.grad(whole.sum(), f)[0]
    monkeypatch.setattr(nn_losses, "MAX_PAIRS", p * p)
    with Recorder() as recorder:
        parts = nn.mild_loss(f, w, rho, surrogate)
        parts.sum().backward()
    assert 0 < recorder.largest <= n * p
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(f.grad, slope)


def test_autograd_keeps_only_the_inputs_however_many_margins_differ() -> None:
    n, p = 7, 40
    scores, rewards, rho = draw(10, n, p)
    kept: list[int] = []

    def pack(value: torch.Tensor) -> torch.Tensor:
        kept.append(value.numel())
        return value

    f, w = tensor(scores).requires_grad_(True), tensor(rewards)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        nn.mild_loss(f, w, rho)
    assert sum(kept) <= 2 * n * p


@pytest.mark.parametrize("rho", [2.0, [1.0, 1.0, 2.0, 2.0, 2.0, 1.0]])
def test_one_log_sum_exp_serves_all_experts(rho: object) -> None:
    scores, rewards, _ = draw(11, 5, 6)
    with Recorder() as recorder:
        nn.mild_loss(tensor(scores), tensor(rewards), rho)
    assert recorder.calls["logsumexp"] == 1
    assert recorder.largest == (30 if isinstance(rho, float) else 180)


def test_losses_do_not_wait_for_values() -> None:
    # A meta tensor has no values: whatever looks at one fails.
    f = torch.empty(4, 3, device="meta", requires_grad=True)
    y = torch.zeros(4, dtype=torch.int64, device="meta")
    w = torch.empty(4, 3, device="meta")
    for surrogate in SURROGATES:
        nn.mild_loss(f, w, [1.0, 2.0, 1.0], surrogate).sum().backward()
    nn.tdef_loss(f, w, cost_scale=1.0).sum().backward()
    nn.cross_entropy_loss(f, y).sum().backward()
    nn.cost_sensitive_loss(f, y, w).sum().backward()
    nn.log_sum_loss(f, y, w).sum().backward()
    assert f.grad.shape == (4, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu() -> None:
    scores, rewards, rho = draw(12, 20, 5)
    for surrogate in SURROGATES:
        on_cpu = nn.mild_loss(tensor(scores), tensor(rewards), rho, surrogate)
        on_gpu = nn.mild_loss(tensor(scores).cuda(), tensor(rewards).cuda(), rho, surrogate)
        torch.testing.assert_close(on_gpu.cpu(), on_cpu)
    on_gpu = nn.stationary_distribution(tensor(scores).cuda(), rho)
    torch.testing.assert_close(on_gpu.cpu(), nn.stationary_distribution(tensor(scores), rho))


# --- labels and pairs of experts ---

COUNTS = [50, 0, 3, 12]
LABEL_LOSSES: dict[str, tuple[Callable, Callable]] = {
    "ce": (nn.cross_entropy_loss, losses.cross_entropy_loss),
    "cwce": (
        lambda f, y: nn.cross_entropy_loss(f, y, [0.5, 1.0, 4.0, 0.0]),
        lambda f, y, **o: losses.cross_entropy_loss(f, y, [0.5, 1.0, 4.0, 0.0], **o),
    ),
    "ldam": (
        lambda f, y: nn.ldam_loss(f, y, COUNTS, 0.4, 10.0),
        lambda f, y, **o: losses.ldam_loss(f, y, COUNTS, 0.4, 10.0, **o),
    ),
    "logit adjustment": (
        lambda f, y: nn.logit_adjusted_loss(f, y, COUNTS, 1.5),
        lambda f, y, **o: losses.logit_adjusted_loss(f, y, COUNTS, 1.5, **o),
    ),
    "temperatures": (
        lambda f, y: nn.class_dependent_temperature_loss(f, y, COUNTS, 0.4),
        lambda f, y, **o: losses.class_dependent_temperature_loss(f, y, COUNTS, 0.4, **o),
    ),
}


@pytest.mark.parametrize("name", LABEL_LOSSES)
@pytest.mark.parametrize("size", [1.0, 1e3, 1e20])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_label_losses_agree_with_numpy(
    name: str, size: float, dtype: type, tolerance: float
) -> None:
    rng = np.random.default_rng(13)
    kind = rng.normal(size=(40, 4)) if size == 1 else rng.choice([-1.0, 0.0, 1.0], (40, 4))
    scores = (kind * size).astype(dtype)
    labels = rng.integers(0, 4, 40)
    ours, theirs = LABEL_LOSSES[name]
    expected, slope = theirs(scores, labels, return_gradient=True)
    values, gradient = value_and_gradient(lambda f: ours(f, tensor(labels)), scores)
    assert values.dtype == dtype
    np.testing.assert_allclose(values, expected, rtol=tolerance * 10, atol=tolerance * 100)
    np.testing.assert_allclose(gradient, slope, atol=tolerance * 100)


@pytest.mark.parametrize("counts", [[0.05, 0.001, 0.003, 0.012], [0.05, 0.0, 0.003, 0.012]])
@pytest.mark.parametrize(
    "name", ["ldam_loss", "logit_adjusted_loss", "class_dependent_temperature_loss"]
)
def test_label_losses_agree_with_numpy_on_counts_below_one(name: str, counts: list[float]) -> None:
    rng = np.random.default_rng(14)
    scores, labels = rng.normal(size=(40, 4)), rng.integers(0, 4, 40)
    values = getattr(nn, name)(tensor(scores), tensor(labels), counts)
    # A loss near 0 is what is left of scores, which LDAM multiplies by 30.
    near = rounding(np.float64, 30 * np.abs(scores).max())
    np.testing.assert_allclose(values, getattr(losses, name)(scores, labels, counts), **near)
    # Only ratios of the counts matter, an absent expert having the smallest.
    large = [1000 * max(count, min(filter(None, counts))) for count in counts]
    same = getattr(nn, name)(tensor(scores), tensor(labels), large)
    np.testing.assert_allclose(values, same, **near)


def pair_data(size: float, dtype: type) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(14)
    kind = rng.normal(size=(40, 4)) if size == 1 else rng.choice([-1.0, 0.0, 1.0], (40, 4))
    labels = rng.integers(0, 4, 40)
    table = (rng.random((40, 4)) * (rng.random((40, 4)) < 0.8)).astype(dtype)
    table[np.arange(40), labels] = 0
    return (kind * size).astype(dtype), labels, table, rng.uniform(0.3, 2, 4)


@pytest.mark.parametrize("surrogate", ["logistic", 0.5, "exponential", 1.7, "hinge"])
@pytest.mark.parametrize("reduction", ["max", "sum"])
@pytest.mark.parametrize("size", [1.0, 3.0])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_cost_sensitive_losses_agree_with_numpy(
    surrogate: object, reduction: str, size: float, dtype: type, tolerance: float
) -> None:
    scores, labels, table, rho = pair_data(size, dtype)
    expected, slope = losses.cost_sensitive_loss(
        scores, labels, table, rho, surrogate, reduction, return_gradient=True
    )
    values, gradient = value_and_gradient(
        lambda f: nn.cost_sensitive_loss(
            f, tensor(labels), tensor(table), rho, surrogate, reduction
        ),
        scores,
    )
    np.testing.assert_allclose(values, expected, rtol=tolerance * 100, atol=tolerance)
    np.testing.assert_allclose(gradient, slope, rtol=tolerance * 100, atol=tolerance * 10)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e20])
@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
def test_log_sum_and_margin_losses_agree_with_numpy(
    size: float, dtype: type, tolerance: float
) -> None:
    scores, labels, table, rho = pair_data(size, dtype)
    y, c = tensor(labels), tensor(table)
    expected, slope = losses.log_sum_loss(scores, labels, table, rho, return_gradient=True)
    values, gradient = value_and_gradient(lambda f: nn.log_sum_loss(f, y, c, rho), scores)
    np.testing.assert_allclose(values, expected, rtol=tolerance * 10, atol=tolerance)
    np.testing.assert_allclose(gradient, slope, atol=tolerance * 10)
    values, gradient = value_and_gradient(lambda f: nn.rho_margin_loss(f, y, c, rho), scores)
    expected = losses.rho_margin_loss(scores, labels, table, rho)
    np.testing.assert_allclose(values, expected, rtol=tolerance * 10, atol=tolerance)
    assert np.isfinite(gradient).all()


def test_one_expert_costs_nothing_in_any_loss() -> None:
    y, c = torch.tensor([0]), torch.zeros(1, 1)
    for loss in (
        lambda f: nn.mild_loss(f, torch.ones(1, 1)),
        lambda f: nn.cross_entropy_loss(f, y),
        lambda f: nn.ldam_loss(f, y, [3]),
        lambda f: nn.cost_sensitive_loss(f, y, c),
        lambda f: nn.log_sum_loss(f, y, c),
        lambda f: nn.rho_margin_loss(f, y, c),
    ):
        values, gradient = value_and_gradient(loss, np.array([[2.0]], np.float32))
        assert values == 0
        assert gradient == 0


# --- costs, margins, decisions ---


@pytest.mark.parametrize("kind", costs.ALL_REWARDS)
@pytest.mark.parametrize("scale", [None, 3.0])
def test_costs_rewards_and_mass_agree_with_numpy(kind: str, scale: float | None) -> None:
    rng = np.random.default_rng(15)
    table = rng.choice([0.0, 0.5, 1.0, 2.0], (50, 4))
    table[rng.random((50, 4)) < 0.2] = np.nan
    table[np.isnan(table).all(axis=1)] = 1.0
    expected = costs.rewards(table, kind, scale)
    got = nn.rewards(tensor(table), kind, scale)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-15)
    np.testing.assert_allclose(
        nn.reward_distribution(got).numpy(), costs.reward_distribution(expected), atol=1e-15
    )
    for counts in margins.COUNTS:
        np.testing.assert_allclose(
            nn.expert_mass(tensor(table), kind, counts).numpy(),
            margins.expert_mass(table, kind, counts),
        )


@pytest.mark.parametrize("strength", [0, 0.3, 1, 2.5])
def test_baseline_rewards_agree_with_numpy(strength: float) -> None:
    table = np.random.default_rng(17).gamma(1.0, 1.0, (50, 4))
    table[np.arange(50), np.arange(50) % 4] = np.nan
    got = nn.rewards(tensor(table), "baseline", strength=strength)
    expected = costs.rewards(table, "baseline", strength=strength)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-14)
    for other, kind in {0: "contrast", 1: "others"}.items():
        if strength == other:
            assert torch.equal(got, nn.rewards(tensor(table), kind))
    np.testing.assert_allclose(
        nn.expert_mass(tensor(table), "baseline", strength=strength).numpy(),
        margins.expert_mass(table, "baseline", strength=strength),
    )


def test_cost_matrix_and_deferral_loss_agree_with_numpy() -> None:
    rng = np.random.default_rng(16)
    predictions, labels = rng.integers(0, 3, (30, 4)), rng.integers(0, 3, 30)
    for betas in (None, [0.1, 0.2, 0.3, 0.4]):
        got = nn.cost_matrix(tensor(predictions), tensor(labels), betas)
        expected = costs.cost_matrix(predictions, labels, betas)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)
    chosen = rng.integers(0, 4, 30)
    assert float(nn.deferral_loss(tensor(expected), tensor(chosen))) == pytest.approx(
        metrics.deferral_loss(expected, chosen)
    )


@pytest.mark.parametrize("norms", [None, [1.0, 2.0, 0.5, 3.0]])
@pytest.mark.parametrize("total", [None, 1.0])
@pytest.mark.parametrize("share_below", [0.0, 0.2])
def test_theory_margins_agree_with_numpy(
    norms: list[float] | None, total: float | None, share_below: float
) -> None:
    for mass in ([60.0, 25.0, 10.0, 5.0], [8.0, 0.0, 1.0, 2.0], [0.5, 0.0, 0.3, 0.2]):
        got = nn.theory_margins(tensor(mass), norms, total, share_below)
        expected = margins.theory_margins(mass, norms, total, share_below)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("surrogate", SMOOTH)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e20])
def test_stationary_decoding_agrees_with_numpy(
    surrogate: object, shared: bool, p: int, size: float
) -> None:
    rng = np.random.default_rng(17)
    rho = rng.choice([0.4, 1.8], p) if shared else rng.uniform(0.3, 2, p)
    scores = rng.choice([-1.0, 0.0, 1.0], (40, p)) * size + rng.normal(size=(40, p))
    expected = decisions.stationary_distribution(scores, rho, surrogate)
    got = nn.stationary_distribution(tensor(scores), rho, surrogate)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(got.sum(dim=1).numpy(), 1)
    best = np.sort(expected, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-9 if p > 1 else np.ones(40, bool)
    for rule in decisions.DECISIONS:
        np.testing.assert_array_equal(
            nn.decide(tensor(scores), rho, rule, surrogate).numpy()[clear],
            decisions.decide(scores, rho, rule, surrogate)[clear],
        )
    assert clear.sum() > 20


def test_stationary_decoding_of_float32_and_half_scores_loses_nothing_but_their_rounding() -> None:
    scores, _, rho = draw(19, 50, 4)
    for dtype, back in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32)):
        f = tensor(scores).to(dtype)
        got = nn.stationary_distribution(f, rho)
        assert got.dtype == back
        expected = decisions.stationary_distribution(f.double().numpy(), rho)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


def test_no_gradient_flows_through_decoding() -> None:
    f = torch.zeros(2, 3, requires_grad=True)
    assert not nn.stationary_distribution(f, [1.0, 2.0, 3.0]).requires_grad


def test_ties_go_to_the_highest_index() -> None:
    tied = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 3.0, 1.0]])
    assert nn.decide(tied).tolist() == [1, 2, 1]
    assert nn.decide(tied, decision="argmax").tolist() == [1, 2, 1]


def test_every_function_accepts_no_rows() -> None:
    f = torch.zeros(0, 3)
    assert nn.mild_loss(f, f).shape == (0,)
    assert nn.stationary_distribution(f, [1.0, 2.0, 3.0]).shape == (0, 3)
    assert nn.decide(f).shape == (0,)
    assert nn.rewards(f, "complement").shape == (0, 3)


# --- the border ---

F = torch.zeros(2, 3)
Y = torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: nn.mild_loss([[0.0]], F), "scores"),
        (lambda: nn.mild_loss(F[0], F), "scores"),
        (lambda: nn.mild_loss(F.bool(), F), "scores"),
        (lambda: nn.mild_loss(F, F[:1]), "rewards"),
        (lambda: nn.mild_loss(F, F, [1.0]), "margins"),
        (lambda: nn.mild_loss(F, F, [1.0, 0.0, 1.0]), "margins"),
        (lambda: nn.mild_loss(F, F, asked=F), "asked"),
        (lambda: nn.mild_loss(F, F, asked=F[:1].bool()), "asked"),
        (lambda: nn.mild_loss(F, F, surrogate="logistics"), "surrogate"),
        (lambda: nn.tdef_loss(F, F, cost_scale=0.0), "cost_scale"),
        (lambda: nn.cross_entropy_loss(F, Y[:1]), "labels"),
        (lambda: nn.cross_entropy_loss(F, Y.float()), "labels"),
        (lambda: nn.cross_entropy_loss(F, Y, [1.0]), "weights"),
        (lambda: nn.ldam_loss(F, Y, [1.0, 2.0]), "counts"),
        (lambda: nn.ldam_loss(F, Y, [0.0] * 3), "counts"),
        (lambda: nn.log_sum_loss(F, Y, F[:, :2]), "costs"),
        (lambda: nn.cost_sensitive_loss(F, Y, F, reduction="maxi"), "reduction"),
        (lambda: nn.rewards(F - 1), "costs"),
        (lambda: nn.rewards(F + math.nan), "costs"),
        (lambda: nn.rewards(F + 2, "complement", 1.0), "cost_scale"),
        (lambda: nn.rewards(F, "baseline", strength=-1.0), "strength"),
        (lambda: nn.reward_distribution(F - 1), "rewards"),
        (lambda: nn.expert_mass(F, counts="bests"), "counts"),
        (lambda: nn.cost_matrix(F[0], Y), "predictions"),
        (lambda: nn.cost_matrix(F, Y, [-1.0, 0, 0]), "betas"),
        (lambda: nn.deferral_loss(F, Y + 3), "chosen"),
        (lambda: nn.deferral_loss(F + math.nan, Y), "costs"),
        (lambda: nn.deferral_loss(F[:0], Y[:0]), "costs"),
        (lambda: nn.theory_margins([0.0, 0.0]), "mass"),
        (lambda: nn.theory_margins([1.0], [0.0]), "norms"),
        (lambda: nn.theory_margins([1.0], total=-1), "total"),
        (lambda: nn.decide(F + math.inf), "scores"),
        (lambda: nn.decide(F, decision="stationery"), "decision"),
    ],
)
def test_bad_input_is_refused(call: Callable, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert caught.value.code == f"invalid_{code}"


def test_the_hinge_has_no_stationary_decoding() -> None:
    with pytest.raises(UnsupportedError, match="not the hinge"):
        nn.stationary_distribution(F, surrogate="hinge")


def test_importing_without_torch_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[:2] == ["mild", "nn"]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[neural\]"):
        importlib.import_module("mild.nn")


def test_every_function_of_the_numpy_core_has_its_torch_namesake() -> None:
    homes = (costs, losses, margins, decisions, metrics)
    for name in nn.__all__:
        assert any(hasattr(home, name) for home in homes), name
