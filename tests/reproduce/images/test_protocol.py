import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.images.protocol import PROTOCOLS


def test_the_papers_protocol_is_the_one_it_states():
    paper = PROTOCOLS["paper"]
    assert (paper.epochs, paper.batch_size, paper.schedule) == (200, 1024, "constant")
    assert (paper.lr, paper.weight_decay, paper.width) == (1e-3, 1e-3, 64)


def test_a_changed_protocol_says_so_once():
    twice = PROTOCOLS["paper"].changed(epochs=3).changed(width=8)
    assert twice.name == "paper, changed"
    assert (twice.epochs, twice.width, twice.batch_size) == (3, 8, 1024)


def test_none_changes_nothing():
    assert PROTOCOLS["fast"].changed(epochs=None, augment=None) == PROTOCOLS["fast"]
    part = PROTOCOLS["fast"].changed(epochs=None, width=8)
    assert (part.epochs, part.width) == (PROTOCOLS["fast"].epochs, 8)


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": 0},
        {"epochs": True},
        {"batch_size": 1},
        {"width": 0},
        {"lr": 0.0},
        {"lr": float("nan")},
        {"weight_decay": -1.0},
        {"schedule": "cosine"},
    ],
)
def test_bad_settings_are_named(fields):
    with pytest.raises(InvalidInputError, match=next(iter(fields))):
        PROTOCOLS["fast"].changed(**fields)


def test_coupled_decay_is_not_spoken_of_so_that_older_results_keep_their_keys():
    assert "decay" not in PROTOCOLS["fast"].as_dict()
    assert PROTOCOLS["adamw"].as_dict()["decay"] == "decoupled"
    assert PROTOCOLS["paper"].changed(decay="decoupled").optimizer == {
        "name": "AdamW",
        "weight_decay": 1e-3,
        "decay": "decoupled",
    }


@pytest.mark.parametrize("decay", ["coupled", "decoupled"])
def test_decoupled_decay_alone_does_not_depend_on_the_scale_of_the_loss(decay):
    torch = pytest.importorskip("torch")
    from mild.reproduce.images.network import make_network
    from mild.reproduce.images.steps import make_optimizer

    def weights_after(scale):
        network = make_network(3, 2, width=2)
        protocol = PROTOCOLS["adamw"].changed(decay=decay, weight_decay=0.5)
        optimizer = make_optimizer(network, protocol)
        x = torch.ones(4, 3, 8, 8).cumsum(dim=0)
        for _ in range(5):
            optimizer.zero_grad()
            (scale * network(x).square().mean()).backward()
            optimizer.step()
        return torch.cat([value.flatten() for value in network.parameters()])

    apart = (weights_after(1.0) - weights_after(16.0)).abs().max()
    assert apart < 1e-4 if decay == "decoupled" else apart > 1e-3
