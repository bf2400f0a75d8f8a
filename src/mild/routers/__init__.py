"""Routers: scikit-learn estimators with ``fit(X, costs)``."""

from mild.routers.base import BaseRouter
from mild.routers.baselines import ConstantRouter, OracleRouter, RandomRouter
from mild.routers.cascade import CascadeRouter
from mild.routers.classifier import CostSensitiveClassifier
from mild.routers.cost_models import CostRegressionRouter, KNNRouter, PricedRouter
from mild.routers.groups import GroupRouter
from mild.routers.linear import LinearRouter
from mild.routers.neural.router import NeuralRouter
from mild.routers.search import RouterCV
from mild.routers.stack import StackRouter

__all__ = [
    "BaseRouter",
    "CascadeRouter",
    "ConstantRouter",
    "CostRegressionRouter",
    "CostSensitiveClassifier",
    "GroupRouter",
    "KNNRouter",
    "LinearRouter",
    "NeuralRouter",
    "OracleRouter",
    "PricedRouter",
    "RandomRouter",
    "RouterCV",
    "StackRouter",
]
