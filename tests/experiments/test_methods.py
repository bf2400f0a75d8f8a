"""Methods as text, and the losses that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.images.methods import (
    CONTROLS,
    READINGS,
    ROBUSTNESS,
    Method,
    control_rewards,
    make_objective,
    method_label,
    training_margins,
)
from mild import nn
from mild.core.costs import cheapest
from mild.core.losses import class_weights
from mild.core.margins import expert_mass, theory_margins
from mild.errors import InvalidInputError, OptionError

ROWS = torch.tensor([7, 3, 150, 3, 0])


@pytest.fixture
def costs():
    """Errors of three experts, with ties and with rows of no difference."""
    rng = np.random.default_rng(0)
    return (rng.random((200, 3)) < [0.2, 0.5, 0.7]).astype(np.float32)


@pytest.fixture
def scores():
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


EXAMPLES = [
    *READINGS,
    *ROBUSTNESS,
    *map(Method.parse, ["tdef", "plugin", "ce", "cwce", "ldam", *CONTROLS]),
    *map(Method.parse, ["tuned:rewards=any", "grid"]),
    Method.parse("mild:rewards=baseline,strength=0.5"),
]


@pytest.mark.parametrize("method", EXAMPLES, ids=lambda method: method.text)
def test_text_and_record_give_the_method_back(method):
    assert Method.parse(method.text) == method
    values = method.as_dict()
    if isinstance(values["margins"], list):
        values["margins"] = tuple(values["margins"])
    assert Method(**values) == method


def test_the_word_mild_is_the_literal_reading():
    assert Method.parse("mild") == Method("mild", "others", "reward", "theory", "1")
    assert Method.parse("uniform").total == "mean1"
    assert Method.parse("mild:total=mean3").sum_of_margins(4) == 12


def test_every_reading_has_a_label_of_its_own():
    labels = {method_label(method.as_dict(), "stationary") for method in (*READINGS, *ROBUSTNESS)}
    assert len(labels) == len(READINGS) + len(ROBUSTNESS)


@pytest.mark.parametrize(
    "text",
    [
        *("sdef", "mild:rewards", "mild:total=1,total=2", "mild:colour=red", "tdef:total=1"),
        *(
            "mild:margins=a/b",
            "mild:margins=1/0",
            "mild:margins=1/2,total=1",
            "uniform:margins=grid",
        ),
        *("mild:total=0", "mild:total=meanx", "uniform:counts=best", "mild:rewards=baseline"),
        *("mild:strength=1", "mild:rewards=baseline,strength=-1", "mild:rewards=any"),
    ],
)
def test_what_makes_no_method_is_an_option_error(text):
    with pytest.raises(OptionError):
        Method.parse(text)


@pytest.mark.parametrize("scale", ["raw", "unit"])
@pytest.mark.parametrize("method", READINGS, ids=lambda method: method.text)
def test_mild_is_the_library_loss_on_raw_or_scaled_rewards(method, scale, costs, scores):
    objective = make_objective(method, costs, 1.0, scale=scale)
    weights = nn.rewards(torch.as_tensor(costs), method.rewards or "complement", 1.0)
    if scale == "unit":
        weights = weights / weights.sum(dim=1).mean()
    expected = nn.mild_loss(scores, weights[ROWS], list(objective.margins))
    torch.testing.assert_close(objective.loss(scores, ROWS), expected)


def test_tdef_is_the_library_loss(costs, scores):
    priced = costs + np.array([0.7, 0.2, 0.1], np.float32)
    objective = make_objective(Method("tdef"), priced, 1.7)
    expected = nn.tdef_loss(scores, torch.as_tensor(priced)[ROWS], cost_scale=1.7)
    torch.testing.assert_close(objective.loss(scores, ROWS), expected)
    assert objective.margins == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("absent", [False, True])
def test_label_losses_are_the_library_ones_on_the_cheapest_expert(costs, scores, absent):
    costs = costs + np.array([0, 0, 5 * absent], np.float32)
    labels = cheapest(costs)
    counts, taken = np.bincount(labels, minlength=3), torch.as_tensor(labels)[ROWS]
    expected = {
        "ce": nn.cross_entropy_loss(scores, taken),
        "cwce": nn.cross_entropy_loss(scores, taken, class_weights(counts).tolist()),
        "ldam": nn.ldam_loss(scores, taken, counts.tolist(), 0.5, 30.0),
    }
    for name, loss in expected.items():
        objective = make_objective(Method(name), costs, 1.0)
        torch.testing.assert_close(objective.loss(scores, ROWS), loss)
        assert objective.margins is None


@pytest.mark.parametrize("name", ["mild", "tdef", "plugin", "ce", "cwce", "ldam", *CONTROLS])
def test_a_step_reaches_the_scores_and_waits_for_no_value(name, costs):
    """Tensors without values stand in for a device that must not be waited for."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    objective = make_objective(Method(name), costs, 1.0)
    scores = torch.randn(5, 3, generator=torch.Generator().manual_seed(2), requires_grad=True)
    objective.loss(scores, ROWS).mean().backward()
    assert scores.grad.abs().sum() > 0
    again = objective.loss_on(costs)(scores.detach(), ROWS)
    torch.testing.assert_close(again, objective.loss(scores.detach(), ROWS))
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.zeros(5, 3, requires_grad=True)
        objective.loss(fake, torch.zeros(5, dtype=torch.int64)).mean().backward()
    assert fake.grad.shape == (5, 3)


