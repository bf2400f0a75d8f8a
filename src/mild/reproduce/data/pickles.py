"""Pickles of arrays, lists, numbers and text, read without running anything.

A pickle is a program: it may name any function and have it called. The official CIFAR files name
four things only: NumPy's ``_reconstruct``, ``ndarray`` and ``dtype``, and (when they were written
anew by Python 3) ``_codecs.encode``. Even these are not called: each is answered by a stand-in
defined here, which takes what such a file says of a uint8 array and nothing else. Any other name is
refused.

A few bytes can also describe lists that hold one another so often that writing them out, or hashing
them, takes for ever. So what is no text is told by its type alone, keys are text, and lists are flat.
"""

from __future__ import annotations

import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mild.exceptions import DataFileError
from mild.reproduce.data.images import Pixels

__all__ = ["read_pickle"]

PLAIN = (str, bytes, int, float)
# What each opcode does.
_USUAL: dict[int, Any] = dict(pickle._Unpickler.dispatch)


def read_pickle(path: Path) -> dict[str, Any]:
    """Dictionary in a pickle file; its keys as text, its arrays as read-only uint8 arrays.

    Raises
    ------
    DataFileError
        With a reason that continues the sentence "<file> ...".
    """
    try:
        with open(path, "rb") as stream:
            found = _Unpickler(stream, encoding="bytes").load()
    except DataFileError:
        raise
    except OSError as error:
        raise DataFileError(f"cannot be read ({error.strerror or error})") from error
    except (
        pickle.UnpicklingError,
        struct.error,
        ArithmeticError,
        AttributeError,
        EOFError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        size = path.stat().st_size
        raise DataFileError(
            f"is not a complete pickle, or it is damaged (it has {size:,} bytes: "
            f"{str(error) or 'it ends too early'})"
        ) from error
    if not isinstance(found, dict):
        raise DataFileError(f"must hold a dictionary; it holds {_kind(found)}")
    return {_text(key): _unwrapped(_text(key), value) for key, value in found.items()}


class _Unpickler(pickle._Unpickler):
    """Reads what the official files contain and refuses the rest.

    Built on the unpickler written in Python: the one in C fills as much memory as a damaged file asks
    for.
    """

    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise DataFileError(
                f"must be a pickle of uint8 arrays, lists, numbers and text alone; it asks for "
                f"{module}.{name}, so it was refused and nothing in it was run"
            )
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> Any:
        raise DataFileError(
            f"must be a pickle of uint8 arrays, lists, numbers and text alone; it asks for the "
            f"outside object {_told(pid)}, so it was refused and nothing in it was run"
        )

    def _set_item(self) -> None:
        _check_keys(self.stack[-2:-1])
        _USUAL[pickle.SETITEM[0]](self)

    def _set_items(self) -> None:
        # What came since the last mark: key, value, key, value ...
        _check_keys(self.stack[::2])
        _USUAL[pickle.SETITEMS[0]](self)

    def _dict(self) -> None:
        _check_keys(self.stack[::2])
        _USUAL[pickle.DICT[0]](self)

    def _refuse_set(self) -> None:
        raise DataFileError(
            "must be a pickle of uint8 arrays, lists, numbers and text alone; it holds a set"
        )

    dispatch: ClassVar[dict[int, Any]] = {
        **_USUAL,
        pickle.SETITEM[0]: _set_item,
        pickle.SETITEMS[0]: _set_items,
        pickle.DICT[0]: _dict,
        pickle.EMPTY_SET[0]: _refuse_set,
        pickle.FROZENSET[0]: _refuse_set,
    }


def _check_keys(keys: list[Any]) -> None:
    """Refuse keys that are no text before they are hashed."""
    for key in keys:
        if not isinstance(key, (str, bytes)):
            raise DataFileError(f"must hold a dictionary with text for keys; a key is {_kind(key)}")


class _Array:
    """Stand-in for an array: empty until its state is set."""

    __slots__ = ("pixels",)
    pixels: Pixels | None

    def __init__(self) -> None:
        self.pixels = None

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, columns_first, raw = state
        if not (
            isinstance(shape, tuple)
            and all(type(size) is int and size >= 0 for size in shape)
            and isinstance(dtype, _Byte)
            and isinstance(raw, bytes)
        ):
            raise ValueError("the state of an array is not that of a uint8 array")
        # A wrong size is refused by reshape: the file's bytes are all there is.
        self.pixels = np.frombuffer(raw, np.uint8).reshape(
            shape, order="F" if columns_first else "C"
        )


class _Byte:
    """Stand-in for the type uint8; its state says nothing more."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment mean nothing for single bytes."""


class _Reconstruct:
    """Stand-in for numpy.core.multiarray._reconstruct."""

    __slots__ = ()

    def __call__(self, kind: Any, shape: Any, code: Any) -> _Array:
        if kind is not _NDARRAY:
            raise ValueError("an array must be a plain array")
        return _Array()


class _Dtype:
    """Stand-in for numpy.dtype."""

    __slots__ = ()

    def __call__(self, code: Any, align: Any = False, copy: Any = False) -> _Byte:
        if not isinstance(code, (str, bytes)) or _text(code) not in ("u1", "|u1"):
            raise DataFileError(f"must hold arrays of type uint8 (u1); it holds {_told(code)}")
        return _Byte()


class _Encode:
    """Stand-in for _codecs.encode, by which Python 3 writes bytes into old pickles."""

    __slots__ = ()

    def __call__(self, text: Any, codec: Any = "utf-8") -> bytes:
        if not isinstance(codec, str) or codec != "latin1" or not isinstance(text, str):
            raise DataFileError(
                f"must be a pickle of uint8 arrays, lists, numbers and text alone; it asks for the "
                f"codec {_told(codec)}, so it was refused and nothing in it was run"
            )
        return text.encode("latin1")


class _Ndarray:
    """Stand-in for numpy.ndarray, which is only named and never called."""

    __slots__ = ()


_NDARRAY = _Ndarray()
# Instances without attributes: a pickle can neither make more of them nor change them.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype(),
    ("_codecs", "encode"): _Encode(),
}


def _unwrapped(key: str, value: Any) -> Any:
    """A number, a text, a flat list of these, or an array."""
    if isinstance(value, _Array):
        if value.pixels is None:
            raise DataFileError("holds an array without content")
        return value.pixels
    for part in value if isinstance(value, list) else (value,):
        if not isinstance(part, PLAIN):
            within = "a list with " if isinstance(value, list) else ""
            raise DataFileError(
                f"must hold arrays, numbers, text and flat lists of these; {key[:40]!r} is "
                f"{within}{_kind(part)}"
            )
    return value


def _text(value: str | bytes) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else value


def _told(value: Any) -> str:
    """A text as it is, anything else by its type: a small file may stand for an endless text."""
    return repr(value[:40]) if isinstance(value, (str, bytes)) else _kind(value)


def _kind(value: Any) -> str:
    kind = "array" if isinstance(value, _Array) else type(value).__name__
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
