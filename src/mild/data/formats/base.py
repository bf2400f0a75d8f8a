"""Which columns of a table hold the outcomes, and how a caller names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import commonprefix
from typing import Any

from mild.artifact.expert_names import match_values
from mild.data.data_quality import Finding
from mild.data.queries import TEXTS, plain_name
from mild.data.tables import choose_columns, is_string, parse_numbers
from mild.errors import DataFileError, listed

CORRECT = "correct__"
SCORE = "score__"
PRICE = "cost__"
LATENCY = "latency_ms__"
TOKENS_IN = "tokens_in__"
TOKENS_OUT = "tokens_out__"
ANSWER = "answer__"
LOGPROB = "logprob__"

#: Usual names of what is known about an answer, without regard to case, spaces and dashes.
MODEL_NAMES = ("model", "model_name", "expert", "expert_name", "engine", "model_id", "llm")
# fmt: off
SCORE_NAMES = (
    "score", "correct", "is_correct", "accuracy", "performance", "grade", "rating", "reward",
    "correctness", "quality", "passed", "success", "right",
)
PRICE_NAMES = (
    "cost", "total_cost", "price", "dollars", "cost_usd", "usd", "price_usd", "cost_dollars",
)
LATENCY_NAMES = (
    "response_time", "latency", "latency_s", "latency_ms", "seconds", "latency_seconds",
    "response_time_s", "response_time_ms", "duration", "duration_s", "duration_ms",
)
# fmt: on
TOKEN_NAMES = (
    ("input_tokens", "prompt_tokens", "tokens_in"),
    ("output_tokens", "completion_tokens", "tokens_out"),
)
#: The answer of a model; ``answer`` may also be the right one, which is the same for all models.
ANSWER_NAMES = ("answer", "response", "output", "completion", "model_response", "generation")

#: Columns as a caller names them: names and patterns, a list, or expert -> column.
Named = str | Sequence[str] | Mapping[str, str] | None


@dataclass(frozen=True)
class ReadArguments:
    """The arguments of ``mild.read_outcomes`` in one object, with their defaults.

    ``id_column`` is set by formats that know which column tells equal queries apart.
    """

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
    model_column: str | None = None
    answer_column: str | None = None
    id_column: str | None = None
    answer_kind: str | None = None

    def texts(self) -> set[str]:
        """Return the columns, also as patterns, that are read as text even if they look like numbers."""
        texts = {*TEXTS, ANSWER + "*", *_spelled_columns(self.query, "query")}
        if isinstance(self.query, str):
            # The name of one column may contain a comma.
            texts.add(self.query.strip())
        for column in (self.model_column, self.answer_column):
            if column is not None:
                texts.add(column)
        for parameter in ("scores", "prices", "latencies"):
            texts -= _spelled_columns(getattr(self, parameter), parameter)
        return texts


def _spelled_columns(columns: Named, parameter: str) -> set[str]:
    """Return the names and patterns of columns, in whatever form the caller named them."""
    pairs = as_pairs(columns, parameter)
    names: Iterable[str] = ()
    if pairs is not None:
        names = pairs.values()
    elif isinstance(columns, str):
        names = columns.split(",")
    elif columns is not None:
        names = columns
    return {name.strip() for name in names}


@dataclass(frozen=True)
class Layout:
    """Which columns of a table hold the outcomes of the experts, for a table with one row per query.

    ``scores``, ``prices`` and ``latencies`` map experts to column names, in the order of the experts.
    """

    form: str
    scores: dict[str, str]
    prices: dict[str, str] = field(default_factory=dict)
    latencies: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # clauses for users that say how the columns were chosen

    @property
    def outcome_columns(self) -> set[str]:
        """The columns that hold scores, prices or latencies of an expert."""
        return {*self.scores.values(), *self.prices.values(), *self.latencies.values()}

    def select_experts(self, experts: Sequence[str]) -> Layout:
        """Return the layout of these experts only, in their order."""
        return replace(
            self,
            scores=columns_of(experts, self.scores),
            prices=columns_of(experts, self.prices),
            latencies=columns_of(experts, self.latencies),
        )

    def with_notes(self, *notes: str) -> Layout:
        """Return the layout with more notes after those that it has."""
        return replace(self, notes=(*self.notes, *notes))


def columns_of(experts: Iterable[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of these experts, by expert; those without a column are left out.

    >>> columns_of(["b", "a", "x"], {"a": "cost__a", "b": "cost__b"})
    {'b': 'cost__b', 'a': 'cost__a'}
    """
    return {expert: columns[expert] for expert in experts if expert in columns}


@dataclass(frozen=True)
class Format:
    """One of the formats of a table."""

    name: str
    title: str
    rule: str  # which columns it has
    # Arrow schema -> the columns of the outcomes, or None if the schema does not fit
    detect: Callable[[Any], Layout | None]
    # Where there is a row per query and model, and detect gives an empty layout: to a row per query.
    widen: Callable[[Any, ReadArguments], tuple[Any, Layout, list[Finding]]] | None = None
    # How little its columns say: where a format fits, those with a higher rank do not count.
    rank: int = 0


def prefixed_columns(prefix: str, experts: Iterable[str]) -> dict[str, str]:
    """Return the columns that begin with a prefix and end with the name of an expert, by expert.

    >>> prefixed_columns("cost__", ["a", "b"])
    {'a': 'cost__a', 'b': 'cost__b'}
    """
    return {expert: prefix + expert for expert in experts}


def price_columns(names: Iterable[str]) -> list[str]:
    """Return the names of the form ``cost__<model>``: dollars per query."""
    return [name for name in names if name.startswith(PRICE)]


