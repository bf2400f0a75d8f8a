"""A stream of bytes as blocks of whole lines: large where much is waiting, small where little is."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mild.errors import DataFileError

__all__ = ["BLOCK_BYTES", "LONGEST_LINE", "Block", "read_blocks"]

#: Bytes after which a block is full.
BLOCK_BYTES = 256 * 1024
#: A longer line is not kept.
LONGEST_LINE = 32 * 1024 * 1024
#: Bytes of a read, and how many reads may wait.
PIECE = 64 * 1024
WAITING = 16


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
    pieces: queue.Queue[bytes | OSError] = queue.Queue(WAITING)
    # A daemon: at a terminal the read may last for ever.
    threading.Thread(target=_read_ahead, args=(stream, pieces), daemon=True).start()
    splitter = _LineSplitter()
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
            if isinstance(piece, OSError):
                reason = piece.strerror or piece
                raise DataFileError(f"cannot read the queries: {reason}.") from piece
            taken += len(piece)
            ended = not piece
            lines += splitter.finish() if ended else splitter.feed(piece)
        if lines:
            yield Block(lines, number, taken >= block_bytes)
            number += len(lines)


def _read_ahead(stream: Any, pieces: queue.Queue[bytes | OSError]) -> None:
    read = getattr(stream, "read1", stream.read)
    piece: bytes | OSError = b" "
    while piece and not isinstance(piece, OSError):
        try:
            piece = read(PIECE)
        except (OSError, ValueError) as error:
            piece = error if isinstance(error, OSError) else OSError(str(error))
        pieces.put(piece)


class _LineSplitter:
    """Splits pieces into lines and keeps the rest after the last line break."""

    def __init__(self) -> None:
        self._parts: list[bytes] | None = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes | None]:
        first, *others = piece.split(b"\n")
        self._keep(first)
        if not others:
            return []
        *whole, rest = others
        lines = [self._line(), *whole]
        self._keep(rest)
        return lines

    def finish(self) -> list[bytes | None]:
        return [self._line()] if self._size else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > LONGEST_LINE:
            self._parts = None
        elif self._parts is not None:
            self._parts.append(part)

    def _line(self) -> bytes | None:
        line = None if self._parts is None else b"".join(self._parts)
        self._parts, self._size = [], 0
        return line
