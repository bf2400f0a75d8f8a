"""A stream of bytes as blocks of whole lines, and lines as queries: plain text, or JSON."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mild.data.recipe import Recipe, RecipeError, type_name
from mild.errors import DataFileError, OptionError, check_option

__all__ = [
    "BLOCK_BYTES",
    "FIELDS",
    "FORMATS",
    "BadLineError",
    "Block",
    "LineFormat",
    "Query",
    "find_format",
    "read_blocks",
]

#: Bytes after which a block is full.
BLOCK_BYTES = 256 << 10
# A longer line is not kept.
LONGEST_LINE = 32 << 20
# Bytes of a read, and how many reads may wait.
PIECE, WAITING = 64 << 10, 16
#: Fields that may hold the query of a JSON object; the first that is present counts.
FIELDS = ("prompt", "question", "query", "text", "instruction", "input")
VECTOR_FIELDS = ("embedding", "embeddings", "vector", "vectors")
FORMATS = ("auto", "json", "text")
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole lines, without their line breaks.

    Attributes
    ----------
    lines : bytes of each; None for one that was too long to keep
    first : number of the first line, from 1
    full : whether there was enough to fill it
    """

    lines: list[bytes | None]
    first: int
    full: bool


def read_blocks(stream: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of the lines of a binary stream, in order.

    A block holds what has arrived, up to ``block_bytes`` and a line; only its first line is waited for. So
    memory is bounded, and a caller that sends one line at a time gets one answer at a time.

    Examples
    --------
    >>> import io
    >>> [block.lines for block in read_blocks(io.BytesIO(b"one\\ntwo"), 1)]
    [[b'one'], [b'two']]
    """
    pieces: queue.Queue[bytes | Exception] = queue.Queue(WAITING)
    # A daemon: at a terminal the read may last for ever.
    threading.Thread(target=_read_ahead, args=(stream, pieces), daemon=True).start()
    rest = bytearray()
    number = 1
    ended = False
    while not ended:
        lines: list[bytes | None] = []
        taken = 0
        while taken < block_bytes and not ended:
            try:
                piece = pieces.get(block=not lines)
            except queue.Empty:
                break
            if isinstance(piece, Exception):
                reason = getattr(piece, "strerror", None) or piece
                raise DataFileError(f"cannot read the queries: {reason}.") from piece
            taken += len(piece)
            ended = not piece
            first, *others = piece.split(b"\n")
            if len(rest) <= LONGEST_LINE:
                rest += first
            if others or (ended and rest):
                lines.append(bytes(rest) if len(rest) <= LONGEST_LINE else None)
                lines += others[:-1]
                rest = bytearray(others[-1] if others else b"")
        if lines:
            yield Block(lines, number, taken >= block_bytes)
            number += len(lines)


def _read_ahead(stream: Any, pieces: queue.Queue[bytes | Exception]) -> None:
    read = getattr(stream, "read1", stream.read)
    piece: bytes | Exception = b" "
    while piece and not isinstance(piece, Exception):
        try:
            piece = read(PIECE)
        except (OSError, ValueError) as error:
            piece = error
        pieces.put(piece)


class BadLineError(ValueError):
    """A line without a query; the message gives the reason."""


@dataclass(frozen=True)
class Query:
    """A text or a vector, and the id of its line, if any."""

    content: Any
    key: Any = None


@dataclass(frozen=True)
class LineFormat:
    """How lines are read.

    Attributes
    ----------
    kind : "json" or "text"
    field : field of the query; None for the first of FIELDS that is present
    vectors : whether queries are lists of numbers
    recipe : how the query is made of fields; None for a router that was saved without it

    Examples
    --------
    >>> LineFormat("json").read(b'{"id": 7, "query": "Who?"}')
    Query(content='Who?', key=7)
    """

    kind: str
    field: str | None = None
    vectors: bool = False
    recipe: Recipe | None = None

    def read(self, line: bytes | None) -> Query | None:
        """The query of a line; None for an empty line; BadLineError for one that cannot be read."""
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
            return VECTOR_FIELDS if own is None else (own, *VECTOR_FIELDS)
        parts = self.recipe.columns if self.recipe else ()
        # A part of the query is not the whole of it.
        return (*parts[:1], *(name for name in FIELDS if name not in parts))

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
    """The format of a stream by its first line that is not empty, unless ``kind`` gives it.

    Examples
    --------
    >>> find_format([b'{"query": "Who?"}']).kind, find_format([b"Who?"]).kind
    ('json', 'text')
    """
    check_option("format", kind, FORMATS)
    if vectors and kind == "text":
        raise OptionError(
            "format must be 'json' for a router that takes vectors: one list of numbers per line.",
            parameter="format",
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
