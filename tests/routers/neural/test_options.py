"""Options: each refusal is one sentence."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.errors import InvalidInputError
from mild.routers.neural import NeuralRouter


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "mlid"}, "loss must be one of .* Did you mean 'mild'"),
        ({"decision": "max"}, "decision must be one of"),
        ({"optimizer": "adanw"}, "Did you mean 'adamw'"),
        ({"schedule": "cosine"}, "schedule must be one of 'onecycle'"),
        ({"sampling": "both"}, "sampling must be one of"),
        ({"surrogate": -1.0}, "tau must be finite and >= 0"),
        ({"epochs": 0}, "epochs must be an integer, at least 1; got 0"),
        ({"batch_size": 2.5}, "batch_size must be an integer, at least 1; got 2.5"),
        ({"patience": True}, "patience must be an integer"),
        ({"lr": 0}, "lr must be positive; got 0"),
        ({"lr": "fast"}, "lr must be a finite number; got 'fast'"),
        ({"weight_decay": -1}, "weight_decay must be non-negative"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \[0, 1\)"),
        ({"hidden": 64}, r"hidden must be a sequence of layer widths, such as \(64,\); got 64"),
        ({"hidden": (8, 0)}, "every width in hidden must be an integer, at least 1; got 0"),
        ({"random_state": -1}, "random_state must be a non-negative integer"),
        ({"progress": 3}, "progress must be callable or None; got 3"),
        ({"checkpoint": 3}, "checkpoint must be a path or None; got 3"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refuses_options_it_does_not_know(options, message):
    with pytest.raises(InvalidInputError, match=message):
        NeuralRouter(**options).fit(np.zeros((4, 2)), np.eye(4))
