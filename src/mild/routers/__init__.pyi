"""The routers, each once: the package loads them from here, and type checkers read it, too."""

from mild.routers.base import BaseRouter as BaseRouter
from mild.routers.baselines import ConstantRouter as ConstantRouter
from mild.routers.cascade import CascadeRouter as CascadeRouter
from mild.routers.classifier import CostSensitiveClassifier as CostSensitiveClassifier
from mild.routers.cost_models import KNNRouter as KNNRouter
from mild.routers.cost_models import PricedRouter as PricedRouter
from mild.routers.cost_models import RidgeRouter as RidgeRouter
from mild.routers.linear import LinearRouter as LinearRouter
from mild.routers.neural import NeuralRouter as NeuralRouter
from mild.routers.search import RouterCV as RouterCV
from mild.routers.stack import BlendRouter as BlendRouter
