"""A stream of bytes as blocks of whole lines: large ones where much is waiting, at once where little is."""

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
#: Read at once, and so many pieces wait at most.
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


class _Pieces:
    """Reads ahead in a thread, so that whoever waits for a line gets what is there."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._queue: queue.Queue[bytes | OSError] = queue.Queue(WAITING)
        # A daemon: at a terminal the read may last for ever.
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        read = getattr(self._stream, "read1", self._stream.read)
        while True:
            try:
                piece: bytes | OSError = read(PIECE)
            except (OSError, ValueError) as error:
                piece = error if isinstance(error, OSError) else OSError(str(error))
            self._queue.put(piece)
            if not piece or isinstance(piece, OSError):
                return

    def take(self, wait: bool) -> bytes | None:
        """The next piece, empty at the end; None if there is none and it need not be waited for."""
        try:
            piece = self._queue.get(block=wait)
        except queue.Empty:
            return None
        if isinstance(piece, OSError):
            raise DataFileError(f"cannot read the queries: {piece.strerror or piece}.") from piece
        return piece


class _Cutter:
    """Cuts pieces into lines; keeps what the last line break leaves."""

    def __init__(self) -> None:
        self._parts: list[bytes] | None = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes | None]:
        first, *others = piece.split(b"\n")
        if not others:
            self._keep(first)
            return []
        *whole, rest = others
        lines = [self._close(first), *whole]
        self._keep(rest)
        return lines

    def finish(self) -> list[bytes | None]:
        return [self._close(b"")] if self._size else []

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > LONGEST_LINE:
            self._parts = None
        elif self._parts is not None:
            self._parts.append(part)

    def _close(self, part: bytes) -> bytes | None:
        self._keep(part)
        line = None if self._parts is None else b"".join(self._parts)
        self._parts, self._size = [], 0
        return line


def read_blocks(stream: Any, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    """Blocks of the lines of a binary stream, in order.

    A block holds what has arrived, up to ``block_bytes`` and a line; only for its first line is
    waited. So memory is bounded, and whoever asks line by line is answered line by line.

    Examples
    --------
    >>> import io
    >>> [block.lines for block in read_blocks(io.BytesIO(b"one\\ntwo"), 1)]
    [[b'one'], [b'two']]
    """
    pieces, cutter = _Pieces(stream), _Cutter()
    number = 1
    ended = False
    while not ended:
        lines: list[bytes | None] = []
        taken = 0
        while taken < block_bytes and not ended:
            piece = pieces.take(wait=not lines)
            if piece is None:
                break
            taken += len(piece)
            ended = not piece
            lines += cutter.finish() if ended else cutter.feed(piece)
        if lines:
            yield Block(lines, number, taken >= block_bytes)
            number += len(lines)
