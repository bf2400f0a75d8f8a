"""The costs, losses, margins and decisions of ``mild.core`` as torch functions.

Functions have the names, parameters, shapes and meaning of the NumPy ones, take tensors on any device
and return tensors there. Losses are differentiable by autograd. Scores in half precision are converted, and
losses returned, in float32. Losses do not check the values of scores, rewards and labels, which would
synchronise with the device at every step: NaN gives NaN.
"""

from mild.errors import MissingExtraError, install_hint

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"mild.nn needs torch, which is not installed; run: {install_hint('neural')}."
    ) from error

from mild.nn.costs import (
    cost_matrix,
    deferral_loss,
    expert_mass,
    reward_distribution,
    rewards,
    theory_margins,
)
from mild.nn.decisions import decide, stationary_distribution
from mild.nn.losses import (
    class_dependent_temperature_loss,
    cost_sensitive_loss,
    cross_entropy_loss,
    ldam_loss,
    log_sum_loss,
    logit_adjusted_loss,
    mild_loss,
    rho_margin_loss,
    tdef_loss,
)

__all__ = [
    "class_dependent_temperature_loss",
    "cost_matrix",
    "cost_sensitive_loss",
    "cross_entropy_loss",
    "decide",
    "deferral_loss",
    "expert_mass",
    "ldam_loss",
    "log_sum_loss",
    "logit_adjusted_loss",
    "mild_loss",
    "reward_distribution",
    "rewards",
    "rho_margin_loss",
    "stationary_distribution",
    "tdef_loss",
    "theory_margins",
]
