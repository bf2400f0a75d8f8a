"""A trained expert on disk: its answers, named by all that they depend on.

One safetensors file per expert, whose header holds JSON: the key, facts about the expert and a digest
of everything, so that damage shows. A file that cannot be trusted is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors

from mild.exceptions import ArtifactError, MildWarning
from mild.reproduce.files import claimed, replace_bytes
from mild.reproduce.keys import canonical_json

__all__ = ["SCHEMA", "ExpertCache", "StoredExpert"]

#: Version of the files; a part of the key of what lies in them.
SCHEMA = 1
HEADER = "mild_expert"

# safetensors has no types for these.
_pack: Callable[[dict[str, Any], dict[str, str]], bytes] = to_safetensors
_open: Any = safe_open


@dataclass(frozen=True, eq=False)
class StoredExpert:
    """Answers of one expert on training and test images, and JSON-ready facts about it."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    facts: Mapping[str, Any]


class ExpertCache:
    """A folder of trained experts.

    Parameters
    ----------
    folder : made if it is missing
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise ArtifactError(
                f"cannot keep trained experts in {self.folder}: it is not a writable folder."
            )

    def path(self, key: str) -> Path:
        """File of the expert with this key."""
        return self.folder / f"expert-{key[:16]}.safetensors"

    def checkpoint(self, key: str) -> Path:
        """File of the training that is to give the expert with this key."""
        return self.folder / f"expert-{key[:16]}.checkpoint"

    @contextmanager
    def claim(self, key: str, waiting: Callable[[], Any]) -> Iterator[None]:
        """Hold the expert with this key: nobody else reads, trains or writes it under a claim.

        A process that ends, however it does, has let go of it.

        Parameters
        ----------
        key : as for ``read``
        waiting : called once if another process holds it, before we wait for that
        """
        place = self.folder / f".expert-{key[:16]}.lock"
        with ExitStack() as stack:
            try:
                stack.enter_context(claimed(place, True, waiting))
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def read(self, key: str, n_train: int, n_test: int, n_classes: int) -> StoredExpert | None:
        """Return the expert with this key, or None, with a warning if its file is not to be trusted.

        Parameters
        ----------
        key : content key of all that the answers depend on, this SCHEMA included
        n_train, n_test : how many answers there must be
        n_classes : answers must lie below
        """
        path = self.path(key)
        try:
            expert = _read(path, key)
            _check_answers("train", expert.train, n_train, n_classes)
            _check_answers("test", expert.test, n_test, n_classes)
        except FileNotFoundError:
            return None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{path} is damaged or no file of this expert ({error}); the expert is trained "
                f"again and the file replaced.",
                MildWarning,
                stacklevel=2,
            )
            return None
        return expert

    def write(self, key: str, expert: StoredExpert) -> None:
        """Put an expert in its place: a reader, or a kill, finds the old file or the new one.

        The checkpoint of its training goes then.
        """
        # Classes are few: small integers make small files.
        tensors = {
            "train": np.ascontiguousarray(expert.train, dtype=np.int32),
            "test": np.ascontiguousarray(expert.test, dtype=np.int32),
        }
        header = {"schema": SCHEMA, "key": key, "facts": dict(expert.facts)}
        sealed = {**header, "digest": _digest(header, tensors)}
        content = _pack(tensors, {HEADER: json.dumps(sealed)})
        try:
            replace_bytes(self.path(key), content)
        except OSError as error:
            raise self._unwritable(error) from error
        with suppress(OSError):
            self.checkpoint(key).unlink()

    def _unwritable(self, error: OSError) -> ArtifactError:
        return ArtifactError(
            f"cannot keep trained experts in {self.folder}: {error.strerror or error}."
        )


def _read(path: Path, key: str) -> StoredExpert:
    # A missing file is an OSError of the system's, whatever safetensors makes of it.
    path.stat()
    with _open(path, framework="np") as file:
        header = json.loads((file.metadata() or {})[HEADER])
        tensors = {name: file.get_tensor(name) for name in ("train", "test")}
    if not isinstance(header, dict):
        raise ValueError("its header is no description")
    digest = header.pop("digest")
    if header["schema"] != SCHEMA:
        raise ValueError(f"schema {header['schema']!r}, not {SCHEMA}")
    if header["key"] != key:
        raise ValueError("it belongs to another expert")
    if digest != _digest(header, tensors):
        raise ValueError("its digest does not match")
    train, test = (tensors[name].astype(np.int64) for name in ("train", "test"))
    return StoredExpert(train, test, dict(header["facts"]))


def _check_answers(name: str, answers: NDArray[np.int64], count: int, n_classes: int) -> None:
    if answers.shape != (count,):
        raise ValueError(f"{name} has shape {answers.shape}, not ({count},)")
    if answers.size and not (answers.min() >= 0 and answers.max() < n_classes):
        raise ValueError(f"{name} has answers outside [0, {n_classes})")


def _digest(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(canonical_json(header).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        digest.update(f";{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
