"""Bad parameters of every router are refused in fit, by name. The sentences are one per kind of rule."""

from __future__ import annotations

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.routers.classifier import CostSensitiveClassifier
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.neural import NeuralRouter

X = np.random.default_rng(0).normal(size=(60, 4))
COSTS = np.random.default_rng(1).uniform(0.2, 2, (60, 3))
LABELS = np.arange(60) % 3

BAD = [
    *((LinearRouter, "loss", value) for value in ("mld", None)),
    (LinearRouter, "rewards", "other"),
    *((LinearRouter, "surrogate", value) for value in ("logistc", -1, 1.5)),
    *((LinearRouter, "margins", value) for value in ("thoery", [1, 2], [1, 0, 1], [1, np.nan, 1])),
    (LinearRouter, "counts", "rewards"),
    (LinearRouter, "norms", "mx"),
    (LinearRouter, "decision", "arg_max"),
    (LinearRouter, "sampling", "ovr"),
    *((LinearRouter, "total", value) for value in (0, "a")),
    (LinearRouter, "share_below", 2),
    *((LinearRouter, "alpha", value) for value in (-1, np.inf, "a", None)),
    (LinearRouter, "tol", -1e-3),
    *((LinearRouter, "max_iter", value) for value in (0, "a")),
    (LinearRouter, "cost_scale", "a"),
    (LinearRouter, "strength", -1.0),
    *((RidgeRouter, "alpha", value) for value in (-1.0, np.nan, "big")),
    *((KNNRouter, "n_neighbors", value) for value in (0, -3, 2.5, "all", True)),
    (PricedRouter, "error_head", "logisic"),
    (PricedRouter, "alpha", -1),
    (PricedRouter, "price_weight", -1),
    (CostSensitiveClassifier, "reduction", "mx"),
    *((CostSensitiveClassifier, "surrogate", v) for v in ("logstic", "pairwise_logistic", 1.5)),
    *((CostSensitiveClassifier, "margins", value) for value in ("theroy", [1, 2], [1, 2, 0])),
    (CostSensitiveClassifier, "alpha", -1),
    (CostSensitiveClassifier, "max_iter", 0),
    (NeuralRouter, "loss", "mlid"),
    (NeuralRouter, "decision", "max"),
    (NeuralRouter, "optimizer", "adanw"),
    (NeuralRouter, "schedule", "cosine"),
    (NeuralRouter, "sampling", "both"),
    (NeuralRouter, "surrogate", -1.0),
    (NeuralRouter, "epochs", 0),
    (NeuralRouter, "batch_size", 2.5),
    (NeuralRouter, "patience", True),
    *((NeuralRouter, "lr", value) for value in (0, "fast")),
    (NeuralRouter, "weight_decay", -1),
    (NeuralRouter, "validation_fraction", 1.0),
    *((NeuralRouter, "hidden", value) for value in (64, (8, 0))),
    (NeuralRouter, "random_state", -1),
    (NeuralRouter, "progress", 3),
]


def refusal(make, **options):
    if make is NeuralRouter:
        pytest.importorskip("torch")
    with pytest.raises(InvalidInputError) as caught:
        make(**options).fit(X, LABELS if make is CostSensitiveClassifier else COSTS)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("make", "name", "value"), BAD, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_bad_parameter_is_refused_by_name(make, name, value):
    assert refusal(make, **{name: value}).code == f"invalid_{name}"


@pytest.mark.parametrize(
    ("make", "options", "sentence"),
    [
        (LinearRouter, {"loss": "mld"}, "got 'mld'. Did you mean 'mild'?"),
        (LinearRouter, {"alpha": -1}, "alpha must be finite and non-negative; got -1."),
        (LinearRouter, {"alpha": "a"}, "alpha must be a finite number"),
        (LinearRouter, {"max_iter": 0}, "max_iter must be an integer, at least 1; got 0."),
        (LinearRouter, {"surrogate": 1.5}, "must be convex for LinearRouter (tau <= 1)"),
        (LinearRouter, {"margins": [1, 0, 1]}, "must be positive and finite; got 0 for expert 1."),
        (LinearRouter, {"rewards": "complement", "cost_scale": 0.1}, "the largest possible cost"),
        (
            CostSensitiveClassifier,
            {"surrogate": "hinge", "reduction": "log_sum"},
            "the logistic loss",
        ),
        (NeuralRouter, {"lr": 0}, "lr must be positive; got 0."),
        (NeuralRouter, {"validation_fraction": 1.0}, "must lie in [0, 1); got 1.0."),
        (NeuralRouter, {"progress": 3}, "progress must be callable or None; got 3."),
    ],
)
def test_the_sentence_has_the_rule_the_value_and_the_remedy(make, options, sentence):
    assert sentence in str(refusal(make, **options))
