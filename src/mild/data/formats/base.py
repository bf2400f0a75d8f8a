"""Which columns of a table hold the outcomes, and how a caller names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import Any

from mild.artifact.expert_names import match_expert
from mild.data.data_quality import Finding
from mild.data.queries import TEXTS
from mild.data.tables import choose_columns
from mild.errors import DataFileError, listed

CORRECT = "correct__"
SCORE = "score__"
PRICE = "cost__"
LATENCY = "latency_ms__"
TOKENS_IN = "tokens_in__"
TOKENS_OUT = "tokens_out__"

#: Columns as a caller names them: names and patterns, a list, or expert -> column.
Named = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True)
class ReadArguments:
    """The arguments of ``read_outcomes``."""

    form: str | None = None
    query: str | Sequence[str] | None = None
    experts: str | Sequence[str] | None = None
    scores: Named = None
    prices: Named = None
    latencies: Named = None
    vectors: str | None = None
    choices: bool = True
    tokens: str | None = None
    where: str | Sequence[str] | None = None

    def texts(self) -> set[str]:
        """Columns that are read as text whatever they look like."""

        def names(what: str) -> set[str]:
            columns = getattr(self, what)
            pairs = as_pairs(columns, what)
            parts = columns.split(",") if isinstance(columns, str) else columns
            return {name.strip() for name in (pairs.values() if pairs is not None else parts or ())}

        query = {self.query.strip()} if isinstance(self.query, str) else set()
        outcomes = names("scores") | names("prices") | names("latencies")
        return {*TEXTS, *query, *names("query")} - outcomes


@dataclass(frozen=True)
class Layout:
    """Columns of a table with one row per query: expert -> column, in the order of the experts."""

    form: str
    scores: dict[str, str]
    prices: dict[str, str] = field(default_factory=dict)
    latencies: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # how the columns were chosen

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
    """A format of outcome tables."""

    name: str
    title: str
    rule: str  # which columns it has
    # Arrow schema -> the columns of the outcomes, or None if the schema does not fit
    detect: Callable[[Any], Layout | None]
    # Where there is a row per query and model, and detect gives an empty layout: to a row per query.
    widen: Callable[[Any, ReadArguments], tuple[Any, Layout, list[Finding]]] | None = None
    # Whether its columns have no names of their own, so that any other format goes before it.
    unmarked: bool = False


def seconds_per(column: str) -> float:
    """Seconds in the unit of a latency column: 0.001 where ``ms`` is a part of its name."""
    return 1e-3 if "ms" in column.lower().replace("-", "_").split("_") else 1.0


def as_pairs(wanted: Named, what: str) -> dict[str, str] | None:
    """Expert -> column where ``wanted`` names experts; None where it only names columns."""
    if isinstance(wanted, Mapping):
        return dict(wanted)
    if not isinstance(wanted, str) or "=" not in wanted:
        return None
    parts = [part.strip() for part in wanted.split(",") if part.strip()]
    if not all("=" in part for part in parts):
        raise DataFileError(
            f"{what} must be named as expert=column throughout; got {wanted!r}.", parameter=what
        )
    halves = [part.rpartition("=") for part in parts]
    return {name.strip(): column.strip() for name, _, column in halves}


def named_scores(schema: Any, scores: Named) -> dict[str, str]:
    """Expert -> score column, by name or pattern or as ``expert=column``."""
    names = list(schema.names)
    if scores is None:
        rule = "plain columns must be named: --scores NAMES, with --prices and --latencies"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="scores")
    pairs = as_pairs(scores, "scores")
    if pairs is not None:
        choose_columns("scores", list(pairs.values()), names)
        return pairs
    columns = choose_columns("scores", scores if isinstance(scores, str) else list(scores), names)
    experts = {
        column.removeprefix(CORRECT).removeprefix(SCORE) or column: column for column in columns
    }
    if len(experts) < len(columns):
        got = f"{listed(columns)} for {listed(list(experts))}"
        raise DataFileError(
            f"each expert must have one score column; got {got}.", parameter="scores"
        )
    return experts


def named_columns(
    what: str, wanted: Named, names: Sequence[str], experts: Sequence[str]
) -> dict[str, str]:
    """Expert -> column, for prices or latencies that a caller named.

    Without ``expert=column`` there must be a column for every expert. Columns and experts are paired by
    their names without the beginning and end that all share, or else by order.
    """
    pairs = as_pairs(wanted, what)
    if pairs is not None:
        choose_columns(what, list(pairs.values()), names)
        return {match_expert(name, experts): column for name, column in pairs.items()}
    columns = choose_columns(what, wanted if isinstance(wanted, str) else list(wanted or ()), names)
    if len(columns) != len(experts):
        raise DataFileError(
            parameter=what,
            rule=f"must name one column per expert, or expert=column; got {len(columns)} "
            f"({listed(columns, 4)}) for {len(experts)} experts ({listed(experts, 4)}).",
        )
    by_core = dict(zip(_without_shared(columns), columns, strict=True))
    cores = _without_shared(experts)
    if len(by_core) == len(columns) and set(by_core) == set(cores):
        columns = [by_core[core] for core in cores]
    return dict(zip(experts, columns, strict=True))


def _without_shared(names: Sequence[str]) -> list[str]:
    """Names without the beginning and the end that all share."""
    shared = len(commonprefix(list(names)))  # noqa: RUF071
    rest = [name[shared:][::-1] for name in names]
    shared = len(commonprefix(rest))  # noqa: RUF071
    return [name[shared:][::-1] for name in rest]
