"""Which columns hold the outcomes, found by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from mild.artifact.expert_names import match_expert
from mild.data.columns import choose_columns
from mild.errors import DataFileError, listed

__all__ = [
    "CORRECT",
    "LATENCY",
    "PRICE",
    "SCORE",
    "Layout",
    "Named",
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
class Layout:
    """Columns of a table with one row per query.

    Attributes
    ----------
    form : name of the shape
    scores, prices, latencies : expert -> column; the order of ``scores`` is that of the experts
    words : what is worth saying about how the columns were taken
    """

    form: str
    scores: dict[str, str]
    prices: dict[str, str] = field(default_factory=dict)
    latencies: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    @property
    def taken(self) -> set[str]:
        """Columns that hold outcomes."""
        return {*self.scores.values(), *self.prices.values(), *self.latencies.values()}

    def of(self, experts: Sequence[str]) -> Layout:
        """The same for some of the experts, in their order."""
        kept = [
            {name: columns[name] for name in experts if name in columns}
            for columns in (self.scores, self.prices, self.latencies)
        ]
        return replace(self, scores=kept[0], prices=kept[1], latencies=kept[2])


def seconds_per(column: str) -> float:
    """Seconds in the unit of a latency column: one thousandth where ``ms`` is a part of its name.

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

    ``expert=column`` says it outright; otherwise there must be a column for every expert, and they go
    together by what is left of their names without the letters that all share, or else by order.

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
            f"({listed(columns, 4)}) for {len(experts)} experts ({listed(experts, 4)})."
        )
    cores, expert_cores = _cores(columns), _cores(experts)
    if set(cores) == set(expert_cores) and len(set(cores)) == len(cores):
        return {
            name: columns[cores.index(core)]
            for name, core in zip(experts, expert_cores, strict=True)
        }
    return dict(zip(experts, columns, strict=True))


def as_pairs(wanted: Named) -> dict[str, str] | None:
    """Expert -> column where ``wanted`` says so; None where it only names columns.

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
    ends = [name[start:][::-1] for name in names]
    end = _shared(ends)
    return [text[end:][::-1] for text in ends]


def _shared(names: Sequence[str]) -> int:
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return sum(1 for _ in same)
