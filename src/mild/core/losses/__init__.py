"""Surrogate losses on scores: unreduced values, one per sample, and analytic gradients, in NumPy.

The same functions for torch users, with autograd, live in ``mild.nn``.
"""

from mild.core.losses.cost_sensitive import (
    cost_sensitive_loss,
    cost_sensitive_zero_one,
    log_sum_loss,
    rho_margin_loss,
)
from mild.core.losses.deferral import mild_loss, tdef_loss
from mild.core.losses.labels import (
    class_dependent_temperature_loss,
    class_weights,
    cross_entropy_loss,
    ldam_loss,
    ldam_margins,
    logit_adjusted_loss,
    resampling_weights,
)
from mild.core.surrogates import Surrogate, parse_surrogate

__all__ = [
    "Surrogate",
    "class_dependent_temperature_loss",
    "class_weights",
    "cost_sensitive_loss",
    "cost_sensitive_zero_one",
    "cross_entropy_loss",
    "ldam_loss",
    "ldam_margins",
    "log_sum_loss",
    "logit_adjusted_loss",
    "mild_loss",
    "parse_surrogate",
    "resampling_weights",
    "rho_margin_loss",
    "tdef_loss",
]
