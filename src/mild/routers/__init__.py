"""Routers: scikit-learn estimators with ``fit(X, costs)``. Each is loaded when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mild.routers.base import BaseRouter as BaseRouter
    from mild.routers.cascade import CascadeRouter as CascadeRouter
    from mild.routers.classifier import CostSensitiveClassifier as CostSensitiveClassifier
    from mild.routers.constant import ConstantRouter as ConstantRouter
    from mild.routers.linear import LinearRouter as LinearRouter
    from mild.routers.nearest import KNNRouter as KNNRouter
    from mild.routers.neural import NeuralRouter as NeuralRouter
    from mild.routers.oracle import OracleRouter as OracleRouter
    from mild.routers.priced import PricedRouter as PricedRouter
    from mild.routers.random import RandomRouter as RandomRouter
    from mild.routers.regression import CostRegressionRouter as CostRegressionRouter
    from mild.routers.stack import StackRouter as StackRouter
    from mild.routers.tuning import RouterCV as RouterCV
    from mild.routers.tuning import Verdict as Verdict

_MODULES = {
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
    "Verdict": "tuning",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"mild.routers.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'mild.routers' has no attribute {name!r}")
