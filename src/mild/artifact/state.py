"""Checks of the settings and tensors in an artefact; each failure is one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.errors import ArtifactError

__all__ = ["State", "is_number", "split"]

FLOATS = ("float32", "float64")
# Below this a float holds every integer exactly.
LARGEST = 2**53


@dataclass(frozen=True)
class State:
    """Settings and tensors of a policy or of text features, as ``state()`` gives them.

    Attributes
    ----------
    sizes : dimensions known so far ("n_features", "n_experts"); ``check_tensors`` adds those of the first
        tensor that has them
    prefix : where the tensors lie in the artefact, for messages
    """

    settings: dict[str, Any]
    tensors: Mapping[str, NDArray[Any]]
    sizes: dict[str, int]
    prefix: str = ""

    def check_keys(self, *keys: str) -> None:
        """The settings are exactly these."""
        for name in sorted(set(keys) - set(self.settings)):
            raise ArtifactError(f"setting {self.prefix}{name} is missing.")
        for name in sorted(set(self.settings) - set(keys)):
            raise ArtifactError(
                f"setting {self.prefix}{name} is not known. A newer mild may know it."
            )

    def check(self, name: str, right: bool, rule: str) -> None:
        """A setting obeys its rule."""
        if not right:
            raise ArtifactError(
                f"setting {self.prefix}{name} must {rule}; got {self.settings[name]!r}."
            )

    def check_choice(self, name: str, allowed: tuple[str, ...]) -> None:
        """A setting is one of a few names."""
        self.check(name, self.settings[name] in allowed, f"be one of {', '.join(allowed)}")

    def check_integer(self, name: str, low: int, high: int | None = None) -> int:
        """A setting is an integer in [low, high]; the largest is 2**53 - 1."""
        value = self.settings[name]
        most = LARGEST - 1 if high is None else high
        interval = f"[{low}, 2**53)" if high is None else f"[{low}, {high}]"
        right = type(value) is int and low <= value <= most
        self.check(name, right, f"be an integer in {interval}")
        return int(value)

    def check_tensors(
        self,
        shapes: Mapping[str, tuple[str | int, ...]],
        dtypes: Mapping[str, str] | None = None,
        may_be_nan: tuple[str, ...] = (),
    ) -> None:
        """The tensors are exactly these, of these types and shapes, finite."""
        for name in sorted(set(shapes) - set(self.tensors)):
            raise ArtifactError(f"tensor '{self.prefix}{name}' is missing.")
        for name in sorted(set(self.tensors) - set(shapes)):
            raise ArtifactError(
                f"tensor '{self.prefix}{name}' does not belong to a router of this kind."
            )
        for name, dimensions in shapes.items():
            array = self.tensors[name]
            allowed = FLOATS if dtypes is None else (dtypes[name],)
            if array.dtype.name not in allowed:
                self._refuse(name, f"be {' or '.join(allowed)}", array.dtype)
            fits = array.ndim == len(dimensions) and all(
                length == (size if isinstance(size, int) else self.sizes.setdefault(size, length))
                for size, length in zip(dimensions, array.shape, strict=True)
            )
            if not fits:
                rule = ", ".join(
                    str(size) if isinstance(size, int) else f"{size} = {self.sizes.get(size, '?')}"
                    for size in dimensions
                )
                self._refuse(name, f"have shape ({rule})", array.shape)
            if array.dtype.kind != "f":
                continue
            bad = np.isinf(array) if name in may_be_nan else ~np.isfinite(array)
            if bad.any():
                place = tuple(int(index) for index in np.argwhere(bad)[0])
                self._refuse(name, "be finite", f"{array[place]} at {place}")

    def check_positive(self, name: str, least: float = 0.0) -> None:
        """A tensor is larger than ``least``."""
        if not (self.tensors[name] > least).all():
            self._refuse(name, "be positive", f"{self.tensors[name].min():g}")

    def check_non_negative(self, name: str) -> None:
        """A tensor is not negative."""
        if not (self.tensors[name] >= 0).all():
            self._refuse(name, "be non-negative", f"{self.tensors[name].min():g}")

    def _refuse(self, name: str, rule: str, got: object) -> None:
        raise ArtifactError(f"tensor '{self.prefix}{name}' must {rule}; got {got}.")


def split(
    tensors: Mapping[str, NDArray[Any]], prefix: str
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
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
