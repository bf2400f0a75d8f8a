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
