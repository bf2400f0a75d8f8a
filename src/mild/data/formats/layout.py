"""Which columns of a table hold the outcomes, and how a caller names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from mild.artifact.expert_names import match_expert
from mild.data.columns import choose_columns
from mild.data.queries import TEXTS
from mild.errors import DataFileError, listed

__all__ = [
    "CORRECT",
    "LATENCY",
    "PRICE",
    "SCORE",
    "Format",
    "Layout",
    "Named",
    "ReadOptions",
    "as_pairs",
    "named_columns",
    "seconds_per",
]

CORRECT = "correct__"
SCORE = "score__"
PRICE = "cost__"
LATENCY = "latency_ms__"

#: Columns as a caller names them: names and patterns, a list, or expert -> column.
Named = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True)
class ReadOptions:
    """The options of ``read_outcomes``."""

    form: str | None = None
    query: str | Sequence[str] | None = None
    experts: str | Sequence[str] | None = None
    scores: Named = None
    prices: Named = None
    latencies: Named = None
    vectors: str | None = None
    choices: bool = True

    def texts(self) -> set[str]:
        """Columns that are read as text whatever they look like."""
        outcomes: set[str] = set()
        for columns in (self.scores, self.prices, self.latencies):
            pairs = as_pairs(columns)
            if pairs is not None:
                outcomes.update(pairs.values())
            elif columns is not None:
                outcomes.update(columns.split(",") if isinstance(columns, str) else columns)
        query = [self.query, *self.query.split(",")] if isinstance(self.query, str) else self.query
        return {*TEXTS, *(name.strip() for name in query or ())} - {
            name.strip() for name in outcomes
        }


@dataclass(frozen=True)
class Layout:
    """Columns of a table with one row per query.

    Attributes
    ----------
    form : name of the format
    scores, prices, latencies : expert -> column; the order of ``scores`` is that of the experts
    notes : remarks on how the columns were chosen
    """

    form: str
    scores: dict[str, str]
    prices: dict[str, str] = field(default_factory=dict)
    latencies: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def taken(self) -> set[str]:
        """Columns that hold outcomes."""
        return {*self.scores.values(), *self.prices.values(), *self.latencies.values()}

    def of(self, experts: Sequence[str]) -> Layout:
        """The same for some of the experts, in their order."""
        scores, prices, latencies = (
            {name: columns[name] for name in experts if name in columns}
            for columns in (self.scores, self.prices, self.latencies)
        )
        return replace(self, scores=scores, prices=prices, latencies=latencies)


@dataclass(frozen=True)
class Format:
    """A format of outcome tables.

    Attributes
    ----------
    name, title : for options and for messages
    rule : which columns it has
    detect : Arrow schema -> the columns of the outcomes, or None if the schema does not fit. The layout
        of a table with a row per query and model is empty: it is known when the table is read
    """

    name: str
    title: str
    rule: str
    detect: Callable[[Any], Layout | None]


def seconds_per(column: str) -> float:
    """Seconds in the unit of a latency column: 0.001 where ``ms`` is a part of its name.

    Examples
    --------
    >>> seconds_per("latency_ms__large"), seconds_per("response_time")
    (0.001, 1.0)
    """
    return 1e-3 if "ms" in column.lower().replace("-", "_").split("_") else 1.0


def named_columns(
    what: str,
    wanted: str | Sequence[str] | Mapping[str, str],
    names: Sequence[str],
    experts: Sequence[str],
) -> dict[str, str]:
    """Expert -> column, for prices or latencies that a caller named.

    Without ``expert=column`` there must be a column for every expert. Columns and experts are paired by
    their names without the beginning and end that all share, or else by order.

    Examples
    --------
    >>> named_columns("prices", "usd_*", ["acc_a", "acc_b", "usd_b", "usd_a"], ["acc_a", "acc_b"])
    {'acc_a': 'usd_a', 'acc_b': 'usd_b'}
    """
    pairs = as_pairs(wanted)
    if pairs is not None:
        choose_columns(what, list(pairs.values()), names)
        return {match_expert(name, experts): column for name, column in pairs.items()}
    columns = choose_columns(what, wanted if isinstance(wanted, str) else list(wanted), names)
    if len(columns) != len(experts):
        raise DataFileError(
            f"{what} must name one column per expert, or expert=column; got {len(columns)} "
            f"({listed(columns, 4)}) for {len(experts)} experts ({listed(experts, 4)}).",
            parameter=what,
        )
    by_core = dict(zip(_cores(columns), columns, strict=True))
    expert_cores = _cores(experts)
    if len(by_core) == len(columns) and set(by_core) == set(expert_cores):
        columns = [by_core[core] for core in expert_cores]
    return dict(zip(experts, columns, strict=True))


def as_pairs(wanted: Named) -> dict[str, str] | None:
    """Expert -> column where ``wanted`` names experts; None where it only names columns.

    Examples
    --------
    >>> as_pairs("large=acc_large, small=acc_small"), as_pairs("acc_*")
    ({'large': 'acc_large', 'small': 'acc_small'}, None)
    """
    if isinstance(wanted, Mapping):
        return dict(wanted)
    if not isinstance(wanted, str) or "=" not in wanted:
        return None
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        raise DataFileError(f"columns must be named as expert=column throughout; got {wanted!r}.")
    halves = [part.rpartition("=") for part in parts]
    return {name.strip(): column.strip() for name, _, column in halves}


def _cores(names: Sequence[str]) -> list[str]:
    """Names without the beginning and the end that all share."""
    start = _shared(names)
    backwards = [name[start:][::-1] for name in names]
    end = _shared(backwards)
    return [text[end:][::-1] for text in backwards]


def _shared(names: Sequence[str]) -> int:
    """Number of letters with which all names begin."""
    letters = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, letters))
