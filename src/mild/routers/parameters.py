"""Checks of the parameters of estimators: one table, by the name of the parameter."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any

from mild.core.arrays import check_strength, invalid
from mild.core.decisions import DECISIONS
from mild.core.surrogates import parse_surrogate
from mild.errors import OptionError, check_option
from mild.routers.objective import LOSSES

RULES = {
    "be positive": lambda value: value > 0,
    "be non-negative": lambda value: value >= 0,
    "lie in [0, 1)": lambda value: 0 <= value < 1,
    "lie in (0, 1)": lambda value: 0 < value < 1,
}


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise invalid(name, f"must be an integer, at least {least}; got {value!r}.")
    return int(value)


def check_number(name: str, value: Any, rule: str) -> float:
    """Return a finite number that follows one of ``RULES``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise invalid(name, f"must be a finite number; got {value!r}.")
    if not RULES[rule](value):
        raise invalid(name, f"must {rule}; got {value!r}.")
    return float(value)


def check_callable(name: str, value: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise OptionError(f"{name} must be callable or None; got {value!r}.", parameter=name)


_strength: Callable[[str, Any], Any] = check_strength
_positive = partial(check_number, rule="be positive")
_share = partial(check_number, rule="lie in [0, 1)")
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "alpha": _strength,
    "batch_size": check_count,
    "clip": _positive,
    "confidence": partial(check_number, rule="lie in (0, 1)"),
    "cost_scale": _strength,
    "decision": partial(check_option, allowed=DECISIONS),
    "dropout": _share,
    "epochs": check_count,
    "error_head": partial(check_option, allowed=("logistic", "ridge")),
    "form": partial(check_option, allowed=("max", "sum", "log_sum")),
    "grid": partial(check_option, allowed=("ratios", "paper")),
    "head_lr": _positive,
    "loss": partial(check_option, allowed=LOSSES),
    "lr": _positive,
    "max_iter": check_count,
    # Special tokens and a few more.
    "max_length": partial(check_count, least=8),
    "n_neighbors": check_count,
    "n_thresholds": check_count,
    "optimizer": partial(check_option, allowed=("adamw", "adam", "sgd")),
    "patience": check_count,
    "pooling": partial(check_option, allowed=("auto", "cls", "mean")),
    "precision": partial(check_option, allowed=("float32", "bfloat16")),
    "price_weight": _strength,
    "progress": check_callable,
    "sampling": partial(check_option, allowed=("over", "under")),
    "schedule": partial(check_option, allowed=("onecycle",)),
    "search_tol": _strength,
    "share_below": _strength,
    "strength": _strength,
    "surrogate": lambda name, value: parse_surrogate(value),
    "tol": _strength,
    "total": _strength,
    "validation_fraction": _share,
    "warmup": _share,
    "weight_decay": partial(check_number, rule="be non-negative"),
}
# Parameters that may be None.
OPTIONAL = ("cost_scale", "head_lr", "progress", "sampling", "schedule", "total")


def check_parameters(estimator: Any) -> None:
    """Check every parameter of an estimator that is in ``CHECKS``."""
    for name, value in estimator.get_params(deep=False).items():
        if name in CHECKS and not (value is None and name in OPTIONAL):
            CHECKS[name](name, value)
