"""The methods that the experiments compare, written as one word or as ``mild:key=value,...``.

``mild`` alone is the literal reading of the paper: ``others`` rewards, theory margins from reward
counts, summing to 1. Everything that the paper leaves open is an option.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from mild.costs import ALL_REWARDS, REWARDS
from mild.exceptions import InvalidInputError, OptionError, check_option
from mild.margins import COUNTS
from mild.reproduce.labels import MARGINS, method_label

__all__ = [
    "CONTROLS",
    "METHODS",
    "READINGS",
    "ROBUSTNESS",
    "SCALES",
    "Margins",
    "Method",
    "robustness",
]

#: How margins are found, or the margins themselves.
Margins: TypeAlias = str | tuple[float, ...] | None

#: Rewards as they are, or scaled to mean row sum 1.
SCALES = ("raw", "unit")
#: TDEF with other targets, to tell what makes `others` rewards work (objective.control_rewards).
CONTROLS = ("tdef-smoothed", "tdef-smoothed-half", "tdef-dropped")
METHODS = ("mild", "tdef", "ce", "cwce", "ldam", *CONTROLS)
OPTIONS = ("rewards", "counts", "margins", "total", "strength")
# A word that stands for MILD with these margins.
SHORT = {"mild": "theory", "uniform": "uniform", "tuned": "tuned", "grid": "grid"}
# The literal reading lets theory margins sum to 1; where nothing is said the mean is 1.
TOTALS = {"theory": "1", "grid": "1", "uniform": "mean1", "tuned": "mean1"}


@dataclass(frozen=True)
class Method:
    """One way to train a router. Options that mean nothing to a method are None.

    Parameters
    ----------
    name : "mild", "tdef" (complement rewards, margins 1), "ce", "cwce", "ldam", or one of the controls
        "tdef-smoothed", "tdef-smoothed-half" and "tdef-dropped"
    rewards : "others", "complement", "contrast" or "baseline"; "any" lets tuning choose
    counts : "reward" or "best", the mass that theory margins use; for theory and grid
    margins : "uniform", "theory", "tuned", "grid" (the paper's, around the theory) or numbers
    total : the sum of the margins as text: a number, or "mean3" for 3 times the number of experts
    strength : of "baseline" rewards, 0 or more

    Examples
    --------
    >>> Method.parse("mild:rewards=contrast,total=mean3").text
    'mild:rewards=contrast,counts=reward,margins=theory,total=mean3'
    >>> Method.parse("uniform").label
    'MILD others, uniform, mean ρ=1'
    """

    name: str = "mild"
    rewards: str | None = None
    counts: str | None = None
    margins: Margins = None
    total: str | None = None
    strength: float | None = None

    def __post_init__(self) -> None:
        check_option("method", self.name, METHODS)
        if self.name != "mild":
            given = [option for option in OPTIONS if getattr(self, option) is not None]
            if given:
                raise InvalidInputError(
                    f"{given[0]} is an option of mild alone; got {given[0]}="
                    f"{getattr(self, given[0])!r} for {self.name}."
                )
            return
        margins = _margins("theory" if self.margins is None else self.margins)
        counted = margins in ("theory", "grid")
        if self.counts is not None and not counted:
            raise InvalidInputError(
                f"counts is an option of theory and grid margins alone; got counts={self.counts!r} "
                f"for margins={_text(margins)}."
            )
        if self.total is not None and not isinstance(margins, str):
            raise InvalidInputError(
                f"total must be left out where margins are numbers; got total={self.total!r} for "
                f"margins={_text(margins)}."
            )
        total = self.total
        if isinstance(margins, str):
            total = _total(TOTALS[margins] if total is None else total)
        kinds = (*REWARDS, "any") if margins == "tuned" else ALL_REWARDS
        if (self.strength is None) == (self.rewards == "baseline"):
            raise InvalidInputError(
                f"strength must be given with baseline rewards, and with no others; got "
                f"strength={self.strength} for rewards={self.rewards}."
            )
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise InvalidInputError(f"strength must be 0 or more; got {self.strength:g}.")
        counts = check_option("counts", self.counts or "reward", COUNTS) if counted else None
        for field, value in (
            ("rewards", check_option("rewards", self.rewards or "others", kinds)),
            ("counts", counts),
            ("margins", margins),
            ("total", total),
        ):
            object.__setattr__(self, field, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The method that ``text`` asks for; a sentence about what is wrong with it otherwise."""
        word, colon, rest = text.strip().partition(":")
        name = check_option("method", word.strip(), (*SHORT, *METHODS[1:]))
        options: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (equals and value):
                raise OptionError(
                    f"options of a method must read key=value, separated by commas; got {part!r} "
                    f"in {text!r}."
                )
            check_option("option of a method", key, OPTIONS)
            if key in options:
                raise OptionError(f"options of a method must be given once; got {key!r} twice.")
            options[key] = _numbers(value) if key == "margins" else value
            if key == "strength":
                options[key] = _strength(value)
        if name not in SHORT:
            return cls(name, **options)
        if name != "mild" and "margins" in options:
            raise OptionError(
                f"margins must not be given with {name!r}, which says them already; use "
                f"'mild:{rest.strip()}'."
            )
        return cls("mild", **{"margins": SHORT[name], **options})

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        margins = list(self.margins) if isinstance(self.margins, tuple) else self.margins
        # Left out where there is none, as in the first results files.
        more = {} if self.strength is None else {"strength": self.strength}
        return more | {
            "name": self.name,
            "rewards": self.rewards,
            "counts": self.counts,
            "margins": margins,
            "total": self.total,
        }

    @property
    def text(self) -> str:
        """What ``parse`` reads back as this method."""
        if self.name != "mild":
            return self.name
        values = {option: getattr(self, option) for option in OPTIONS}
        said = [f"{key}={_text(value)}" for key, value in values.items() if value is not None]
        return "mild:" + ",".join(said)

    @property
    def label(self) -> str:
        """Name in tables, without the decision."""
        return method_label(self.as_dict(), None)

    @property
    def searched(self) -> bool:
        """Whether its margins are found by a search on held-out rows."""
        return self.margins in ("tuned", "grid")

    def sum_of_margins(self, n_experts: int) -> float:
        """The sum that the margins are scaled to: ``rho_bar``."""
        if self.total is None:
            raise InvalidInputError(f"{self.text} has no sum of margins of its own.")
        if self.total.startswith("mean"):
            return float(self.total[4:]) * n_experts
        return float(self.total)

    def with_margins(self, margins: Sequence[float], rewards: str | None = None) -> Method:
        """The same method at margins that a search found, perhaps with other rewards."""
        found = tuple(float(value) for value in margins)
        return replace(
            self, margins=found, rewards=rewards or self.rewards, counts=None, total=None
        )


def _strength(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise OptionError(f"strength must be a number of 0 or more; got {value!r}.") from None


def _numbers(value: str) -> Margins:
    """``a/b/c`` as numbers; a word stays a word."""
    if value in MARGINS:
        return value
    try:
        return tuple(float(part) for part in value.split("/"))
    except ValueError:
        return value


def _margins(margins: Margins) -> Margins:
    if isinstance(margins, str) or margins is None:
        known = f"one of {', '.join(map(repr, MARGINS))}, or numbers a/b/c, one per expert"
        try:
            return check_option("margins", margins, MARGINS)
        except OptionError as error:
            hint = str(error).partition("Did you")
            raise OptionError(
                f"margins must be {known}; got {margins!r}." + f" {hint[1]}{hint[2]}".rstrip()
            ) from None
    values = tuple(float(value) for value in margins)
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        raise InvalidInputError(
            f"margins must be positive, finite numbers, one per expert; got {_text(values)}."
        )
    return values


def _total(total: object) -> str:
    """A sum of margins in its shortest writing: "1", "mean3"."""
    text = str(total).strip()
    prefix = "mean" if text.startswith("mean") else ""
    try:
        value = float(text.removeprefix("mean"))
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InvalidInputError(
            f"total must be a positive number, or mean and a positive number as in mean3; "
            f"got {text!r}."
        )
    return f"{prefix}{value!r}".removesuffix(".0")


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(repr(part).removesuffix(".0") for part in value)
    return str(value)


def robustness(center: Sequence[float], steps: Sequence[float] = (1, 3, 5)) -> tuple[Method, ...]:
    """Points of the paper's neighbourhood of ``center`` (appendix on the choice of rho).

    The centre itself, then every expert moved alone and all together by each step. The paper's
    steps downwards leave nothing positive when the margins sum to 1.

    Examples
    --------
    >>> [method.margins for method in robustness((0.5, 0.25), steps=(1,))]
    [(0.5, 0.25), (1.5, 0.25), (0.5, 1.25), (1.5, 1.25)]
    """
    start = tuple(float(value) for value in center)
    moves = [tuple(float(k == j) for j in range(len(start))) for k in range(len(start))]
    moves.append((1.0,) * len(start))
    points = [start]
    for move in moves:
        for step in steps:
            points.append(tuple(round(a + step * b, 4) for a, b in zip(start, move, strict=True)))
    return tuple(Method("mild", margins=point) for point in points)


#: Every reading that the paper leaves open, and TDEF (complement rewards with uniform margins).
READINGS = (
    *(
        Method("mild", rewards, counts, "theory", total)
        for rewards in REWARDS
        for counts in COUNTS
        for total in ("1", "mean1", "mean3")
    ),
    Method("mild", "others", margins="uniform", total="mean1"),
    Method("mild", "contrast", margins="uniform", total="mean1"),
    Method("tdef"),
)

# Theory for others rewards, reward counts, sum 1 and three synthetic experts of coverage 7-2-1:
# an expert has half of the reward on its own classes and a quarter elsewhere, so the masses are
# 0.425 : 0.3 : 0.275.
ROBUSTNESS = robustness((0.3629, 0.3232, 0.3139))
