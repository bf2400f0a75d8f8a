"""Routers: scikit-learn estimators with ``fit(X, costs)``. Each is loaded when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "BaseRouter": "base",
    "CascadeRouter": "cascade",
    "ConstantRouter": "constant",
    "CostRegressionRouter": "regression",
    "CostSensitiveClassifier": "classifier",
    "KNNRouter": "nearest",
    "LinearRouter": "linear",
    "NeuralRouter": "neural",
    "OracleRouter": "oracle",
    "PricedRouter": "priced",
    "RandomRouter": "random",
    "RouterCV": "tuning",
    "StackRouter": "stack",
    "Verdict": "verdict",
}

if TYPE_CHECKING:
    from mild.routers.base import BaseRouter
    from mild.routers.cascade import CascadeRouter
    from mild.routers.classifier import CostSensitiveClassifier
    from mild.routers.constant import ConstantRouter
    from mild.routers.linear import LinearRouter
    from mild.routers.nearest import KNNRouter
    from mild.routers.neural import NeuralRouter
    from mild.routers.oracle import OracleRouter
    from mild.routers.priced import PricedRouter
    from mild.routers.random import RandomRouter
    from mild.routers.regression import CostRegressionRouter
    from mild.routers.stack import StackRouter
    from mild.routers.tuning import RouterCV
    from mild.routers.verdict import Verdict

__all__ = [
    "BaseRouter",
    "CascadeRouter",
    "ConstantRouter",
    "CostRegressionRouter",
    "CostSensitiveClassifier",
    "KNNRouter",
    "LinearRouter",
    "NeuralRouter",
    "OracleRouter",
    "PricedRouter",
    "RandomRouter",
    "RouterCV",
    "StackRouter",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"mild.routers.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mild.routers' has no attribute {name!r}")
