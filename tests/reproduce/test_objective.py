import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mild import nn
from mild.costs import cheapest
from mild.exceptions import InvalidInputError
from mild.losses.labels import class_weights
from mild.margins import expert_mass, theory_margins
from mild.nn.tensors import check_margins
from mild.reproduce.methods import READINGS, Method
from mild.reproduce.objective import control_rewards, make_objective, training_margins

ROWS = torch.tensor([7, 3, 150, 3, 0])


@pytest.fixture
def scores():
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


def scaled_rewards(costs, kind, largest):
    raw = nn.rewards(torch.as_tensor(costs), kind, largest)
    return raw / raw.sum(dim=1).mean()


@pytest.mark.parametrize("scale", ["raw", "unit"])
@pytest.mark.parametrize("method", READINGS, ids=lambda method: method.text)
def test_mild_is_the_library_loss_on_raw_or_scaled_rewards(method, scale, costs, scores):
    objective = make_objective(method, costs, 1.0, scale=scale)
    kind = method.rewards or "complement"
    raw = nn.rewards(torch.as_tensor(costs), kind, 1.0)
    weights = raw if scale == "raw" else scaled_rewards(costs, kind, 1.0)
    expected = nn.mild_loss(scores, weights[ROWS], list(objective.margins))
    torch.testing.assert_close(objective.loss(scores, ROWS), expected)


def test_tdef_is_the_library_loss(costs, scores):
    priced = costs + np.array([0.7, 0.2, 0.1], np.float32)
    objective = make_objective(Method("tdef"), priced, 1.7)
    expected = nn.tdef_loss(scores, torch.as_tensor(priced)[ROWS], scale=1.7)
    torch.testing.assert_close(objective.loss(scores, ROWS), expected)
    assert objective.margins == (1.0, 1.0, 1.0)


def test_unit_rewards_have_mean_row_sum_one_in_every_form(costs):
    zero = torch.zeros(len(costs), 3)
    everything = torch.arange(len(costs))
    for kind in ("others", "complement", "contrast"):
        method = Method("mild", kind, margins="uniform")
        mean = make_objective(method, costs, 1.0, scale="unit").loss(zero, everything).mean()
        # At equal scores and margins 1 every row's loss is its reward sum times log 3.
        assert float(mean) == pytest.approx(np.log(3), rel=1e-5)


def test_complement_takes_the_largest_possible_cost_as_its_scale(costs, scores):
    priced = costs * 0.5
    method = Method("mild", "complement", margins="uniform")
    by_two = make_objective(method, priced, 2.0).loss(scores, ROWS)
    expected = nn.mild_loss(scores, nn.rewards(torch.as_tensor(priced), "complement", 2.0)[ROWS])
    torch.testing.assert_close(by_two, expected)
    assert not torch.allclose(by_two, make_objective(method, priced, 0.5).loss(scores, ROWS))


def test_ce_learns_the_cheapest_expert_with_ties_to_the_lowest(costs, scores):
    labels = torch.as_tensor(cheapest(costs))
    expected = nn.cross_entropy_loss(scores, labels[ROWS])
    objective = make_objective(Method("ce"), costs, 1.0)
    torch.testing.assert_close(objective.loss(scores, ROWS), expected)
    assert objective.margins is None


def test_cwce_weighs_by_inverse_frequency(costs, scores):
    labels = cheapest(costs)
    weights = class_weights(np.bincount(labels, minlength=3)).tolist()
    expected = nn.cross_entropy_loss(scores, torch.as_tensor(labels)[ROWS], weights)
    torch.testing.assert_close(
        make_objective(Method("cwce"), costs, 1.0).loss(scores, ROWS), expected
    )


@pytest.mark.parametrize("absent", [False, True])
def test_ldam_is_the_library_loss(costs, scores, absent):
    if absent:
        costs = costs + np.array([0, 0, 5], np.float32)
    labels = cheapest(costs)
    counts = np.bincount(labels, minlength=3).tolist()
    expected = nn.ldam_loss(scores, torch.as_tensor(labels)[ROWS], counts, 0.5, 30.0)
    torch.testing.assert_close(
        make_objective(Method("ldam"), costs, 1.0).loss(scores, ROWS), expected
    )


@pytest.mark.parametrize("name", ["mild", "tdef", "ce", "cwce", "ldam"])
def test_gradients_reach_the_scores(name, costs, scores):
    scores.requires_grad_()
    make_objective(Method(name), costs, 1.0).loss(scores, ROWS).sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad.abs().sum() > 0


@pytest.mark.parametrize("counts", ["reward", "best"])
@pytest.mark.parametrize(("total", "expected"), [("1", 1.0), ("mean3", 9.0)])
def test_theory_margins_are_the_library_ones_at_the_asked_sum(costs, counts, total, expected):
    method = Method("mild", "contrast", counts, "theory", total)
    mass = expert_mass(costs, "contrast", counts)
    np.testing.assert_allclose(
        training_margins(method, costs, 1.0), theory_margins(mass, total=expected)
    )


def test_uniform_margins_share_the_sum(costs):
    assert training_margins(Method.parse("uniform"), costs, 1.0) == (1.0, 1.0, 1.0)
    third = training_margins(Method.parse("uniform:total=1"), costs, 1.0)
    assert third == pytest.approx((1 / 3,) * 3)


