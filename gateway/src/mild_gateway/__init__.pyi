"""The public names of mild_gateway, each once: the package and type checkers read them here."""

from mild_gateway._version import __version__ as __version__
from mild_gateway.collect import collect_outcomes as collect_outcomes
from mild_gateway.learning.importing import import_feedback as import_feedback
from mild_gateway.learning.learn import learn as learn
from mild_gateway.learning.replaying import replay as replay
