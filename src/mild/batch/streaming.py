"""Route the lines of a stream: answers in order, in bounded memory."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from mild.artifact import Router
from mild.batch.inputs import NO_RECIPE, query_recipe, vector_names
from mild.batch.novel_queries import SAMPLE, NovelQueries
from mild.core.arrays import FloatArray
from mild.data.queries import QUERY_NAMES, TEXTS, Recipe, RecipeError, type_name
from mild.data.selection import Where, matching_rows
from mild.data.tables import is_string, naming, read_table, table_suffix
from mild.data.vectors import VECTOR_NAMES, read_vectors
from mild.errors import (
    DataFileError,
    MildError,
    OptionError,
    UnsupportedError,
    check_option,
    listed,
)
from mild.policies import Decisions

# Bytes that are read at a time at most.
BLOCK_BYTES = 256 << 10
# A longer line is not kept.
LONGEST_LINE = 32 << 20
FORMATS = ("auto", "json", "text")
# Files that are tables, not lines; .gz may follow. JSON lines are read line by line.
TABLES = (".csv", ".tsv", ".json", ".parquet")
# Rows of a table that are turned into lines at a time.
ROWS = 1000
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Complete lines, without their line breaks; None for one that was too long to keep."""

    lines: list[bytes | None]
    first: int  # number of the first line, from 1


