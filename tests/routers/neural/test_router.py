"""NeuralRouter: what it learns, when it stops, and that it repeats itself."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from mild.errors import (  # noqa: E402
    ConvergenceWarning,
    DegenerateDataWarning,
    InvalidInputError,
    MissingExtraError,
)
from mild.routers.linear import LinearRouter  # noqa: E402
from mild.routers.neural import NeuralRouter  # noqa: E402
from mild.routers.objective import LOSSES  # noqa: E402
from neural_cases import Dropout, quick, three_experts  # noqa: E402


def checkerboard(n=500, seed=0):
    """Two experts, each right in two opposite quadrants: no linear router can tell them apart."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n, 2))
    first = X[:, 0] * X[:, 1] > 0
    return X, np.column_stack([~first, first]).astype(float)


def weights(router):
    return np.concatenate([array.ravel() for array in router.policy_.weights])


def test_learns_regions_that_no_linear_router_can():
    X, costs = checkerboard()
    fresh, fresh_costs = checkerboard(seed=1)
    router = NeuralRouter(hidden=(32,), epochs=40, batch_size=64, lr=0.02).fit(X, costs)
    assert -router.score(fresh, fresh_costs) < 0.06
    assert -LinearRouter().fit(X, costs).score(fresh, fresh_costs) > 0.35


@pytest.mark.parametrize(
    ("loss", "missing"), [("mild", False), *((loss, True) for loss in LOSSES)], ids=str
)
def test_without_hidden_layers_it_reaches_the_optimum_of_the_linear_router(loss, missing):
    X, costs = three_experts(60)
    if missing:
        costs[np.random.default_rng(1).uniform(size=costs.shape) < 0.2] = np.nan
        costs[np.isnan(costs).all(axis=1), 0] = 1
    weight = np.random.default_rng(2).uniform(0.5, 2, len(X))
    linear = LinearRouter(loss, margins=(0.5, 1, 2), alpha=1e-2, tol=1e-10).fit(X, costs, weight)
    # torch's decay adds w * decay to the gradient: half of it is the strength of the squared norm.
    router = quick(
        hidden=(), loss=loss, margins=(0.5, 1, 2), epochs=250, batch_size=60, lr=0.1, optimizer="sgd",
        weight_decay=2e-2, validation_fraction=0, schedule="onecycle",
    ).fit(X, costs, weight)  # fmt: skip
    (coef,), (intercept,) = router.policy_.weights, router.policy_.biases
    value = router.history_[-1]["loss"] + 1e-2 * float(np.square(coef).sum())
    assert value == pytest.approx(linear.objective_, rel=2e-3)
    assert_allclose(coef, linear.coef_, atol=0.03)
    assert_allclose(
        intercept - intercept.mean(), linear.intercept_ - linear.intercept_.mean(), atol=0.03
    )
    assert_array_equal(router.margins_, linear.margins_)


@pytest.mark.parametrize("surrogate", ["exponential", 1.5, 2.5, "hinge", "pairwise_logistic"])
def test_takes_every_surrogate_convex_or_not(surrogate):
    X, costs = three_experts(150)
    router = quick(surrogate=surrogate, counts="best", rewards="contrast", epochs=25, lr=0.02)
    assert router.fit(X, costs).score(X, costs) > -costs.mean(axis=0).min() + 0.2


def test_from_tau_two_on_the_largest_score_decides():
    X, costs = three_experts()
    router = quick(surrogate=2.5, margins=(0.5, 1, 2)).fit(X, costs)
    assert router.policy_.decoder.by_argmax
    assert (
        quick(surrogate=1.5, margins=(0.5, 1, 2)).fit(X, costs).policy_.decoder.rule == "stationary"
    )


def test_sample_weights_say_which_rows_count():
    X = np.zeros((40, 1))
    costs = np.tile([[0.0, 1.0], [1.0, 0.0]], (20, 1))
    heavy = np.tile([1.0, 9.0], 20)
    router = quick(epochs=20, validation_fraction=0)
    assert_array_equal(router.fit(X, costs, heavy).predict(X), 1)
    assert_array_equal(router.fit(X, costs, heavy[::-1]).predict(X), 0)


def test_rows_of_weight_zero_might_as_well_not_be_there():
    X, costs = three_experts()
    weight = np.random.default_rng(1).integers(0, 2, len(X)).astype(float)
    kept = weight > 0
    with_them = quick(margins="uniform").fit(X, costs, weight)
    without = quick(margins="uniform").fit(X[kept], costs[kept])
    assert_allclose(weights(with_them), weights(without), atol=1e-5)
    assert with_them.history_[-1]["validation_loss"] == without.history_[-1]["validation_loss"]


@pytest.mark.parametrize("sampling", ["over", "under"])
def test_resampling_lifts_the_minority(sampling):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    minority = X[:, 0] + rng.normal(size=300) > 1.6
    costs = np.column_stack([minority, ~minority]).astype(float)
    plain = quick(loss="ce", hidden=(), epochs=15, lr=0.05, validation_fraction=0)
    shares = [
        router.fit(X, costs).predict(X).mean()
        for router in (plain, quick(**{**plain.get_params(), "sampling": sampling}))
    ]
    assert shares[1] > shares[0] + 0.1


def test_stops_when_the_deferral_loss_held_out_no_longer_improves_and_keeps_the_best_epoch():
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(120, 6)), rng.uniform(size=(120, 3))
    options = {"hidden": (32,), "lr": 0.02, "validation_fraction": 0.3, "patience": 4}
    router = quick(epochs=100, **options).fit(X, costs)
    losses = [record["validation_loss"] for record in router.history_]
    assert router.n_iter_ == len(losses) == router.best_epoch_ + 4 < 100
    assert losses[router.best_epoch_ - 1] == min(losses)
    shorter = quick(**{**options, "epochs": router.best_epoch_}).fit(X, costs)
    assert_array_equal(weights(shorter), weights(router))


