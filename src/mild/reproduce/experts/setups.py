"""Which expert knows which classes: the first so many, the next so many, and so on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mild.exceptions import InvalidInputError, OptionError, UnsupportedError, check_option

__all__ = ["PEOPLE", "SETUPS", "Setup", "coverage_setup", "get_setup", "parse_coverage"]

#: Name of the setup whose experts are people: they own no classes.
PEOPLE = "people"
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Setup:
    """Experts by the share of the classes that each of them knows.

    Attributes
    ----------
    name : "I", "II", "III", "severe", or the coverage itself, such as "0.6-0.3-0.1"
    coverage : share of the classes per expert; shares are positive and sum to 1
        In the setup "people" these are the experts' accuracies, for information alone.

    Examples
    --------
    >>> SETUPS["I"].owners(10)
    array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])
    """

    name: str
    coverage: tuple[float, ...]

    @property
    def n_experts(self) -> int:
        """How many experts there are."""
        return len(self.coverage)

    def owners(self, n_classes: int) -> NDArray[np.int64]:
        """Return the expert that knows each class, of shape (n_classes,).

        Expert k knows the classes from ``round(n_classes * sum(coverage[:k]))`` up to
        ``round(n_classes * sum(coverage[:k + 1]))``, halves rounded up.
        """
        if self.name == PEOPLE:
            raise UnsupportedError(
                "owners needs experts that know whole classes; in the setup 'people' each expert "
                "answers about all of them."
            )
        _check_coverage(self.coverage)
        # A little more than a half: 0.15 * 10 falls short of 1.5 in floating point for some shares.
        ends = np.floor(np.cumsum(self.coverage) * n_classes + 0.5 + 1e-9).astype(np.int64)
        ends[-1] = n_classes
        counts = np.diff(ends, prepend=0)
        if (counts < 1).any():
            idle = int(np.flatnonzero(counts < 1)[0])
            raise InvalidInputError(
                f"coverage must leave every expert at least one of {n_classes} classes; expert "
                f"{idle + 1} with {_plain(self.coverage[idle])} gets none. Raise its share to "
                f"{_plain(round(1 / n_classes, 4))} or more."
            )
        return np.repeat(np.arange(self.n_experts, dtype=np.int64), counts)


#: The paper's setups (appendix on image classification, and the one on severe imbalance).
SETUPS = {
    "I": Setup("I", (0.7, 0.2, 0.1)),
    "II": Setup("II", (0.5, 0.2, 0.2, 0.1)),
    "III": Setup("III", (0.4, 0.2, 0.2, 0.1, 0.1)),
    "severe": Setup("severe", (0.9, 0.1)),
}


def coverage_setup(coverage: Sequence[float]) -> Setup:
    """Return the setup with this coverage: one of the paper's if it is one of them.

    Examples
    --------
    >>> coverage_setup([0.6, 0.3, 0.1])
    Setup(name='0.6-0.3-0.1', coverage=(0.6, 0.3, 0.1))
    >>> coverage_setup([0.9, 0.1]).name
    'severe'
    """
    shares = tuple(float(share) for share in coverage)
    _check_coverage(shares)
    for setup in SETUPS.values():
        if setup.coverage == shares:
            return setup
    return Setup("-".join(map(_plain, shares)), shares)


def parse_coverage(text: str) -> Setup:
    """Return the setup that a comma-separated list of shares describes.

    Examples
    --------
    >>> parse_coverage("0.6, 0.3, 0.1").owners(10)
    array([0, 0, 0, 0, 0, 0, 1, 1, 1, 2])
    """
    return _parsed(text, ",")


def get_setup(name: str, known: Iterable[str] = tuple(SETUPS)) -> Setup:
    """Return a setup by its name: one of the paper's, or a coverage such as "0.6-0.3-0.1".

    ``known`` are the paper's that may be meant.
    """
    if name not in SETUPS and "-" in name and set(name) <= set("0123456789.-"):
        return _parsed(name, "-")
    try:
        return SETUPS[check_option("setup", name, known)]
    except OptionError as error:
        raise OptionError(f"{error} Other splits are given by their coverage.") from error


def _parsed(text: str, separator: str) -> Setup:
    shares = []
    for part in text.split(separator):
        try:
            shares.append(float(part))
        except ValueError as error:
            raise InvalidInputError(
                f"coverage must be shares of the classes with commas between them, such as "
                f"0.6,0.3,0.1; got {part.strip()!r} in {text!r}."
            ) from error
    return coverage_setup(shares)


def _check_coverage(coverage: tuple[float, ...]) -> None:
    got = ",".join(map(_plain, coverage))
    if len(coverage) < 2:
        raise InvalidInputError(
            f"coverage must name at least two experts, such as 0.9,0.1; got {got or 'none'}."
        )
    for share in coverage:
        if not (math.isfinite(share) and share > 0):
            raise InvalidInputError(
                f"coverage must be positive for every expert; got {_plain(share)} in {got}."
            )
    total = math.fsum(coverage)
    if abs(total - 1) > SUM_TOLERANCE:
        remedy = (
            f" Write shares, not percentages: {','.join(_plain(s / 100) for s in coverage)}."
            if abs(total - 100) <= 100 * SUM_TOLERANCE
            else ""
        )
        raise InvalidInputError(
            f"coverage must sum to 1; got {_plain(round(total, 9))} from {got}.{remedy}"
        )


def _plain(number: float) -> str:
    """Shortest decimals that read back as the number, without an exponent."""
    return np.format_float_positional(number, trim="-")