def read_with(arguments: str) -> str:
    """Show how a table is read with keyword arguments; commands show ``mild convert`` instead.

    >>> read_with("scores=NAMES")
    '`mild.read_outcomes(FILE, scores=NAMES)`'
    """
    return f"`mild.read_outcomes(FILE, {arguments})`"


def seconds_per(column: str, expert: str = "") -> float:
    """Return the seconds in one unit of a latency column: 0.001 if ``ms`` is a part of its name.

    The name of the expert does not count, if the column's begins or ends with it.

    >>> seconds_per("latency_ms__large"), seconds_per("large_seconds"), seconds_per("milliseconds")
    (0.001, 1.0, 0.001)
    >>> seconds_per("ms-phi_latency", "ms-phi"), seconds_per("ms-phi_latency_ms", "ms-phi")
    (1.0, 0.001)
    """
    unit = column.removeprefix(expert) if column.startswith(expert) else column.removesuffix(expert)
    words = set(plain_name(unit).split("_"))
    if words & {"ms", "msec", "milliseconds"}:
        return 1e-3
    return 1.0


def usual_columns(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Return the columns that have one of the usual names, in the order of the usual names.

    >>> usual_columns(["Model Name", "score", "x"], MODEL_NAMES)
    ['Model Name']
    """
    columns = []
    for usual_name in usual:
        columns += [name for name in names if plain_name(name) == usual_name]
    return columns


def text_notes(table: Any, names: Sequence[str]) -> list[str]:
    """Say which columns of outcomes hold text, and whether as numbers or as words."""
    numbers_as_text = []
    words = []
    for name in names:
        if not is_string(table.schema.field(name).type):
            continue
        if parse_numbers(table[name]) is None:
            words.append(name)
        else:
            numbers_as_text.append(name)
    notes = []
    if numbers_as_text:
        notes.append(f"numbers as text in {listed(numbers_as_text, 4)}")
    if words:
        notes.append(f"right and wrong as words in {listed(words, 4)}")
    return notes


def as_pairs(columns: Named, parameter: str) -> dict[str, str] | None:
    """Return the column of each expert if the caller names experts; None if only columns are named."""
    if isinstance(columns, Mapping):
        for expert, column in columns.items():
            if not isinstance(column, str):
                raise DataFileError(
                    f"{parameter} must name the column of each expert; got {column!r} for {expert}.",
                    parameter=parameter,
                )
        return dict(columns)
    if not isinstance(columns, str) or "=" not in columns:
        return None
    pairs = {}
    for text in columns.split(","):
        if not text.strip():
            continue
        # The name of an expert may contain "=".
        expert, mark, column = text.strip().rpartition("=")
        if not mark:
            raise DataFileError(
                f"{parameter} must be named as expert=column throughout; got {columns!r}.",
                parameter=parameter,
            )
        pairs[expert.strip()] = column.strip()
    return pairs


def named_scores(schema: Any, scores: Named) -> dict[str, str]:
    """Return the score column of each expert, from names, patterns or ``expert=column``."""
    names = list(schema.names)
    if scores is None:
        rule = f"plain columns must be named: {read_with('scores=NAMES')}"
        raise DataFileError(f"{rule}; found {listed(names)}.", parameter="scores")
    pairs = as_pairs(scores, "scores")
    if pairs is not None:
        choose_columns("scores", list(pairs.values()), names)
        return pairs
    columns = choose_columns("scores", as_names(scores), names)
    by_expert = {}
    for column in columns:
        by_expert[column.removeprefix(CORRECT).removeprefix(SCORE) or column] = column
    if len(by_expert) < len(columns):
        got = f"{listed(columns)} for {listed(list(by_expert))}"
        raise DataFileError(
            f"each expert must have one score column; got {got}.", parameter="scores"
        )
    return by_expert


def as_names(columns: Named) -> str | list[str]:
    """Return columns as ``choose_columns`` takes them: names and patterns in one text, or a list."""
    if isinstance(columns, str):
        return columns
    return list(columns or ())


def named_columns(
    parameter: str, named: Named, names: Sequence[str], experts: Sequence[str]
) -> dict[str, str]:
    """Return the column of each expert, for prices or latencies that the caller named.

    Without ``expert=column`` there must be a column for every expert. Columns and experts are paired by
    their names without the beginning and end that all share, or else by order.
    """
    pairs = as_pairs(named, parameter)
    if pairs is not None:
        choose_columns(parameter, list(pairs.values()), names)
        return match_values(pairs, experts)
    columns = choose_columns(parameter, as_names(named), names)
    if len(columns) != len(experts):
        raise DataFileError(
            parameter=parameter,
            rule=f"must name one column per expert, or expert=column; got {len(columns)} "
            f"({listed(columns, 4)}) for {len(experts)} experts ({listed(experts, 4)}).",
        )
    by_core = dict(zip(_without_shared(columns), columns, strict=True))
    cores = _without_shared(experts)
    if len(by_core) == len(columns) and set(by_core) == set(cores):
        columns = [by_core[core] for core in cores]
    return dict(zip(experts, columns, strict=True))


def _without_shared(names: Sequence[str]) -> list[str]:
    """Return the names without the beginning and the end that all of them share."""
    beginning = len(commonprefix(list(names)))  # noqa: RUF071
    reversed_rests = [name[beginning:][::-1] for name in names]
    end = len(commonprefix(reversed_rests))  # noqa: RUF071
    return [rest[end:][::-1] for rest in reversed_rests]
