"""Single rules about the settings and tensors of a policy; each breach is one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.core.decisions import DECISIONS
from mild.errors import ArtifactError

__all__ = [
    "Sizes",
    "Tensors",
    "are_integers",
    "check_choice",
    "check_decoder",
    "check_integer",
    "check_keys",
    "check_not_negative",
    "check_positive",
    "check_tensors",
    "check_width",
    "is_number",
    "parts",
    "split",
]

Tensors = Mapping[str, FloatArray]
Sizes = dict[str, int]

FORMS = ("comp_sum", "pairwise", "hinge")
# Below this a float holds every integer exactly.
LARGEST = 2**53


def check_tensors(
    tensors: Tensors,
    shapes: Mapping[str, tuple[str, ...]],
    sizes: Sizes,
    prefix: str,
    unknown_allowed: tuple[str, ...] = (),
) -> None:
    """Exactly the named tensors, float, finite, of shapes that agree with the sizes."""
    for name in sorted(set(shapes) - set(tensors)):
        raise ArtifactError(f"tensor '{prefix}{name}' is missing.")
    for name in sorted(set(tensors) - set(shapes)):
        raise ArtifactError(f"tensor '{prefix}{name}' does not belong to a router of this kind.")
    for name, dimensions in shapes.items():
        array = tensors[name]
        if array.dtype not in (np.float32, np.float64):
            raise ArtifactError(
                f"tensor '{prefix}{name}' must be float32 or float64; got {array.dtype}."
            )
        fits = array.ndim == len(dimensions) and all(
            sizes.setdefault(dimension, length) == length
            for dimension, length in zip(dimensions, array.shape, strict=True)
        )
        if not fits:
            rule = ", ".join(
                f"{dimension} = {sizes.get(dimension, '?')}" for dimension in dimensions
            )
            raise ArtifactError(
                f"tensor '{prefix}{name}' must have shape ({rule}); got {array.shape}."
            )
        known = ~np.isnan(array) if name in unknown_allowed else np.ones((), bool)
        bad = ~np.isfinite(array) & known
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            raise ArtifactError(
                f"tensor '{prefix}{name}' must be finite; got {array[place]} at {place}."
            )


def check_positive(tensors: Tensors, name: str, prefix: str) -> None:
    if not (tensors[name] > 0).all():
        raise ArtifactError(
            f"tensor '{prefix}{name}' must be positive; got {tensors[name].min():g}."
        )


def check_not_negative(tensors: Tensors, name: str, prefix: str) -> None:
    if not (tensors[name] >= 0).all():
        raise ArtifactError(
            f"tensor '{prefix}{name}' must be non-negative; got {tensors[name].min():g}."
        )


def check_keys(settings: dict[str, Any], keys: tuple[str, ...], prefix: str) -> None:
    for name in sorted(set(keys) - set(settings)):
        raise ArtifactError(f"setting {prefix}{name} is missing.")
    for name in sorted(set(settings) - set(keys)):
        raise ArtifactError(f"setting {prefix}{name} is not known. A newer mild may know it.")


def check_decoder(settings: dict[str, Any], prefix: str) -> None:
    check_choice(settings["decision"], DECISIONS, f"{prefix}decision")
    surrogate = settings["surrogate"]
    if not isinstance(surrogate, list) or len(surrogate) != 2:
        raise ArtifactError(
            f"setting {prefix}surrogate must be a form and a tau; got {surrogate!r}."
        )
    check_choice(surrogate[0], FORMS, f"{prefix}surrogate")
    if not is_number(surrogate[1]) or surrogate[1] < 0:
        raise ArtifactError(
            f"setting {prefix}surrogate must have a finite tau >= 0; got {surrogate[1]!r}."
        )


def check_choice(value: object, allowed: tuple[str, ...], name: str) -> None:
    if value not in allowed:
        raise ArtifactError(f"setting {name} must be one of {', '.join(allowed)}; got {value!r}.")


def check_integer(
    settings: dict[str, Any], name: str, low: int, high: int | None, prefix: str
) -> int:
    value = settings[name]
    most = LARGEST - 1 if high is None else high
    if type(value) is not int or not low <= value <= most:
        rule = f"in [{low}, 2**53)" if high is None else f"in [{low}, {high}]"
        raise ArtifactError(f"setting {prefix}{name} must be an integer {rule}; got {value!r}.")
    return value


def check_width(settings: dict[str, Any], sizes: Sizes, prefix: str) -> None:
    width = check_integer(settings, "n_features", 1, None, prefix)
    if sizes.setdefault("n_features", width) != width:
        raise ArtifactError(
            f"setting {prefix}n_features must be {sizes['n_features']}; got {width}."
        )


def parts(
    settings: dict[str, Any], least: int, most: int | None, prefix: str
) -> list[dict[str, Any]]:
    check_keys(settings, ("parts",), prefix)
    parts = settings["parts"]
    right = isinstance(parts, list) and all(
        isinstance(part, dict) and set(part) == {"kind", "settings"} for part in parts
    )
    if not right or len(parts) < least or (most is not None and len(parts) > most):
        rule = f"{least}" if most == least else f"at least {least}"
        raise ArtifactError(
            f"setting {prefix}parts must list {rule} router(s), each with kind and settings."
        )
    return list(parts)


def split(tensors: Tensors, prefix: str) -> tuple[Tensors, Tensors]:
    """Tensors behind the prefix, without it, and the rest."""
    inner = {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
    return inner, {name: array for name, array in tensors.items() if not name.startswith(prefix)}


def is_number(value: object) -> bool:
    """Finite, and an integer only if a float holds it exactly."""
    if type(value) is int:
        return abs(value) < LARGEST
    return type(value) is float and math.isfinite(value)


def are_integers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)
