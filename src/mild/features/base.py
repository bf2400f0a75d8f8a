"""Base classes of text features: texts in, float32 rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import invalid
from mild.errors import InvalidInputError

Rows: TypeAlias = NDArray[np.float32]
Settings: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]

# Texts from which mean and scale of embeddings are learned: enough for three digits.
SCALE_TEXTS = 2_048


class TextFeatures(ABC):
    """A transformation of texts to features, learned on the training texts.

    ``state()`` gives JSON-ready settings and arrays, from which ``from_state`` builds it again: a saved
    router needs no pickle.
    """

    kind: ClassVar[str]  # name in mild.features.FEATURES
    FILES: ClassVar[
        Mapping[str, str]
    ] = {}  # file saved beside the router -> setting of its SHA-256
    n_features: int = 0  # 0 before fit

    @property
    def parts(self) -> tuple[TextFeatures, ...]:
        """Features that stand side by side: these alone, unless they are combined."""
        return (self,)

    @abstractmethod
    def fit(self, texts: Iterable[str]) -> Self:
        """Learn from the training texts."""

    @abstractmethod
    def transform(self, texts: Iterable[str]) -> Rows:
        """Features (n_texts, n_features), float32."""

    @abstractmethod
    def state(self) -> tuple[Settings, Tensors]:
        """JSON-ready settings and arrays."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Build from the result of ``state``. The caller has checked both."""

    def files(self) -> dict[str, bytes]:
        """Content of ``FILES``."""
        return {}

    def take_files(self, files: Mapping[str, bytes]) -> None:  # noqa: B027
        """Take the result of ``files``, after ``from_state``. The caller has checked the digests."""

    def transform_one(self, text: str) -> Rows:
        """Features (n_features,) of one text: the fast path."""
        return self.transform([text])[0]

    def unseen_shares(self, texts: Sequence[Any]) -> NDArray[np.float64]:
        """Share (n_texts,) of the terms of each text that are not known from training.

        0 for features that are not made of terms.
        """
        return np.zeros(len(texts))

    def held_out_shares(self, seen: Sequence[Any], texts: Sequence[Any]) -> NDArray[np.float64]:
        """``unseen_shares`` of texts by features that were fitted on the ``seen`` ones."""
        return np.zeros(len(texts))

    def fit_transform(self, texts: Iterable[str]) -> Rows:
        """Learn from the texts and return their features."""
        known = check_texts(texts)
        return self.fit(known).transform(known)

    def _check_fitted(self) -> None:
        if self.n_features == 0:
            raise InvalidInputError(
                f"{self.kind} features must be fitted before they are used; call fit(texts) first."
            )


class EmbeddingFeatures(TextFeatures):
    """Pretrained embeddings, centred, and divided by one number so that their mean variance is 1.

    One scale for all dimensions: some encoders have dimensions that are almost constant, and a scale of
    their own would turn them into noise.
    """

    def fit(self, texts: Iterable[str]) -> Self:
        known = check_training_texts(texts)
        rows = self._embed([known[row] for row in scale_rows(len(known)).tolist()])
        self.take_scale(*flat_scale(rows))
        return self

    def transform(self, texts: Iterable[str]) -> Rows:
        self._check_fitted()
        rows = self._embed(check_texts(texts))
        rows -= self._centre
        rows *= self._factor
        return rows

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Rows:
        """Embeddings (n_texts, width), a fresh float32 array."""

    def take_scale(self, centre: NDArray[Any], scale: NDArray[Any]) -> None:
        """Set the mean (width,) and the common scale (1,), in place of ``fit``."""
        self._centre = np.ascontiguousarray(centre, np.float32)
        self._scale = np.ascontiguousarray(scale, np.float32)
        self._factor = 1 / self._scale
        self.n_features = self._centre.size

    def _scale_tensors(self) -> Tensors:
        self._check_fitted()
        return {"centre": self._centre, "scale": self._scale}


def scale_rows(n_texts: int) -> NDArray[np.intp]:
    """Texts, out of ``n_texts``, from which the scale is learned: evenly spaced, ascending."""
    return np.arange(0, n_texts, max(1, -(-n_texts // SCALE_TEXTS)))


def flat_scale(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean of every column, and the square root of the mean variance, as an array of one number."""
    centre = rows.mean(axis=0, dtype=np.float64)
    common = np.sqrt(np.mean(rows.var(axis=0, dtype=np.float64)))
    return centre, np.array([common if common > 1e-6 else 1.0])


def is_table(values: Any) -> bool:
    """Whether the values are a frame, a mapping of columns, or an array that is not one-dimensional."""
    return isinstance(values, Mapping) or len(getattr(values, "shape", (0,))) != 1


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list of strings; refuse anything else."""
    if is_table(texts):
        # Iterating would give the names of its columns.
        raise invalid(
            "texts",
            f"must be a sequence of strings, such as a column; got a {type(texts).__name__}; pass "
            "its column, such as frame['query'].",
        )
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        kind = type(texts).__name__
        one = "one " if isinstance(texts, (str, bytes)) else ""
        raise invalid("texts", f"must be a list of strings; got {one}{kind}.")
    known = list(texts)
    for i, text in enumerate(known):
        if not isinstance(text, str):
            raise invalid("texts", f"must be strings; got {type(text).__name__} at place {i}.")
    return known


def check_training_texts(texts: Any) -> list[str]:
    """Return at least one text as a list of strings."""
    known = check_texts(texts)
    if not known:
        raise invalid("texts", "must hold at least one text to learn from; got none.")
    return known


def check_text(text: Any) -> str:
    """Return one text; refuse what is not a string."""
    if not isinstance(text, str):
        raise invalid("text", f"must be a string; got {type(text).__name__}.")
    return text
