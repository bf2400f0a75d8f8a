"""Base class of text features: texts in, float32 rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.errors import InvalidInputError

__all__ = [
    "Rows",
    "Settings",
    "Tensors",
    "TextFeatures",
    "check_text",
    "check_texts",
    "check_training_texts",
]

Rows: TypeAlias = NDArray[np.float32]
Settings: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]


class TextFeatures(ABC):
    """A transformation of texts to features, learned on the training texts.

    ``state()`` gives JSON-ready settings and arrays, from which ``from_state`` builds it again: a saved
    router needs no pickle.

    Attributes
    ----------
    kind : name in ``mild.features.FEATURES``
    FILES : files saved beside the router -> the setting that holds their SHA-256
    n_features : number of features; 0 before ``fit``
    """

    kind: ClassVar[str]
    FILES: ClassVar[Mapping[str, str]] = {}
    n_features: int = 0

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

    def fit_transform(self, texts: Iterable[str]) -> Rows:
        """Learn from the texts and return their features."""
        known = check_texts(texts)
        return self.fit(known).transform(known)

    def _check_fitted(self) -> None:
        if self.n_features == 0:
            raise InvalidInputError(
                f"{self.kind} features must be fitted before they are used; call fit(texts) first."
            )


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list of strings; refuse anything else.

    Examples
    --------
    >>> check_texts(("one", "two"))
    ['one', 'two']
    """
    if isinstance(texts, (str, bytes)):
        raise InvalidInputError(
            f"texts must be a list of strings; got one {type(texts).__name__}. Put it into a list.",
            parameter="texts",
        )
    try:
        known = list(texts)
    except TypeError as error:
        raise InvalidInputError(
            f"texts must be a list of strings; got {type(texts).__name__}.", parameter="texts"
        ) from error
    for i, text in enumerate(known):
        if not isinstance(text, str):
            raise InvalidInputError(
                f"texts must be strings; got {type(text).__name__} at place {i}.", parameter="texts"
            )
    return known


def check_training_texts(texts: Any) -> list[str]:
    """Return at least one text as a list of strings."""
    known = check_texts(texts)
    if not known:
        raise InvalidInputError(
            "texts must hold at least one text to learn from; got none.", parameter="texts"
        )
    return known


def check_text(text: Any) -> str:
    """Return one text; refuse what is not a string."""
    if not isinstance(text, str):
        raise InvalidInputError(
            f"text must be a string; got {type(text).__name__}.", parameter="text"
        )
    return text
