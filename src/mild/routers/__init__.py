"""Routers: scikit-learn estimators with ``fit(X, costs)``. Each is loaded when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mild.errors import missing_name

if TYPE_CHECKING:
    from mild.routers.base import BaseRouter as BaseRouter
    from mild.routers.baselines import ConstantRouter as ConstantRouter
    from mild.routers.baselines import OracleRouter as OracleRouter
    from mild.routers.baselines import RandomRouter as RandomRouter
    from mild.routers.cascade import CascadeRouter as CascadeRouter
    from mild.routers.classifier import CostSensitiveClassifier as CostSensitiveClassifier
    from mild.routers.clusters import ClusterRouter as ClusterRouter
    from mild.routers.cost_models import CostRegressionRouter as CostRegressionRouter
    from mild.routers.cost_models import KNNRouter as KNNRouter
    from mild.routers.cost_models import PricedRouter as PricedRouter
    from mild.routers.linear import LinearRouter as LinearRouter
    from mild.routers.neural import NeuralRouter as NeuralRouter
    from mild.routers.search import RouterCV as RouterCV
    from mild.routers.stack import StackRouter as StackRouter

_MODULES = {
    "BaseRouter": "base",
    "CascadeRouter": "cascade",
    "ClusterRouter": "clusters",
    "ConstantRouter": "baselines",
    "CostRegressionRouter": "cost_models",
    "CostSensitiveClassifier": "classifier",
    "KNNRouter": "cost_models",
    "LinearRouter": "linear",
    "NeuralRouter": "neural",
    "OracleRouter": "baselines",
    "PricedRouter": "cost_models",
    "RandomRouter": "baselines",
    "RouterCV": "search",
    "StackRouter": "stack",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = getattr(importlib.import_module(f"mild.routers.{_MODULES[name]}"), name)
        globals()[name] = value
        return value
    raise missing_name("mild.routers", name)
