"""Checks of the parameters that several routers share."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

from mild.core.arrays import check_strength
from mild.core.decisions import DECISIONS
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError, OptionError, check_option
from mild.routers.targets import LOSSES, LossOptions

__all__ = ["check_count", "check_loss_options", "check_number", "check_training_options"]

RULES = {
    "be positive": lambda value: value > 0,
    "be non-negative": lambda value: value >= 0,
    "lie in [0, 1)": lambda value: 0 <= value < 1,
    "lie in (0, 1)": lambda value: 0 < value < 1,
}


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(
            f"{name} must be an integer, at least {least}; got {value!r}.",
            parameter=name.split()[-1],
        )
    return int(value)


def check_number(name: str, value: Any, rule: str) -> float:
    """Return a finite number that follows one of ``RULES``."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInputError(f"{name} must be a finite number; got {value!r}.", parameter=name)
    if not RULES[rule](value):
        raise InvalidInputError(f"{name} must {rule}; got {value!r}.", parameter=name)
    return float(value)


def check_loss_options(router: LossOptions, decision: str) -> None:
    """Check the parameters that define a loss; those of the margins are checked when they are made."""
    check_option("loss", router.loss, LOSSES)
    check_option("decision", decision, DECISIONS)
    parse_surrogate(router.surrogate)
    if router.sampling is not None:
        check_option("sampling", router.sampling, ("over", "under"))
    for name in ("share_below", "strength"):
        check_strength(name, getattr(router, name))
    for name in ("total", "cost_scale"):
        if getattr(router, name) is not None:
            check_strength(name, getattr(router, name))


def check_training_options(router: Any) -> None:
    """Check the parameters of minibatch training."""
    check_loss_options(router, router.decision)
    check_count("epochs", router.epochs)
    check_count("batch_size", router.batch_size)
    check_number("lr", router.lr, "be positive")
    check_number("weight_decay", router.weight_decay, "be non-negative")
    check_number("validation_fraction", router.validation_fraction, "lie in [0, 1)")
    if router.progress is not None and not callable(router.progress):
        raise OptionError(
            f"progress must be callable or None; got {router.progress!r}.", parameter="progress"
        )
    if router.checkpoint is None:
        return
    if not isinstance(router.checkpoint, (str, os.PathLike)):
        raise InvalidInputError(
            f"checkpoint must be a path or None; got {router.checkpoint!r}.", parameter="checkpoint"
        )
    if not isinstance(router.random_state, Integral):
        raise InvalidInputError(
            f"random_state must be an integer for a run with a checkpoint, so that it can be "
            f"continued; got {router.random_state!r}.",
            parameter="random_state",
        )