@pytest.mark.parametrize("counts", ["reward", "best"])
@pytest.mark.parametrize(("total", "expected"), [("1", 1.0), ("mean3", 9.0)])
def test_theory_margins_are_the_library_ones_at_the_requested_sum(costs, counts, total, expected):
    method = Method("mild", "contrast", counts, "theory", total)
    mass = expert_mass(costs, "contrast", counts)
    np.testing.assert_allclose(
        training_margins(method, costs, 1.0), theory_margins(mass, total=expected)
    )


def test_margins_that_cannot_be_trained_with_are_refused(costs):
    for text in ("mild:margins=3/1", "tuned", "grid"):
        with pytest.raises(InvalidInputError):
            make_objective(Method.parse(text), costs, 1.0)


def test_the_plug_in_learns_how_often_experts_are_right_and_decides_by_error_plus_price():
    rng = np.random.default_rng(0)
    # Two experts, four kinds of rows, 2,000 rows of each; right[kind] is how often an expert is right.
    right = np.array([[0.9, 0.6], [0.5, 0.7], [0.3, 0.25], [0.8, 0.75]])
    prices = np.array([0.2, 0.05])
    kinds = np.repeat(np.arange(4), 2000)
    errors = (rng.random((8000, 2)) > right[kinds]).astype(np.float32)
    objective = make_objective(
        Method("plugin"), (errors + prices).astype(np.float32), 1.2, prices=prices
    )
    scores = torch.zeros(4, 2, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=100)

    def closure():
        optimizer.zero_grad()
        loss = objective.loss(scores[kinds], torch.arange(8000)).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    seen = np.array([1 - errors[kinds == kind].mean(axis=0) for kind in range(4)])
    np.testing.assert_allclose(torch.sigmoid(scores).detach(), seen, atol=1e-4)
    least = (1 - right + prices).argmin(axis=1)
    assert least.tolist() == [0, 1, 1, 1]
    values = objective.values(scores.detach().numpy())
    assert nn.decide(torch.as_tensor(values)).tolist() == least.tolist()
    # With errors alone as costs expert 0 is the better one in kinds 2 and 3, too.
    alone = make_objective(Method("plugin"), errors, 1.0)
    values = alone.values(scores.detach().numpy())
    assert values.argmax(axis=1).tolist() == [0, 1, 0, 0]


def test_prices_leave_the_training_of_the_plug_in_as_it_was(costs, scores):
    prices = np.array([0.7, 0.2, 0.1])
    priced = make_objective(
        Method("plugin"), (costs + prices).astype(np.float32), 1.7, prices=prices
    )
    plain = make_objective(Method("plugin"), costs, 1.0)
    assert torch.equal(priced.loss(scores, ROWS), plain.loss(scores, ROWS))


def test_costs_without_any_difference_give_no_nan(scores):
    objective = make_objective(Method("mild"), np.ones((200, 3), np.float32), 1.0)
    assert torch.isfinite(objective.loss(scores, ROWS)).all()
    assert sum(objective.margins) == pytest.approx(1)


def test_controls_change_the_targets_of_tdef_and_nothing_else():
    costs = torch.tensor([[0.0, 1, 1], [0, 0, 1], [1, 1, 0]])
    smoothed = torch.tensor([[0.5, 0.25, 0.25], [1, 1, 0], [0.25, 0.25, 0.5]])
    expected = {
        "tdef-smoothed": smoothed,
        "tdef-smoothed-half": smoothed * torch.tensor([[1.0], [0.5], [1.0]]),
        "tdef-dropped": torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1]]),
    }
    for name, rewards in expected.items():
        torch.testing.assert_close(control_rewards(costs, name, 1.0), rewards)


@pytest.mark.parametrize(("strength", "named"), [(0, "contrast"), (1, "others")])
def test_a_baseline_of_strength_0_or_1_is_the_form_of_that_name(strength, named, costs, scores):
    text = f"mild:rewards=baseline,strength={strength},total=mean1"
    ours = make_objective(Method.parse(text), costs, 1.0)
    theirs = make_objective(Method("mild", named, total="mean1"), costs, 1.0)
    torch.testing.assert_close(ours.loss(scores, ROWS), theirs.loss(scores, ROWS))