def read_blocks(stream: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of the lines of a binary stream, in order.

    A block holds the lines that one read completes: at most ``block_bytes``, and the beginning of the
    first line. So a caller that sends one line at a time gets one answer at a time.
    """
    # A line of which the end has not been read yet.
    beginning = bytearray()
    number = 1
    ended = False
    while not ended:
        piece = _read_piece(stream, block_bytes)
        ended = not piece
        first, *others = piece.split(b"\n")
        if len(beginning) <= LONGEST_LINE:
            beginning += first
        if not others and not (ended and beginning):
            continue
        first_line = None
        if len(beginning) <= LONGEST_LINE:
            first_line = bytes(beginning)
        block = Block([first_line, *others[:-1]], number)
        yield block
        number += len(block.lines)
        beginning = bytearray()
        if others:
            beginning += others[-1]


def _read_piece(stream: Any, block_bytes: int) -> bytes:
    """The bytes that can be read now, at most ``block_bytes``; none at the end of the stream."""
    read = getattr(stream, "read1", stream.read)
    try:
        piece: bytes = read(block_bytes)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataFileError(f"cannot read the queries: {reason}.") from error
    return piece


class BadLineError(ValueError):
    """A line without a query; the message gives the reason."""


class Query(NamedTuple):
    """A text or a vector, and the id of its line, if any."""

    content: Any
    key: Any = None


@dataclass(frozen=True)
class LineFormat:
    """How lines are read.

    >>> LineFormat("json").read(b'{"id": 7, "query": "Who?"}')
    Query(content='Who?', key=7)
    """

    kind: str  # "json" or "text"
    field: str | None = None  # of the query; None for the first usual one that is present
    vectors: bool = False  # whether queries are lists of numbers
    recipe: Recipe = NO_RECIPE  # how the router's queries are made of fields

    def read(self, line: bytes | None) -> Query | None:
        """The query of a line; None for a blank line; BadLineError for one that cannot be read."""
        if line is None:
            raise BadLineError(f"longer than {LONGEST_LINE:,} bytes")
        try:
            text = line.removeprefix(BOM).decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise BadLineError(f"not UTF-8 (byte {error.start + 1})") from error
        if not text or text.isspace():
            return None
        if self.kind == "text":
            return Query(text)
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadLineError(f"not JSON ({error.msg}, column {error.colno})") from error
        except (RecursionError, ValueError) as error:
            raise BadLineError(
                "not JSON that can be read (nested too deep, or a number too long)"
            ) from error
        if isinstance(value, dict):
            return self._query_of_object(value)
        return Query(self._checked(value, "the line"))

    def _query_of_object(self, fields: dict[str, Any]) -> Query:
        """The query in the fields of an object, and its id."""
        if self._is_made_of(fields):
            try:
                return Query(self.recipe.text(fields), fields.get("id"))
            except RecipeError as error:
                raise BadLineError(str(error)) from error
        names = self._field_names()
        for name in names:
            if name in fields:
                return Query(self._checked(fields[name], f"field {name!r}"), fields.get("id"))
        raise BadLineError(f"no field {' or '.join(map(repr, names))}")

    def _is_made_of(self, fields: dict[str, Any]) -> bool:
        """Whether the query is made of these fields, as the router's queries were."""
        if self.vectors or not self.recipe.fits(fields):
            return False
        return self.field is None or self.field == ",".join(self.recipe.columns)

    def _field_names(self) -> tuple[str, ...]:
        """Fields that may hold the whole query, the likeliest first."""
        if self.field is not None:
            return (self.field,)
        if self.vectors:
            return vector_names(self.recipe)
        columns = self.recipe.columns
        # Of several columns that make up the query, only the first may stand for it.
        others = [name for name in QUERY_NAMES if name not in columns]
        return (*columns[:1], *others)

    def _checked(self, value: Any, where: str) -> Any:
        """The value, if it is a query; ``where`` it stands is for the message."""
        if not self.vectors:
            if isinstance(value, str):
                return value
            raise BadLineError(f"{where} must be a string; got {type_name(value)}")
        if isinstance(value, list) and all(type(entry) in (int, float) for entry in value):
            return value
        raise BadLineError(f"{where} must be a list of numbers")


def find_format(
    lines: list[bytes | None],
    kind: str = "auto",
    field: str | None = None,
    vectors: bool = False,
    recipe: Recipe = NO_RECIPE,
) -> LineFormat:
    """Find the format of a stream by its first line that is not empty, unless ``kind`` gives it.

    Parameters
    ----------
    lines : list of bytes or None
        The first lines of the stream.
    kind : str, default="auto"
        "json", "text" or "auto".
    field : str, default=None
        Field of the query in JSON objects.
    vectors : bool, default=False
        Whether the router takes vectors, which are lists of numbers.
    recipe : Recipe, default=Recipe(())
        How the router's queries are made of fields.
    """
    check_option("format", kind, FORMATS)
    if vectors and kind == "text":
        raise OptionError(
            parameter="format",
            rule="must be 'json' for a router that takes vectors: one list of numbers per line.",
        )
    if kind == "auto":
        needs_json = vectors or field is not None
        kind = "json" if needs_json or _begins_with_json(lines) else "text"
    return LineFormat(kind, field, vectors, recipe)


def _begins_with_json(lines: list[bytes | None]) -> bool:
    """Whether the first line that is not blank is a JSON object or string."""
    for line in lines:
        if line and line.strip(BOM + b" \t\r"):
            text = line.removeprefix(BOM)
            return text.lstrip()[:1] in (b"{", b'"') and _is_json(text)
    return False


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def decision_lines(
    expert_names: Sequence[str],
    decisions: Decisions,
    queries: Sequence[Query],
    first_steps: Sequence[Sequence[str]] | None = None,
    *,
    echo: bool = False,
    probabilities: bool = False,
) -> list[str]:
    """Decisions as JSON lines, without line breaks.

    Parameters
    ----------
    expert_names : sequence of str
        Names of the experts, in the order of the router.
    decisions : Decisions
        What the router decided for each query.
    queries : sequence of Query
        The queries and their ids.
    first_steps : sequence of sequence of str, default=None
        For each query the experts that a cascade asks first.
    echo : bool, default=False
        Whether the query is repeated.
    probabilities : bool, default=False
        Whether each expert's share of the expected reward is added.
    """
    lines = []
    for row, query in enumerate(queries):
        line: dict[str, Any] = {}
        if query.key is not None:
            line["id"] = query.key
        if echo:
            line["query"] = query.content
        line["expert"] = expert_names[decisions.chosen[row]]
        if first_steps is not None:
            line["first_step"] = first_steps[row]
        if probabilities:
            line["probabilities"] = _by_expert(expert_names, decisions.probabilities[row])
        line["expected_cost"] = None
        if decisions.costs is not None:
            line["expected_cost"] = _by_expert(expert_names, decisions.costs[row])
        lines.append(_json(line))
    return lines


def _by_expert(expert_names: Sequence[str], values: FloatArray) -> dict[str, float]:
    """Expert -> its value, rounded to six significant digits."""
    numbers: dict[str, float] = {}
    for name, value in zip(expert_names, values.tolist(), strict=True):
        rounded = float(f"{value:.6g}")
        # 1 instead of 1.0.
        numbers[name] = int(rounded) if rounded.is_integer() else rounded
    return numbers


def _json(value: Any) -> str:
    """The value as JSON that can be written as UTF-8."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # A lone surrogate must be escaped.
        return json.dumps(value)
    return text


@dataclass(frozen=True)
class RoutedBlock:
    """Answers to a block: JSON lines, queries per expert, (number, reason) of bad lines, blank lines.

    A blank line is answered without an expert; ``empty`` queries, such as ``{"prompt": ""}``, are routed.
    """

    output: bytes
    counts: list[int]
    bad: list[tuple[int, str]]
    blank: int = 0
    empty: int = 0
    novel: NovelQueries = field(default_factory=NovelQueries)


@dataclass
class _Lines:
    """The queries of a block, and the answers to its other lines."""

    queries: list[Query] = field(default_factory=list)
    # For each line the index of its query, or its answer if it has none.
    entries: list[int | str] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)
    blank: int = 0


class LineRouter:
    """A router of queries that answers lines.

    Parameters
    ----------
    router : Router
        A loaded router.
    lines : LineFormat
        How lines are read.
    echo : bool, default=False
        Whether answers repeat their query.
    skip_bad : bool, default=False
        Whether blank lines and lines that cannot be read are left out.
    probabilities : bool, default=False
        Whether answers have each expert's share of the expected reward.
    """

    def __init__(
        self,
        router: Router,
        lines: LineFormat,
        echo: bool = False,
        skip_bad: bool = False,
        probabilities: bool = False,
    ) -> None:
        self.router = router
        self.lines = lines
        self.echo = echo
        self.skip_bad = skip_bad
        self.probabilities = probabilities
        # Queries that have been checked for novelty.
        self._n_checked = 0

    def route(self, block: Block) -> RoutedBlock:
        """Answer the lines of a block."""
        lines = self._read(block)
        answers: list[str] = []
        counts = [0] * self.router.n_experts
        novel = NovelQueries()
        if lines.queries:
            contents = [query.content for query in lines.queries]
            X = self.router.features(contents)
            novel = NovelQueries.of(self.router, contents[: SAMPLE - self._n_checked], X)
            self._n_checked += novel.n_checked
            decisions = self.router.decide_features(X)
            answers = decision_lines(
                self.router.experts,
                decisions,
                lines.queries,
                self.router.first_steps(X),
                echo=self.echo,
                probabilities=self.probabilities,
            )
            counts = np.bincount(decisions.chosen, minlength=len(counts)).tolist()
        return RoutedBlock(
            output=self._output(lines.entries, answers),
            counts=counts,
            bad=lines.bad,
            blank=lines.blank,
            empty=self._n_empty(lines.queries),
            novel=novel,
        )

    def _read(self, block: Block) -> _Lines:
        """Read the lines of a block."""
        lines = _Lines()
        for number, line in enumerate(block.lines, block.first):
            try:
                query = self.lines.read(line)
                if query is not None and self.lines.vectors:
                    # Refuses a vector of the wrong length.
                    self.router.features([query.content])
            except (BadLineError, MildError) as error:
                lines.bad.append((number, str(error)))
                lines.entries.append(_json({"line": number, "error": str(error)}))
                continue
            if query is None:
                lines.blank += 1
                answer = {"line": number, "expert": None, "expected_cost": None}
                lines.entries.append(_json({**answer, "note": "blank line"}))
            else:
                lines.entries.append(len(lines.queries))
                lines.queries.append(query)
        return lines

    def _output(self, entries: Sequence[int | str], answers: Sequence[str]) -> bytes:
        """The answers in the order of the lines, each with a line break."""
        output = []
        for entry in entries:
            if isinstance(entry, int):
                output.append(f"{answers[entry]}\n")
            elif not self.skip_bad:
                output.append(f"{entry}\n")
        return "".join(output).encode()

    def _n_empty(self, queries: Sequence[Query]) -> int:
        """Number of texts without any letter, such as ``""``."""
        if self.lines.vectors:
            return 0
        return sum(not query.content or query.content.isspace() for query in queries)


@dataclass
class Routed:
    """Counts of a stream."""

    counts: dict[str, int]  # expert -> queries that were sent to it
    bad: int = 0  # lines that cannot be read
    blank: int = 0  # lines without a query
    empty: int = 0  # queries without a letter, which are routed
    novel: NovelQueries = field(default_factory=NovelQueries)  # among the first queries
    lines: LineFormat | None = None

    @property
    def queries(self) -> int:
        """Number of answers."""
        return sum(self.counts.values())


def route_stream(
    router: Router,
    source: Any,
    sink: BinaryIO,
    *,
    lines: str = "auto",
    query: str | None = None,
    echo: bool = False,
    skip_bad: bool = False,
    probabilities: bool = False,
    on_bad: Callable[[int, str], None] = lambda number, reason: None,
    block_bytes: int = BLOCK_BYTES,
) -> Routed:
    """Answer every line of a binary stream with a JSON line.

    There are as many answers as lines, unless ``skip_bad``; the expert of a blank line is null.

    Parameters
    ----------
    router : Router
        A loaded router of queries or vectors.
    source : binary stream
        The lines.
    sink : binary stream
        Where the answers are written.
    lines : str, default="auto"
        "json", "text", or "auto" to decide by the first line.
    query : str, default=None
        Field of the query in JSON objects. By default those that the router was fitted on, or usual ones.
    echo : bool, default=False
        Whether answers repeat their query.
    skip_bad : bool, default=False
        Whether blank lines and lines that cannot be read are left out.
    probabilities : bool, default=False
        Whether answers have each expert's share of the expected reward.
    on_bad : callable, default=no operation
        Called with the number of a line that cannot be read, and the reason.
    block_bytes : int, default=262144
        Bytes that are read at a time at most.

    Returns
    -------
    Routed
    """
    if router.text is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read queries; give it a table of "
            "numbers, or fit one on queries.",
            parameter="router",
        )
    check_option("format", lines, FORMATS)
    names = router.experts
    routed = Routed(dict.fromkeys(names, 0))
    blocks = read_blocks(source, block_bytes)
    first_block = next(blocks, None)
    if first_block is None:
        return routed
    takes_vectors = router.text.kind == "vectors"
    recipe = query_recipe(router)
    routed.lines = find_format(first_block.lines, lines, query, takes_vectors, recipe)
    line_router = LineRouter(router, routed.lines, echo, skip_bad, probabilities)
    for lines_read in itertools.chain([first_block], blocks):
        block = line_router.route(lines_read)
        sink.write(block.output)
        # A caller may wait for an answer before the next question.
        sink.flush()
        for name, count in zip(names, block.counts, strict=True):
            routed.counts[name] += count
        routed.blank += block.blank
        routed.empty += block.empty
        routed.novel += block.novel
        routed.bad += len(block.bad)
        for number, reason in block.bad:
            on_bad(number, reason)
    return routed


def holds_rows(file: str, lines: str = "auto") -> bool:
    """Whether a file is read as a table, row by row; JSON lines and text are read line by line.

    >>> holds_rows("new.csv.gz"), holds_rows("new.jsonl"), holds_rows("new.csv", "text")
    (True, False, False)
    """
    return lines == "auto" and file != "-" and table_suffix(file) in TABLES


def route_file(
    router: Router,
    file: str,
    sink: BinaryIO,
    *,
    where: Where = None,
    lines: str = "auto",
    query: str | None = None,
    **options: Any,
) -> Routed:
    """Answer every line of a file, or every row of a table, with a JSON line.

    ``file`` may be gzipped; "-" is the standard input. ``where`` selects rows of a table as in
    ``mild.read_outcomes``. The other arguments are those of ``route_stream``; of a table, the number of a
    row stands in place of that of a line.
    """
    if holds_rows(file, lines):
        table = _query_columns(router, file, query, where)
        return route_stream(router, _RowStream(table), sink, lines="json", query=query, **options)
    if where:
        rule = "is for tables (.csv, .tsv, .json, .parquet); lines have no columns."
        raise OptionError(parameter="where", rule=rule)
    with _opened(file) as stream:
        return route_stream(router, stream, sink, lines=lines, query=query, **options)


@contextmanager
def _opened(file: str) -> Iterator[Any]:
    """A binary stream of the lines of a file, or the standard input for "-"."""
    if file == "-":
        yield sys.stdin.buffer
        return
    opener: Any = open
    if file.lower().endswith(".gz"):
        opener = gzip.open
    try:
        with opener(file, "rb") as stream:
            yield stream
    except OSError as error:
        if error.filename != file:
            raise
        raise DataFileError(f"cannot read {file}: {error.strerror or error}.") from error


class _RowStream:
    """The rows of a table as a binary stream of JSON lines."""

    def __init__(self, table: pa.Table) -> None:
        self._batches = iter(table.to_batches(max_chunksize=ROWS))

    def read(self, size: int) -> bytes:
        """The lines of the next rows, of any size; nothing at the end."""
        batch = next(self._batches, None)
        if batch is None:
            return b""
        lines = [json.dumps(row, default=str) + "\n" for row in batch.to_pylist()]
        return "".join(lines).encode()


def _query_columns(router: Router, file: str, query: str | None, where: Where) -> pa.Table:
    """The columns of a table that make the queries, and its ids."""
    candidates = _candidate_columns(router, query)
    with naming(file):
        table = read_table(file, {*TEXTS, *candidates.texts})
        if where:
            table = table.filter(pa.array(matching_rows(table, where)))
        names = list(table.column_names)
        if not any(name in names for name in candidates.feature_inputs):
            expected = " or ".join(map(repr, candidates.expected))
            raise DataFileError(
                parameter="query",
                rule=f"must name the column of the query, because there is no {expected}; found "
                f"{listed(names)}.",
            )
        needed = {*candidates.feature_inputs, *candidates.choices, "id"}
        table = table.select([name for name in names if name in needed])
        if candidates.are_vectors:
            table = _with_parsed_vectors(table)
    return table


@dataclass(frozen=True)
class _CandidateColumns:
    """Columns of a table that may hold the queries of a router."""

    preferred: tuple[str, ...]  # those that were named, or that the router was fitted on
    usual: tuple[str, ...]  # others with a usual name
    choices: tuple[str, ...]
    are_vectors: bool

    @property
    def feature_inputs(self) -> tuple[str, ...]:
        """Columns of queries or vectors, one of which must be there."""
        return (*self.preferred, *self.usual)

    @property
    def expected(self) -> tuple[str, ...]:
        """The columns that a message names."""
        return self.preferred or self.usual[:1]

    @property
    def texts(self) -> set[str]:
        """Columns that are read as texts, whatever they look like."""
        if self.are_vectors:
            return set(self.preferred) - set(self.usual)
        return set(self.preferred)


def _candidate_columns(router: Router, query: str | None) -> _CandidateColumns:
    """The columns of the queries, the one that is named or those of the fit and the usual ones."""
    recipe = query_recipe(router)
    takes_vectors = router.text is not None and router.text.kind == "vectors"
    if query is not None and query != ",".join(recipe.columns):
        return _CandidateColumns((query,), (), recipe.choices, takes_vectors)
    if not takes_vectors:
        return _CandidateColumns(recipe.columns, QUERY_NAMES, recipe.choices, takes_vectors)
    preferred = tuple(filter(None, [recipe.vectors]))
    return _CandidateColumns(preferred, VECTOR_NAMES, recipe.choices, takes_vectors)


def _with_parsed_vectors(table: pa.Table) -> pa.Table:
    """The table with lists of numbers in place of vectors as text: a CSV holds them as JSON."""
    for index, field_of_table in enumerate(table.schema):
        name = field_of_table.name
        if name != "id" and is_string(field_of_table.type):
            vectors = read_vectors(table, name)
            table = table.set_column(index, name, pa.array(vectors.tolist()))
    return table
