"""IDX files, the format of MNIST: a magic number, the sizes, then bytes."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from mild.exceptions import DataFileError
from mild.reproduce.data.images import Pixels

__all__ = ["read_idx"]

UNSIGNED_BYTE = 8


def read_idx(path: Path, n_dimensions: int) -> Pixels:
    """Array of bytes in an IDX file, gzipped if its name ends in .gz.

    The file starts with two zero bytes, the type 8 (unsigned byte), the number of dimensions, and
    each size as four bytes, the highest first.

    Raises
    ------
    DataFileError
        With a reason that continues the sentence "<file> ...".
    """
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataFileError(
            f"is not a complete .gz file (it has {len(raw):,} bytes: {error})"
        ) from error
    except OSError as error:
        raise DataFileError(f"cannot be read ({error.strerror or error})") from error
    head = 4 + 4 * n_dimensions
    magic = bytes([0, 0, UNSIGNED_BYTE, n_dimensions])
    if len(content) < head or content[:4] != magic:
        raise DataFileError(
            f"must be an IDX file of {n_dimensions} dimension(s), starting with {magic.hex()}; it "
            f"starts with {content[:4].hex() or 'nothing'}"
        )
    sizes = [int(size) for size in np.frombuffer(content[4:head], ">u4")]
    if len(content) - head != math.prod(sizes):
        raise DataFileError(
            f"must have {' x '.join(map(str, sizes))} = {math.prod(sizes):,} bytes after its head; "
            f"it has {len(content) - head:,}"
        )
    # A copy that can be written to: what takes arrays over may warn of one that cannot.
    return np.frombuffer(content, np.uint8, offset=head).reshape(sizes).copy()
