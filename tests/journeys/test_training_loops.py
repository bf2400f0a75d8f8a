"""A network of one's own in torch, trained with the losses of ``mild.nn`` on a problem with a known answer.

Points of a square are sent to three experts. How often each errs where, and so what the best choices cost,
is known. Everything runs on the CPU.
"""

from __future__ import annotations

import numpy as np
import pytest

from journeys import adapter
from mild import Outcomes, core, fit, metrics

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = pytest.importorskip("mild.nn")
defer = pytest.importorskip("mild.nn.defer")

PRICES = np.array([0.02, 0.1, 0.15])
EXPERTS = ["left", "right", "anywhere"]
# How far from the best choices a network may be; the best expert alone is at 1.
NEAR = 0.25


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Small networks are not faster with several, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def expected_costs(X):
    """The first knows the left, the second the right, and the third a bit of everything."""
    x = X[:, 0]
    errs = np.column_stack(
        [np.where(x < -0.3, 0.05, 0.95), np.where(x > 0.3, 0.05, 0.95), np.full(len(X), 0.3)]
    )
    return errs + PRICES


def points(count, seed):
    """Points, and what each expert costs there: an error, or none, and its price."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (count, 2))
    return X, (rng.random((count, 3)) < expected_costs(X) - PRICES) + PRICES


@pytest.fixture(scope="module")
def problem():
    return points(1000, seed=0)


def distance(chosen, X):
    """Where the expected cost of choices lies, from 0 for the best to 1 for one expert alone."""
    costs = expected_costs(X)
    best = costs.min(axis=1).mean()
    paid = costs[np.arange(len(X)), chosen].mean()
    return (paid - best) / (costs.mean(axis=0).min() - best)


def network(n_outputs, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, n_outputs)
    )


def train(model, X, loss_of, steps=150):
    """The plainest loop: all rows at every step; ``loss_of(scores)`` is a value for each row.

    Losses of every step; the gradients must be finite.
    """
    inputs = torch.tensor(X, dtype=torch.float32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        values = loss_of(model(inputs))
        assert values.shape == (len(X),)
        values.mean().backward()
        for parameter in model.parameters():
            assert torch.isfinite(parameter.grad).all()
        optimizer.step()
        losses.append(values.mean().item())
    return np.array(losses)


def scores_of(model, X):
    with torch.no_grad():
        return model(torch.tensor(X, dtype=torch.float32))


def assert_it_falls(losses):
    assert np.isfinite(losses).all()
    assert losses[-50:].mean() < losses[:50].mean() < losses[0]


@pytest.mark.parametrize("rewards", ["others", "contrast", "complement", "baseline"])
def test_mild_finds_the_experts_of_a_problem(rewards, problem):
    X, costs = problem
    margins = core.theory_margins(core.expert_mass(costs, rewards))
    weights = nn.rewards(torch.tensor(costs), rewards)
    model = network(3)
    losses = train(model, X, lambda scores: nn.mild_loss(scores, weights.float(), margins))
    assert_it_falls(losses)
    new, new_costs = points(1000, seed=1)
    scores = scores_of(model, new)
    chosen = nn.decide(scores, margins)
    assert distance(chosen.numpy(), new) < NEAR
    # The rule takes the largest share of the rewards; NumPy decides the same.
    shares = nn.stationary_distribution(scores, margins)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones_like(shares[:, 0]))
    assert (shares.argmax(dim=1) == chosen).float().mean() > 0.999
    np.testing.assert_array_equal(core.decide(scores.numpy(), margins), chosen.numpy())
    paid = new_costs[np.arange(len(new)), chosen.numpy()]
    assert metrics.deferral_loss(new_costs, chosen.numpy()) == pytest.approx(paid.mean())


def test_tdef_finds_the_experts_in_batches_of_rows(problem):
    X, costs = problem
    inputs = torch.tensor(X, dtype=torch.float32)
    targets = torch.tensor(costs, dtype=torch.float32)
    model = network(3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        for rows in torch.randperm(len(X)).split(250):
            optimizer.zero_grad()
            loss = nn.tdef_loss(model(inputs[rows]), targets[rows], cost_scale=1.15).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert_it_falls(np.array(losses))
    new, _ = points(1000, seed=1)
    # With equal margins the largest score decides.
    scores = scores_of(model, new)
    chosen = nn.decide(scores, 1.0)
    assert (chosen == scores.argmax(dim=1)).all()
    assert distance(chosen.numpy(), new) < NEAR


def test_a_seed_decides_what_is_learned(problem):
    X, costs = problem
    weights = nn.rewards(torch.tensor(costs, dtype=torch.float32), "others")

    def learned(seed):
        model = network(3, seed)
        train(model, X[:300], lambda scores: nn.mild_loss(scores, weights[:300], 1.0), steps=30)
        return scores_of(model, X).numpy()

    np.testing.assert_array_equal(learned(0), learned(0))
    assert not np.array_equal(learned(0), learned(1))


@pytest.mark.parametrize("surrogate", ["logistic", "exponential", "hinge", 0.5])
def test_torch_and_numpy_have_the_same_losses(surrogate, problem):
    _, costs = problem
    costs = costs[:200].copy()
    costs[np.arange(100), np.random.default_rng(3).integers(3, size=100)] = np.nan
    asked = ~np.isnan(costs)
    scores = np.random.default_rng(2).normal(size=costs.shape)
    margins = np.array([0.5, 1.0, 2.0])
    leaf = torch.tensor(scores, requires_grad=True)
    rewards = core.rewards(costs)
    np.testing.assert_allclose(nn.rewards(torch.tensor(costs)).numpy(), rewards)
    pairs = {
        "mild": (
            core.mild_loss(scores, rewards, margins, surrogate, return_gradient=True, asked=asked),
            nn.mild_loss(
                leaf, torch.tensor(rewards), margins, surrogate, asked=torch.tensor(asked)
            ),
        ),
        "tdef": (
            core.tdef_loss(scores, costs, 1.15, surrogate, return_gradient=True),
            nn.tdef_loss(leaf, torch.tensor(costs), 1.15, surrogate),
        ),
    }
    for (values, gradient), tensor in pairs.values():
        np.testing.assert_allclose(tensor.detach().numpy(), values, rtol=1e-6)
        (found,) = torch.autograd.grad(tensor.sum(), leaf)
        np.testing.assert_allclose(found.numpy(), gradient, rtol=1e-6, atol=1e-9)
        # An expert that was not asked takes no part.
        assert (found.numpy()[~asked] == 0).all()


# Each is a function of scores, labels (the cheapest expert), their counts, and what each expert costs more.
LABEL_LOSSES = {
    "cross entropy": lambda scores, labels, counts, more: nn.cross_entropy_loss(scores, labels),
    "weighted cross entropy": lambda scores, labels, counts, more: nn.cross_entropy_loss(
        scores, labels, 1 / counts
    ),
    "ldam": lambda scores, labels, counts, more: nn.ldam_loss(scores, labels, counts, scale=3.0),
    "logit adjusted": lambda scores, labels, counts, more: nn.logit_adjusted_loss(
        scores, labels, counts
    ),
    "temperature": lambda scores, labels, counts, more: nn.class_dependent_temperature_loss(
        scores, labels, counts
    ),
    "cost sensitive": lambda scores, labels, counts, more: nn.cost_sensitive_loss(
        scores, labels, more, [0.9, 1.0, 1.1]
    ),
    "log sum": lambda scores, labels, counts, more: nn.log_sum_loss(scores, labels, more, 1.0),
}


@pytest.mark.parametrize("name", LABEL_LOSSES)
def test_losses_of_the_cheapest_expert_are_learned_as_well(name, problem):
    X, costs = problem
    labels = torch.tensor(core.cheapest(costs))
    counts = torch.bincount(labels).float()
    more = torch.tensor(costs - costs.min(axis=1, keepdims=True), dtype=torch.float32)
    model = network(3)
    losses = train(model, X, lambda scores: LABEL_LOSSES[name](scores, labels, counts, more))
    assert_it_falls(losses)
    new, _ = points(1000, seed=1)
    assert distance(scores_of(model, new).argmax(dim=1).numpy(), new) < 0.5


DEFER_LOSSES = {
    "cross entropy": defer.cross_entropy_defer_loss,
    "one versus all": defer.one_versus_all_loss,
    "realizable": defer.realizable_loss,
    "asymmetric softmax": defer.asymmetric_softmax_loss,
    "comp-sum": defer.comp_sum_defer_loss,
    "rl2d": defer.rl2d_loss,
    "mild": defer.mild_defer_loss,
    "picce": defer.picce_loss,
    "mixture of experts": defer.mixture_of_experts_loss,
}


@pytest.mark.parametrize("name", DEFER_LOSSES)
def test_a_classifier_and_an_expert_are_trained_in_one_network(name):
    # On the left the label is known by the side, on the right it is a coin, and the expert knows it.
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (1000, 2))
    coin = rng.integers(0, 2, len(X))
    labels = np.where(X[:, 0] < 0, X[:, 1] > 0, coin)
    right = rng.random(len(X)) < np.where(X[:, 0] < 0, 0.3, 0.95)
    y, correct = torch.tensor(labels), torch.tensor(right)[:, None]
    model = network(3)
    losses = train(model, X, lambda scores: DEFER_LOSSES[name](scores, y, correct))
    assert_it_falls(losses)
    scores = scores_of(model, X).numpy()
    defers = scores[:, 2] > scores[:, :2].max(axis=1)
    if name == "mixture of experts":
        # Its gate weighs the expert against the classifier as a whole.
        defers = scores[:, 2] > 0
    classifier = scores[:, :2].argmax(axis=1) == labels
    system = np.where(defers, right, classifier)
    assert system.mean() > max(classifier.mean(), right.mean()) + 0.1
    assert np.mean(defers == (X[:, 0] > 0)) > 0.8


def test_a_neural_router_finds_them_by_the_front_door(problem):
    X, costs = problem
    table = Outcomes.from_arrays(X, costs, experts=EXPERTS)
    new, _ = points(1000, seed=1)
    settings = {"epochs": 50, "batch_size": 250, "lr": 0.05, "device": "cpu", "random_state": 0}

    def chosen_by(body, **changed):
        router = fit(table, adapter.neural_router(body, **{**settings, **changed}))
        return [router.experts[expert] for expert in router.predict(new)]

    chosen = chosen_by((16,))
    assert distance([EXPERTS.index(name) for name in chosen], new) < NEAR
    assert chosen == chosen_by((16,))
    assert chosen_by((16,), epochs=2) != chosen_by((16,), epochs=2, random_state=1)

    # As estimators, also around a network of one's own, they tell their history.
    for body in ((16,), lambda n_features, n_outputs: network(n_outputs)):
        router = adapter.neural_router(body, **settings).fit(X, costs)
        assert distance(router.predict(new), new) < NEAR
        losses = [epoch["loss"] for epoch in router.history_]
        assert len(losses) == router.n_iter_ <= 50
        assert 1 <= router.best_epoch_ <= router.n_iter_
        assert losses[-1] < losses[0]
