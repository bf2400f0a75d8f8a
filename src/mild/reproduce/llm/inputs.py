"""What a router sees of a query: text features that are learned from the training queries, or vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mild.arrays import FloatArray, IntArray
from mild.exceptions import DataFileError, InvalidInputError, check_option

if TYPE_CHECKING:
    from mild.text import TextFeatures

__all__ = ["KINDS", "Inputs", "make_inputs", "read_vectors"]

#: Ways to see a query; the last one is trained with the router.
KINDS = ("hashing", "static", "encoder", "vectors", "transformer")

DIGESTS = ("sha256", "table_sha256", "tokenizer_sha256", "max_length")


class Inputs(Protocol):
    """Rows as features, learned from the training rows alone."""

    identity: dict[str, Any]

    def features(self, train: IntArray, test: IntArray) -> tuple[FloatArray, FloatArray]:
        """Features (n, d) of training and test rows."""


class TextInputs:
    """Queries through a step of ``mild.text``."""

    def __init__(self, queries: Sequence[str], kind: str, model: str | None) -> None:
        self.queries = queries
        self._kind = kind
        self._options = {"source": model} if model else {}
        self.identity: dict[str, Any] = {"kind": kind}
        step = self._make()
        source = getattr(step, "source", None)
        if source is not None:
            folder = Path(str(source)).expanduser()
            self.identity["model"] = folder.name if folder.is_dir() else str(source)
            # What names the files beyond doubt.
            state = step.fit(queries[:1]).state()[0]
            self.identity |= {name: state[name] for name in DIGESTS if name in state}

    def _make(self) -> TextFeatures:
        from mild.text import make_features

        return make_features(self._kind, **self._options)

    def features(self, train: IntArray, test: IntArray) -> tuple[FloatArray, FloatArray]:
        known = [self.queries[i] for i in train]
        step = self._make().fit(known)
        return step.transform(known), step.transform([self.queries[i] for i in test])


class VectorInputs:
    """Vectors that are there already, centred and divided by one number, as embeddings are."""

    def __init__(self, vectors: FloatArray, name: str) -> None:
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        digest = hashlib.sha256(self.vectors.astype("<f4").tobytes()).hexdigest()
        self.identity: dict[str, Any] = {"kind": "vectors", "model": name, "sha256": digest}

    def features(self, train: IntArray, test: IntArray) -> tuple[FloatArray, FloatArray]:
        from mild.text.embedding import flat_scale

        centre, scale = flat_scale(self.vectors[train])
        first, second = (
            ((self.vectors[rows] - centre) / scale).astype(np.float32) for rows in (train, test)
        )
        return first, second


def make_inputs(
    kind: str,
    queries: Sequence[str],
    vectors: FloatArray | None = None,
    model: str | None = None,
) -> Inputs:
    """Inputs for a linear router.

    Parameters
    ----------
    kind : "hashing", "static", "encoder" or "vectors"
    queries : (n,) texts
    vectors : (n, d), for "vectors"
    model : folder or name of static embeddings or of an encoder; a name for vectors
    """
    check_option("features", kind, KINDS[:-1])
    if kind == "vectors":
        if vectors is None:
            raise InvalidInputError(
                "features 'vectors' need vectors: a column of the table, such as embedding, or a "
                ".npy file. Pass --vectors."
            )
        return VectorInputs(vectors, model or "given")
    if kind == "hashing" and model is not None:
        raise InvalidInputError(f"model must be left out for hashing features; got {model!r}.")
    return TextInputs(queries, kind, model)


def read_vectors(path: Path, n_rows: int) -> FloatArray:
    """Vectors (n_rows, d) from a .npy file, one row per row of the table."""
    try:
        # Pickles are refused: a file of vectors needs none.
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataFileError(f"{path} must be a .npy file of vectors; {error}.") from error
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype.kind != "f":
        raise DataFileError(
            f"{path} must hold vectors (n_rows, width) of floating-point numbers; got "
            f"{getattr(found, 'dtype', type(found).__name__)} of shape {getattr(found, 'shape', '?')}."
        )
    if len(found) != n_rows:
        raise DataFileError(
            f"{path} must hold one vector per row of the table, {n_rows:,}; got {len(found):,}."
        )
    if not np.isfinite(found).all():
        raise DataFileError(f"{path} must hold finite numbers; some are not.")
    return found
