"""Which columns of a table hold the outcomes, and how a caller names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
SCORE_NAMES = (
    *("score", "correct", "is_correct", "accuracy", "performance", "grade", "rating", "reward"),
    *("correctness", "quality", "passed", "success", "right"),
)
PRICE_NAMES = (
    *("cost", "total_cost", "price", "dollars", "cost_usd", "usd", "price_usd", "cost_dollars"),
)
LATENCY_NAMES = (
    *("response_time", "latency", "latency_s", "latency_ms", "seconds", "latency_seconds"),
    *("response_time_s", "response_time_ms", "duration", "duration_s", "duration_ms"),
)
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
    features: str | Sequence[str] | None = None
    costs: str | Sequence[str] | None = None

    def texts(self) -> set[str]:
        """Columns that are read as text whatever they look like, also as patterns."""

        def names(what: str) -> set[str]:
            columns = getattr(self, what)
            pairs = as_pairs(columns, what)
            parts = columns.split(",") if isinstance(columns, str) else columns
            return {name.strip() for name in (pairs.values() if pairs is not None else parts or ())}

        query = {self.query.strip()} if isinstance(self.query, str) else set()
        outcomes = names("scores") | names("prices") | names("latencies")
        named = {name for name in (self.model_column, self.answer_column) if name is not None}
        return {*TEXTS, *query, *names("query"), *named, ANSWER + "*"} - outcomes


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
    name: str
    title: str
    rule: str  # which columns it has
    # Arrow schema -> the columns of the outcomes, or None if the schema does not fit
    detect: Callable[[Any], Layout | None]
    # Where there is a row per query and model, and detect gives an empty layout: to a row per query.
    widen: Callable[[Any, ReadArguments], tuple[Any, Layout, list[Finding]]] | None = None
    # How little its columns say: where a format fits, those with a higher rank do not count.
    rank: int = 0


def read_with(arguments: str) -> str:
    """How a table is read with keyword arguments; commands show ``mild data convert`` instead.

    >>> read_with("scores=NAMES")
    '`mild.read_outcomes(FILE, scores=NAMES)`'
    """
    return f"`mild.read_outcomes(FILE, {arguments})`"


def seconds_per(column: str) -> float:
    """Seconds in the unit of a latency column: 0.001 where ``ms`` is a part of its name.

    >>> seconds_per("latency_ms__large"), seconds_per("large_seconds"), seconds_per("milliseconds")
    (0.001, 1.0, 0.001)
    """
    parts = set(plain_name(column).split("_"))
    return 1e-3 if parts & {"ms", "msec", "milliseconds"} else 1.0


def usual_columns(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    """Columns that have one of the usual names, in the order of these.

    >>> usual_columns(["Model Name", "score", "x"], MODEL_NAMES)
    ['Model Name']
    """
    return [name for wanted in usual for name in names if plain_name(name) == wanted]


def text_notes(table: Any, names: Sequence[str]) -> list[str]:
    """Which of some columns of outcomes hold text, and whether as numbers or as words."""
    texts = [name for name in names if is_string(table.schema.field(name).type)]
    words = [name for name in texts if parse_numbers(table[name]) is None]
    plain = [name for name in texts if name not in words]
    notes = [f"numbers as text in {listed(plain, 4)}"] if plain else []
    return [*notes, f"right and wrong as words in {listed(words, 4)}"] if words else notes


def as_pairs(wanted: Named, what: str) -> dict[str, str] | None:
    """Expert -> column where ``wanted`` names experts; None where it only names columns."""
    if isinstance(wanted, Mapping):
        for expert, column in wanted.items():
            if not isinstance(column, str):
                raise DataFileError(
                    f"{what} must name the column of each expert; got {column!r} for {expert}.",
                    parameter=what,
                )
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
        rule = f"plain columns must be named: {read_with('scores=NAMES')}"
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
        return match_values(pairs, experts)
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
