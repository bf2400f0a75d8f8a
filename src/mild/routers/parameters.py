"""Checks of the parameters of estimators: one table, by the name of the parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mild.core.arrays import check_integer, check_number, check_strength
from mild.core.costs import LABEL_TIES
from mild.core.decisions import DECISIONS
from mild.core.surrogates import parse_surrogate
from mild.errors import OptionError, check_option
from mild.routers.objective import LOSSES

_STRENGTHS = (
    "alpha",
    "average_rows",
    "cost_scale",
    "price_weight",
    "search_tol",
    "share_below",
    "strength",
    "tol",
    "total",
)
_COUNTS = (
    "batch_size",
    "epochs",
    "margin_strengths",
    "max_calls",
    "max_iter",
    "n_neighbors",
    "patience",
)
_NUMBERS = {
    "be positive": ("lr",),
    "be finite and non-negative": ("weight_decay",),
    "lie in [0, 1)": ("validation_fraction",),
    "lie between 0 and 1": ("confidence",),
}
_OPTIONS = {
    "decision": DECISIONS,
    "error_head": ("logistic", "ridge"),
    "form": ("max", "sum", "log_sum"),
    "grid": ("ratios", "paper"),
    "loss": LOSSES,
    "optimizer": ("adamw", "adam", "sgd"),
    "sampling": ("over", "under"),
    "schedule": ("onecycle",),
    "ties": LABEL_TIES,
}


def _check_surrogate(name: str, value: Any) -> None:
    """Check the surrogate, whose errors name it already."""
    parse_surrogate(value)


def _checks() -> dict[str, Callable[[str, Any], Any]]:
    """Return the check of each parameter by its name; ``check(name, value)`` raises an error."""
    checks: dict[str, Callable[[str, Any], Any]] = {"surrogate": _check_surrogate}
    checks |= dict.fromkeys(_STRENGTHS, check_strength)
    checks |= dict.fromkeys(_COUNTS, check_integer)
    for rule, names in _NUMBERS.items():
        checks |= dict.fromkeys(names, partial(check_number, rule=rule))
    for name, allowed in _OPTIONS.items():
        checks[name] = partial(check_option, allowed=allowed)
    return checks


CHECKS = _checks()
# Parameters that may be None.
OPTIONAL = ("cost_scale", "margin_strengths", "sampling", "schedule", "ties", "total")


def check_parameters(estimator: Any) -> None:
    """Check every parameter of an estimator that is in ``CHECKS``."""
    for name, value in estimator.get_params(deep=False).items():
        if value is None and name in OPTIONAL:
            continue
        if name in CHECKS:
            CHECKS[name](name, value)
        if name == "progress" and not (value is None or callable(value)):
            raise OptionError(parameter=name, rule=f"must be callable or None; got {value!r}.")
