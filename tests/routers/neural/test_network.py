"""Networks: given, built, refused, gone on from."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from mild.errors import InvalidInputError, OptionError  # noqa: E402
from mild.routers.neural.network import find_device  # noqa: E402
from neural_cases import Dropout, quick, three_experts  # noqa: E402


def test_the_given_module_is_not_changed():
    X, costs = three_experts()
    module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    router = quick(module).fit(X, costs)
    assert module.training
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == torch.float64
        assert not torch.equal(router.policy_.module.state_dict()[name].double(), value)
    assert all(value.grad is None for value in module.parameters())


def test_lazy_layers_learn_their_sizes():
    X, costs = three_experts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some versions of torch call them new
        module = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3))
    assert quick(module).fit(X, costs).policy_.module[0].in_features == 4


def test_frozen_parameters_stay_as_they_are():
    X, costs = three_experts()
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    module[0].requires_grad_(False)
    trained = quick(module).fit(X, costs).policy_.module
    assert torch.equal(trained[0].weight, module[0].weight)
    assert not torch.equal(trained[2].weight, module[2].weight)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Linear(4, 2), r"scores of shape \(n_rows, n_experts\) = \(2, 3\); got \(2, 2\)"),
        (nn.Identity(), r"got \(2, 4\)"),
        (lambda d, p: "network", "return a torch.nn.Module when called.*got str"),
        ("network", "module must be a torch.nn.Module, a callable.*got str"),
        (nn.LSTM(4, 3), "got tuple"),
    ],
    ids=["width", "identity", "factory", "text", "tuple"],
)
def test_refuses_what_is_no_network_for_these_experts(module, message):
    with pytest.raises(InvalidInputError, match=message):
        quick(module).fit(*three_experts())


def test_refuses_a_network_without_parameters():
    X, costs = three_experts()
    with pytest.raises(InvalidInputError, match="parameters to train; got none"):
        quick(nn.Identity()).fit(X[:, :3], costs)


def test_warm_start_goes_on_from_the_last_weights():
    X, costs = three_experts()
    for module in (None, Dropout):
        router = quick(module, warm_start=True, rewards="contrast", epochs=20).fit(X, costs)
        first = router.history_[0]["loss"]
        assert router.fit(X, costs).history_[0]["loss"] < first - 0.05
        # Another number of experts: nothing to go on from.
        assert router.fit(X, costs[:, :2]).n_experts_ == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gpu", "device must be 'auto' or a device of torch, such as 'cpu' or 'cuda'; got 'gpu'."),
        (1.5, "device must be 'auto' or a device of torch.*got 1.5"),
        ("meta", "device 'meta' is not available on this machine; use 'auto' or 'cpu'."),
        ("cuda:99", "device 'cuda:99' is not available"),
    ],
)
def test_refuses_devices_that_are_not_there(name, message):
    with pytest.raises(OptionError, match=message):
        quick(device=name).fit(*three_experts())


def test_auto_is_a_device_of_this_machine():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert find_device(torch.device("cpu")).type == "cpu"