def test_explicit_margins_are_taken_as_they_are(costs):
    assert training_margins(Method.parse("mild:margins=3/1/2"), costs, 1.0) == (3.0, 1.0, 2.0)
    with pytest.raises(InvalidInputError, match="one number per expert, 3"):
        training_margins(Method.parse("mild:margins=3/1"), costs, 1.0)


@pytest.mark.parametrize("word", ["tuned", "grid"])
def test_margins_must_be_searched_before_training(word, costs):
    with pytest.raises(InvalidInputError, match="searched before training"):
        make_objective(Method.parse(word), costs, 1.0)


def test_costs_without_any_difference_give_no_nan(scores):
    same = np.ones((200, 3), np.float32)
    for kind in ("others", "contrast"):
        method = Method("mild", kind, "reward", "theory", "1")
        objective = make_objective(method, same, 1.0)
        assert torch.isfinite(objective.loss(scores, ROWS)).all()
        assert sum(objective.margins) == pytest.approx(1)


@pytest.mark.parametrize("name", ["mild", "tdef", "ce", "cwce", "ldam"])
def test_a_step_needs_nothing_from_the_host(name, costs):
    """No value is looked at and no list becomes a tensor: a CUDA graph could not record that."""
    loss = make_objective(Method(name), costs, 1.0).loss
    copied = []

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("item", "tolist", "cpu", "numpy", "__bool__"):
                copied.append(func.__name__)
            if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
                copied.append(func.__name__)
            return func(*args, **(kwargs or {}))

    scores = torch.randn(5, 3, requires_grad=True)
    with Watch():
        loss(scores, ROWS).mean().backward()
    assert copied == []


@pytest.mark.parametrize("name", ["mild", "tdef", "ce", "cwce", "ldam"])
def test_a_step_waits_for_no_value(name, costs):
    """Tensors without values stand in for a device that must not be waited for."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    loss = make_objective(Method(name), costs, 1.0).loss
    with FakeTensorMode(allow_non_fake_inputs=True):
        scores = torch.zeros(5, 3, requires_grad=True)
        loss(scores, torch.zeros(5, dtype=torch.int64)).mean().backward()
    assert scores.grad.shape == (5, 3)


def test_prepared_margins_must_lie_where_the_scores_do_in_their_precision(scores):
    rho = check_margins([0.5, 0.3, 0.2], scores)
    weights = torch.ones(5, 3)
    torch.testing.assert_close(
        nn.mild_loss(scores, weights, rho), nn.mild_loss(scores, weights, [0.5, 0.3, 0.2])
    )
    wide = check_margins([0.5, 0.3, 0.2], scores.double())
    with pytest.raises(InvalidInputError) as caught:
        nn.mild_loss(scores, weights, wide)
    assert str(caught.value) == (
        "prepared margins must be on the device and in the precision of the scores, cpu and "
        "torch.float32; got cpu and torch.float64. Prepare them again, from such scores."
    )
    with pytest.raises(InvalidInputError, match=r"meta and torch.float32; got cpu and"):
        check_margins(rho, scores.to("meta"))


def test_prepared_margins_lose_nothing_where_a_decision_is_made_in_float64(scores):
    margins = [0.5, 0.3, 0.2]
    rho = check_margins(margins, scores)
    for surrogate in ("logistic", "pairwise_logistic"):
        expected = nn.stationary_distribution(scores.double(), margins, surrogate)
        found = nn.stationary_distribution(scores.double(), rho, surrogate)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert torch.equal(nn.decide(scores, rho), nn.decide(scores, margins))


def test_controls_change_the_targets_of_tdef_and_nothing_else():
    costs = torch.tensor([[0.0, 1, 1], [0, 0, 1], [1, 1, 0]])
    smoothed = control_rewards(costs, "tdef-smoothed", 1.0)
    expected = torch.tensor([[0.5, 0.25, 0.25], [1, 1, 0], [0.25, 0.25, 0.5]])
    torch.testing.assert_close(smoothed, expected)
    half = control_rewards(costs, "tdef-smoothed-half", 1.0)
    torch.testing.assert_close(half, expected * torch.tensor([[1.0], [0.5], [1.0]]))
    dropped = control_rewards(costs, "tdef-dropped", 1.0)
    torch.testing.assert_close(dropped, torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1]]))


@pytest.mark.parametrize("text", ["tdef", "mild:total=mean1", "ldam", "tdef-smoothed"])
def test_the_loss_on_the_training_rows_themselves_is_the_training_loss(text, costs, scores):
    objective = make_objective(Method.parse(text), costs, 1.0)
    again = objective.loss_on(costs)(scores, ROWS)
    torch.testing.assert_close(again, objective.loss(scores, ROWS))


@pytest.mark.parametrize(("strength", "named"), [(0, "contrast"), (1, "others")])
def test_a_baseline_of_strength_0_or_1_is_the_form_of_that_name(strength, named, costs, scores):
    text = f"mild:rewards=baseline,strength={strength},total=mean1"
    ours = make_objective(Method.parse(text), costs, 1.0)
    theirs = make_objective(Method("mild", named, total="mean1"), costs, 1.0)
    np.testing.assert_allclose(ours.margins, theirs.margins, rtol=1e-6)
    torch.testing.assert_close(ours.loss(scores, ROWS), theirs.loss(scores, ROWS))
