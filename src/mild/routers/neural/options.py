"""Options of a neural router, checked before anything is built."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from mild.core.decisions import DECISIONS
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError, OptionError, check_option
from mild.routers.targets import LOSSES

__all__ = ["OPTIMIZERS", "SCHEDULES", "check_options", "check_together"]

OPTIMIZERS = ("adamw", "adam", "sgd")
SCHEDULES = ("onecycle",)


def check_options(router: Any) -> int:
    """Refuse options that cannot be meant; return the seed of this fit."""
    check_option("loss", router.loss, LOSSES)
    check_option("decision", router.decision, DECISIONS)
    check_option("optimizer", router.optimizer, OPTIMIZERS)
    parse_surrogate(router.surrogate)
    if router.sampling is not None:
        check_option("sampling", router.sampling, ("over", "under"))
    if router.schedule is not None:
        check_option("schedule", router.schedule, SCHEDULES)
    for name in ("epochs", "batch_size", "patience"):
        _check_count(name, getattr(router, name))
    _check_hidden(router.hidden)
    if not _number("lr", router.lr) > 0:
        raise InvalidInputError(f"lr must be positive; got {router.lr!r}.")
    if not _number("weight_decay", router.weight_decay) >= 0:
        raise InvalidInputError(f"weight_decay must be non-negative; got {router.weight_decay!r}.")
    if not 0 <= _number("validation_fraction", router.validation_fraction) < 1:
        raise InvalidInputError(
            f"validation_fraction must lie in [0, 1); got {router.validation_fraction!r}."
        )
    if router.progress is not None and not callable(router.progress):
        raise OptionError(f"progress must be callable or None; got {router.progress!r}.")
    if router.checkpoint is not None:
        _check_checkpoint(router.checkpoint, router.random_state)
    return _seed(router.random_state)


def check_together(router: Any, processes: int) -> None:
    """Refuse a seed that every process of a group would draw for itself."""
    if processes > 1 and not isinstance(router.random_state, Integral):
        raise InvalidInputError(
            f"random_state must be an integer where several processes train together, so that they agree; "
            f"got {router.random_state!r}."
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInputError(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidInputError(f"{name} must be an integer, at least 1; got {value!r}.")


def _check_hidden(hidden: Any) -> None:
    if isinstance(hidden, str) or not isinstance(hidden, (Sequence, np.ndarray)):
        raise InvalidInputError(
            f"hidden must be a sequence of layer widths, such as (64,); got {hidden!r}."
        )
    for width in hidden:
        _check_count("every width in hidden", width)


def _check_checkpoint(path: Any, random_state: Any) -> None:
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInputError(f"checkpoint must be a path or None; got {path!r}.")
    if not isinstance(random_state, Integral):
        raise InvalidInputError(
            f"random_state must be an integer for a run with a checkpoint, so that it can be "
            f"continued; got {random_state!r}."
        )


def _seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, Integral) or random_state < 0:
        raise InvalidInputError(
            f"random_state must be a non-negative integer, a RandomState or None; "
            f"got {random_state!r}."
        )
    return int(random_state)