def test_the_deferral_loss_held_out_is_that_of_the_policy():
    X, costs = three_experts(200)
    seen = []
    router = quick(epochs=1, validation_fraction=0.25, progress=lambda *args: seen.append(args))
    router.fit(X, costs)
    order = np.random.default_rng([0, 0]).permutation(200)[:50]
    assert router.history_[0]["validation_loss"] == pytest.approx(
        -router.score(X[order], costs[order])
    )
    assert seen == [(1, 1, seen[0][2])]
    assert seen[0][2].startswith("loss ")


def test_without_rows_held_out_it_trains_to_the_end():
    X, costs = three_experts()
    router = quick(epochs=7, patience=1, validation_fraction=0).fit(X, costs)
    assert router.n_iter_ == router.best_epoch_ == 7
    assert [record["epoch"] for record in router.history_] == list(range(1, 8))
    assert "validation_loss" not in router.history_[0]


def test_a_handful_of_rows_holds_none_out():
    X, costs = three_experts(9)
    assert "validation_loss" not in quick().fit(X, costs).history_[0]


class Exploding(nn.Module):
    """Sound for some calls in training, then infinite."""

    def __init__(self, calls):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.left = calls

    def forward(self, x):
        if self.training:
            self.left -= 1
        return self.linear(x) * (1.0 if self.left >= 0 else float("inf"))


def test_a_run_that_diverges_keeps_its_best_epoch_and_says_so():
    X, costs = three_experts(100)
    with pytest.warns(ConvergenceWarning, match=r"diverged in epoch 3: epoch \d is kept. Lower lr"):
        router = quick(Exploding(6)).fit(X, costs)
    assert router.n_iter_ == 2
    assert np.isfinite(router.policy_.module.linear.weight.detach().numpy()).all()


def test_a_run_that_diverges_with_nothing_to_keep_is_an_error():
    X, costs = three_experts()
    with pytest.raises(InvalidInputError, match=r"diverged in epoch 1.*Lower lr=0.01"):
        quick(Exploding(0)).fit(X, costs)
    with pytest.raises(InvalidInputError, match="scale the features"):
        quick(validation_fraction=0).fit(X * 1e300, costs)


def test_the_same_seed_gives_the_same_weights_whatever_the_global_state():
    X, costs = three_experts()
    torch.manual_seed(1)
    one = quick(random_state=3).fit(X, costs)
    torch.manual_seed(2)
    assert_array_equal(weights(quick(random_state=3).fit(X, costs)), weights(one))
    assert not np.array_equal(weights(quick(random_state=4).fit(X, costs)), weights(one))


def test_random_states_that_are_no_integer_vary():
    X, costs = three_experts()
    assert not np.array_equal(
        weights(quick(random_state=None).fit(X, costs)),
        weights(quick(random_state=None).fit(X, costs)),
    )
    state = np.random.RandomState(0)
    first = weights(quick(random_state=state).fit(X, costs))
    assert not np.array_equal(first, weights(quick(random_state=state).fit(X, costs)))
    again = quick(random_state=np.random.RandomState(0)).fit(X, costs)
    assert_array_equal(first, weights(again))


def test_dropout_and_factories_are_repeatable():
    X, costs = three_experts()
    scores = [quick(Dropout).fit(X, costs).decision_function(X) for _ in range(2)]
    assert_array_equal(scores[0], scores[1])


def test_the_random_state_of_torch_is_left_as_it_was_also_after_an_error():
    X, costs = three_experts()
    before = torch.get_rng_state()
    quick(Dropout).fit(X, costs)
    assert torch.equal(torch.get_rng_state(), before)

    def fail(epoch, epochs, message):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        quick(progress=fail).fit(X, costs)
    assert torch.equal(torch.get_rng_state(), before)


def test_sparse_rows_train_exactly_as_dense_ones():
    X, costs = three_experts()
    X[np.abs(X) < 0.7] = 0
    dense, thin = quick().fit(X, costs), quick().fit(sparse.csr_array(X), costs)
    assert_array_equal(weights(thin), weights(dense))
    module = quick(Dropout).fit(sparse.csr_array(X), costs)
    assert_array_equal(module.decision_function(sparse.csr_array(X)), module.decision_function(X))


def test_read_only_inputs_are_fine():
    X, costs = three_experts()
    small = X.astype(np.float32)
    small.setflags(write=False)
    costs.setflags(write=False)
    assert quick(Dropout).fit(small, costs).predict(small).shape == (len(X),)


def test_training_works_inside_no_grad():
    X, costs = three_experts()
    with torch.no_grad():
        inside = quick().fit(X, costs)
    assert_array_equal(weights(inside), weights(quick().fit(X, costs)))


def test_one_expert_needs_no_training():
    X, costs = three_experts()
    router = quick().fit(X, costs[:, :1])
    assert_array_equal(router.predict(X), 0)
    assert (router.n_iter_, router.best_epoch_, router.history_) == (0, 0, [])


def test_warns_of_experts_that_labels_never_name():
    X, costs = three_experts()
    costs[:, 1] = 100
    with pytest.warns(DegenerateDataWarning, match="never cheapest: 1"):
        quick(loss="ce").fit(X, costs)


def test_without_torch_fitting_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[neural\]"):
        NeuralRouter().fit(*three_experts())


def test_importing_and_constructing_does_not_import_torch():
    code = (
        "import sys; from mild.routers.neural import NeuralRouter; NeuralRouter(); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
