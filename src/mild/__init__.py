"""mild: learning to route among fixed experts, without collapsing onto the majority one.

The public names are loaded when they are first used: importing mild imports neither torch nor
scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mild._version import __version__

_HOMES = {
    "cost_matrix": "mild.core.costs",
    "rewards": "mild.core.costs",
    "reward_distribution": "mild.core.costs",
    "mild_loss": "mild.core.losses",
    "expert_mass": "mild.core.margins",
    "theory_margins": "mild.core.margins",
    "stationary_distribution": "mild.core.decisions",
    "decide": "mild.core.decisions",
    "deferral_loss": "mild.metrics",
    "LinearRouter": "mild.routers",
    "NeuralRouter": "mild.routers",
    "RouterCV": "mild.routers",
    "CostRegressionRouter": "mild.routers",
    "KNNRouter": "mild.routers",
    "ConstantRouter": "mild.routers",
    "CascadeRouter": "mild.routers",
    "Router": "mild.artifact",
    "load": "mild.artifact",
    "OutcomeTable": "mild.data",
    "read_outcomes": "mild.data",
    "fit": "mild.tuning.fit",
    "tune": "mild.tuning.tune",
    "add_expert": "mild.tuning.add_expert",
    "AddedExpert": "mild.tuning.add_expert",
    "TuneResult": "mild.tuning.tune",
    "save": "mild.tuning.saving",
    "evaluate": "mild.evaluation.evaluate",
    "Evaluation": "mild.evaluation.evaluate",
    "compare": "mild.evaluation.comparison",
    "Comparison": "mild.evaluation.comparison",
    "Verdict": "mild.metrics",
    "collect_outcomes": "mild.collect",
    "replay": "mild.gateway.ledger.replaying",
    "learn": "mild.learning.learn",
    "rollback": "mild.artifact",
    "versions": "mild.artifact.versions",
    "import_feedback": "mild.gateway.ledger.importing",
}

if TYPE_CHECKING:
    from mild.artifact import Router, load, rollback
    from mild.artifact.versions import versions
    from mild.collect import collect_outcomes
    from mild.core.costs import cost_matrix, reward_distribution, rewards
    from mild.core.decisions import decide, stationary_distribution
    from mild.core.losses import mild_loss
    from mild.core.margins import expert_mass, theory_margins
    from mild.data import OutcomeTable, read_outcomes
    from mild.evaluation.comparison import Comparison, compare
    from mild.evaluation.evaluate import Evaluation, evaluate
    from mild.gateway.ledger.importing import import_feedback
    from mild.gateway.ledger.replaying import replay
    from mild.learning.learn import learn
    from mild.metrics import Verdict, deferral_loss
    from mild.routers import (
        CascadeRouter,
        ConstantRouter,
        CostRegressionRouter,
        KNNRouter,
        LinearRouter,
        NeuralRouter,
        RouterCV,
    )
    from mild.tuning.add_expert import AddedExpert, add_expert
    from mild.tuning.fit import fit
    from mild.tuning.saving import save
    from mild.tuning.tune import TuneResult, tune

__all__ = [
    "AddedExpert",
    "CascadeRouter",
    "Comparison",
    "ConstantRouter",
    "CostRegressionRouter",
    "Evaluation",
    "KNNRouter",
    "LinearRouter",
    "NeuralRouter",
    "OutcomeTable",
    "Router",
    "RouterCV",
    "TuneResult",
    "Verdict",
    "__version__",
    "add_expert",
    "collect_outcomes",
    "compare",
    "cost_matrix",
    "decide",
    "deferral_loss",
    "evaluate",
    "expert_mass",
    "fit",
    "import_feedback",
    "learn",
    "load",
    "mild_loss",
    "read_outcomes",
    "replay",
    "reward_distribution",
    "rewards",
    "rollback",
    "save",
    "stationary_distribution",
    "theory_margins",
    "tune",
    "versions",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    from mild.errors import missing_name

    raise missing_name("mild", name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
