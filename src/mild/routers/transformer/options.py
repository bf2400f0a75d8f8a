"""Options of a transformer router, checked before anything is loaded."""

from __future__ import annotations

import math
import os
from numbers import Integral, Real
from typing import Any

from mild.core.decisions import DECISIONS
from mild.core.surrogates import parse_surrogate
from mild.errors import InvalidInputError, OptionError, check_option
from mild.routers.targets import LOSSES

__all__ = ["POOLINGS", "PRECISIONS", "SHORTEST", "check_options"]

POOLINGS = ("auto", "cls", "mean")
PRECISIONS = ("float32", "bfloat16")
# Special tokens and a few more.
SHORTEST = 8


def check_options(router: Any) -> int:
    """Refuse options that cannot be meant; return the seed of this fit."""
    if not isinstance(router.model, (str, os.PathLike)) or not os.fspath(router.model):
        raise InvalidInputError(f"model must be a folder or a name; got {router.model!r}.")
    check_option("loss", router.loss, LOSSES)
    check_option("decision", router.decision, DECISIONS)
    check_option("pooling", router.pooling, POOLINGS)
    check_option("precision", router.precision, PRECISIONS)
    if isinstance(router.margins, str):
        check_option("margins", router.margins, ("theory", "uniform", "tuned"))
    parse_surrogate(router.surrogate)
    for name, least in (("epochs", 1), ("batch_size", 1), ("max_length", SHORTEST)):
        _check_count(name, getattr(router, name), least)
    for name in ("lr", "clip"):
        if not _number(name, getattr(router, name)) > 0:
            raise InvalidInputError(f"{name} must be positive; got {getattr(router, name)!r}.")
    if router.head_lr is not None and not _number("head_lr", router.head_lr) > 0:
        raise InvalidInputError(f"head_lr must be positive or None; got {router.head_lr!r}.")
    if not _number("weight_decay", router.weight_decay) >= 0:
        raise InvalidInputError(f"weight_decay must be non-negative; got {router.weight_decay!r}.")
    for name in ("warmup", "dropout", "validation_fraction"):
        if not 0 <= _number(name, getattr(router, name)) < 1:
            raise InvalidInputError(f"{name} must lie in [0, 1); got {getattr(router, name)!r}.")
    if router.progress is not None and not callable(router.progress):
        raise OptionError(f"progress must be callable or None; got {router.progress!r}.")
    if router.checkpoint is not None and not isinstance(router.checkpoint, (str, os.PathLike)):
        raise InvalidInputError(f"checkpoint must be a path or None; got {router.checkpoint!r}.")
    return _check_count("random_state", router.random_state, 0)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInputError(f"{name} must be a finite number; got {value!r}.")
    return float(value)


def _check_count(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(f"{name} must be an integer, at least {least}; got {value!r}.")
    return int(value)
