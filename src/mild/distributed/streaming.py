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

import pyarrow as pa

from mild.artifact import Router
from mild.core.arrays import FloatArray
from mild.data.queries import QUERY_NAMES, TEXTS, Recipe, RecipeError, type_name
from mild.data.selection import Where, matching_rows
from mild.data.tables import is_string, naming, read_table, table_suffix
from mild.data.vectors import VECTOR_NAMES, read_vectors
from mild.distributed.novel_queries import SAMPLE, NovelQueries
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
    """Whole lines, without their line breaks; None for one that was too long to keep."""

    lines: list[bytes | None]
    first: int  # number of the first line, from 1


def read_blocks(stream: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of the lines of a binary stream, in order.

    A block holds what one read gives, at most ``block_bytes`` and a line: a caller that sends one line at a
    time gets one answer at a time.
    """
    read = getattr(stream, "read1", stream.read)
    rest = bytearray()
    number = 1
    ended = False
    while not ended:
        try:
            piece = read(block_bytes)
        except (OSError, ValueError, EOFError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise DataFileError(f"cannot read the queries: {reason}.") from error
        ended = not piece
        first, *others = piece.split(b"\n")
        if len(rest) <= LONGEST_LINE:
            rest += first
        if others or (ended and rest):
            whole = bytes(rest) if len(rest) <= LONGEST_LINE else None
            block = Block([whole, *others[:-1]], number)
            yield block
            number += len(block.lines)
            rest = bytearray(others[-1] if others else b"")


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
    recipe: Recipe | None = None  # how the router's queries are made of fields

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
        return (
            self._of_object(value)
            if isinstance(value, dict)
            else Query(self._checked(value, "the line"))
        )

    def _of_object(self, value: dict[str, Any]) -> Query:
        recipe = self.recipe
        if recipe is not None and not self.vectors:
            named = self.field in (None, ",".join(recipe.columns))
            if named and recipe.fits(value):
                try:
                    return Query(recipe.text(value), value.get("id"))
                except RecipeError as error:
                    raise BadLineError(str(error)) from error
        names = self._fields() if self.field is None else (self.field,)
        for name in names:
            if name in value:
                return Query(self._checked(value[name], f"field {name!r}"), value.get("id"))
        raise BadLineError(f"no field {' or '.join(repr(name) for name in names)}")

    def _fields(self) -> tuple[str, ...]:
        if self.vectors:
            own = self.recipe.vectors if self.recipe else None
            return VECTOR_NAMES if own is None else (own, *VECTOR_NAMES)
        parts = self.recipe.columns if self.recipe else ()
        # A part of the query is not the whole of it.
        return (*parts[:1], *(name for name in QUERY_NAMES if name not in parts))

    def _checked(self, value: Any, where: str) -> Any:
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
    recipe: Recipe | None = None,
) -> LineFormat:
    """The format of a stream by its first line that is not empty, unless ``kind`` gives it."""
    check_option("format", kind, FORMATS)
    if vectors and kind == "text":
        raise OptionError(
            parameter="format",
            rule="must be 'json' for a router that takes vectors: one list of numbers per line.",
        )
    if kind == "auto":
        first = next((line for line in lines if line and line.strip(BOM + b" \t\r")), b"")
        first = first.removeprefix(BOM)
        looks = first.lstrip()[:1] in (b"{", b'"')
        kind = "json" if vectors or field is not None or (looks and _is_json(first)) else "text"
    return LineFormat(kind, field, vectors, recipe)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def decision_lines(
    expert_names: Sequence[str],
    found: Decisions,
    queries: Sequence[Query],
    first_steps: Sequence[Sequence[str]] | None = None,
    *,
    echo: bool = False,
    probabilities: bool = False,
) -> list[str]:
    """Decisions as JSON lines, without line breaks; ``first_steps`` are those of a cascade."""

    def by_expert(values: FloatArray) -> dict[str, float]:
        rounded = [float(f"{value:.6g}") for value in values.tolist()]
        numbers = [int(value) if value.is_integer() else value for value in rounded]
        return dict(zip(expert_names, numbers, strict=True))

    lines = []
    for row, query in enumerate(queries):
        line: dict[str, Any] = {} if query.key is None else {"id": query.key}
        if echo:
            line["query"] = query.content
        line["expert"] = expert_names[found.chosen[row]]
        if first_steps is not None:
            line["first_step"] = first_steps[row]
        if probabilities:
            line["probabilities"] = by_expert(found.probabilities[row])
        line["expected_cost"] = None if found.costs is None else by_expert(found.costs[row])
        lines.append(_json(line))
    return lines


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate must be escaped
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


class LineRouter:
    """A router with a text step that answers lines; for the parameters see ``route_stream``."""

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
        self.skip_bad = skip_bad
        self._shown = {"echo": echo, "probabilities": probabilities}
        self._n_checked = 0  # queries of which it is known whether they are novel

    def route(self, block: Block) -> RoutedBlock:
        queries: list[Query] = []
        bad: list[tuple[int, str]] = []
        blank = 0
        # For each line: the index of its query, or what is said instead.
        entries: list[int | str] = []
        for number, line in enumerate(block.lines, block.first):
            try:
                query = self.lines.read(line)
                if query is not None and self.lines.vectors:
                    self.router.features([query.content])
            except (BadLineError, MildError) as error:
                bad.append((number, str(error)))
                entries.append(_json({"line": number, "error": str(error)}))
                continue
            if query is None:
                blank += 1
                none = {"expert": None, "expected_cost": None}
                entries.append(_json({"line": number, **none, "note": "blank line"}))
            else:
                entries.append(len(queries))
                queries.append(query)
        answers: list[str] = []
        chosen: list[int] = []
        novel = NovelQueries()
        if queries:
            router = self.router
            contents = [query.content for query in queries]
            X = router.features(contents)
            novel = NovelQueries.of(router, contents[: SAMPLE - self._n_checked], X)
            self._n_checked += novel.n_checked
            found, first = router.decide_features(X), router.first_steps(X)
            answers = decision_lines(router.expert_names, found, queries, first, **self._shown)
            chosen = found.chosen.tolist()
        output = "".join(
            f"{entry if isinstance(entry, str) else answers[entry]}\n"
            for entry in entries
            if not (self.skip_bad and isinstance(entry, str))
        )
        counts = [chosen.count(k) for k in range(self.router.n_experts)]
        texts = () if self.lines.vectors else (query.content for query in queries)
        empty = sum(not text or text.isspace() for text in texts)
        return RoutedBlock(output.encode(), counts, bad, blank, empty, novel)


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

    ``lines`` is "json", "text", or "auto" to decide by the first line; ``query`` the field of the query in
    JSON objects, None for those that the router was fitted on, or usual ones. Answers repeat their query if
    ``echo``, and have each expert's share of the expected reward if ``probabilities``. There are as many
    answers as lines; the expert of a blank line is null. Blank lines and lines that cannot be read are left
    out if ``skip_bad``; ``on_bad`` is called with the number of a line that cannot be read, and the reason.
    """
    if router.text is None:
        raise UnsupportedError(
            "this router was fitted on columns of numbers, so it cannot read queries; give it a table of "
            "numbers, or fit one on queries.",
            parameter="router",
        )
    check_option("format", lines, FORMATS)
    names = router.expert_names
    routed = Routed(dict.fromkeys(names, 0))
    blocks = read_blocks(source, block_bytes)
    first = next(blocks, None)
    if first is None:
        return routed
    known = router.info.query
    recipe = None if known is None else Recipe.from_dict(known)
    routed.lines = find_format(first.lines, lines, query, router.text.kind == "vectors", recipe)
    line_router = LineRouter(router, routed.lines, echo, skip_bad, probabilities)
    for lines_read in itertools.chain([first], blocks):
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
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with gzip.open(file) if file.lower().endswith(".gz") else open(file, "rb") as stream:
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
        rows = next(self._batches, None)
        lines = () if rows is None else (json.dumps(row, default=str) for row in rows.to_pylist())
        return "".join(f"{line}\n" for line in lines).encode()


def _query_columns(router: Router, file: str, query: str | None, where: Where) -> pa.Table:
    """The columns of a table that make the queries, and its ids."""
    known = router.info.query
    recipe = Recipe(()) if known is None else Recipe.from_dict(known)
    by_vectors = router.text is not None and router.text.kind == "vectors"
    usual: tuple[str, ...] = VECTOR_NAMES if by_vectors else QUERY_NAMES
    own: tuple[str | None, ...] = (recipe.vectors,) if by_vectors else recipe.columns
    if query is not None and query != ",".join(recipe.columns):
        own, usual = (query,), ()
    with naming(file):
        table = read_table(file, {*TEXTS, *filter(None, own)} - {*(usual if by_vectors else ())})
        if where:
            table = table.filter(pa.array(matching_rows(table, where)))
        names = list(table.column_names)
        if not any(name in names for name in (*own, *usual)):
            wanted = " or ".join(repr(name) for name in own if name) or repr(usual[0])
            raise DataFileError(
                parameter="query",
                rule=f"must name the column of the query, because there is no {wanted}; found "
                f"{listed(names)}.",
            )
        wanted_names = {*own, *recipe.choices, *usual, "id"}
        table = table.select([name for name in names if name in wanted_names])
        for place, name in enumerate(table.column_names):
            # A CSV holds vectors as JSON.
            if by_vectors and name != "id" and is_string(table.schema.field(name).type):
                vectors = read_vectors(table, name)
                table = table.set_column(place, name, pa.array(vectors.tolist()))
    return table
