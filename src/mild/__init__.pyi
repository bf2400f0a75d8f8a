"""The public names of mild, each once: the package loads them from here, and type checkers read it, too."""

from mild._version import __version__ as __version__
from mild.artifact import Router as Router
from mild.artifact import load as load
from mild.data import Outcomes as Outcomes
from mild.data import read_outcomes as read_outcomes
from mild.evaluation.comparison import compare as compare
from mild.evaluation.evaluate import evaluate as evaluate
from mild.routers import BlendRouter as BlendRouter
from mild.routers import CascadeRouter as CascadeRouter
from mild.routers import ConstantRouter as ConstantRouter
from mild.routers import KNNRouter as KNNRouter
from mild.routers import LinearRouter as LinearRouter
from mild.routers import NeuralRouter as NeuralRouter
from mild.routers import PricedRouter as PricedRouter
from mild.routers import RidgeRouter as RidgeRouter
from mild.routers import RouterCV as RouterCV
from mild.tuning.fit import fit as fit
from mild.tuning.saving import save as save
from mild.tuning.tune import tune as tune
