"""Base classes of text features: texts in, float32 rows out."""

from __future__ import annotations

import inspect
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import invalid

Rows: TypeAlias = NDArray[np.float32]
Settings: TypeAlias = dict[str, Any]
Tensors: TypeAlias = dict[str, NDArray[Any]]

# Number of texts from which mean and scale of embeddings are learned: enough for three digits.
SCALE_TEXTS = 2_048


@dataclass(eq=False, repr=False)
class TextFeatures(ABC):
    """A scikit-learn transformer of texts to features, learned on the training texts.

    Texts are a list, a column of a frame (pandas, polars or pyarrow) or a one-dimensional array of strings.
    Parameters are checked in ``fit``. scikit-learn is imported only when one of its own methods is called:
    saved features need NumPy and safetensors.

    ``state()`` gives JSON-ready settings and arrays, from which ``from_state`` builds the features again: a
    saved router needs no pickle.

    Attributes
    ----------
    n_features_ : int
        Number of columns.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from mild import LinearRouter
    >>> from mild.features import HashingFeatures
    >>> texts, costs = ["2 + 2", "3 * 4", "Who wrote Faust?", "Who is Ada?"], [[0, 1]] * 2 + [[1, 0]] * 2
    >>> router = make_pipeline(HashingFeatures(n_components=2), LinearRouter()).fit(texts, costs)
    >>> router.predict(["5 + 7", "Who was Euler?"])
    array([0, 1])
    """

    kind: ClassVar[str]  # name in mild.features.FEATURES
    # Name of each file that is saved beside the router, and of the setting with its SHA-256.
    FILES: ClassVar[Mapping[str, str]] = {}
    # Read by scikit-learn's set_output.
    _sklearn_auto_wrap_output_keys: ClassVar[frozenset[str]] = frozenset({"transform"})

    @property
    def parts(self) -> tuple[TextFeatures, ...]:
        """The features that stand side by side: only these, unless they are combined."""
        return (self,)

    @property
    def outside_model(self) -> str | None:
        """Name of a model that a saved router needs and does not contain; None if there is none."""
        for part in self.parts:
            if part is not self and part.outside_model:
                return part.outside_model
        return None

    @property
    @abstractmethod
    def n_features_(self) -> int:
        """Number of columns; an AttributeError before ``fit``."""

    def fit(self, texts: Any, y: Any = None) -> Self:
        """Learn from the training texts; ``y`` is ignored."""
        self.check_parameters()
        checked = self._read(texts)
        if not len(checked):
            raise invalid("texts", "must hold at least one text to learn from; got none.")
        self._learn(checked)
        return self

    def transform(self, texts: Any) -> Any:
        """Features (n_texts, n_features_), float32, in the container that ``set_output`` asks for."""
        rows = self.vectorize(texts)
        if "sklearn" not in sys.modules and not hasattr(self, "_sklearn_output_config"):
            return rows
        from sklearn.utils._set_output import _wrap_data_with_container

        return _wrap_data_with_container("transform", rows, texts, self)

    def fit_transform(self, texts: Any, y: Any = None, **params: Any) -> Any:
        """Learn from the texts and return their features."""
        if isinstance(texts, Iterator):
            texts = list(texts)
        return self.fit(texts, y, **params).transform(texts)

    def vectorize(self, texts: Any) -> Rows:
        """What ``transform`` gives, always as an array."""
        self._check_fitted()
        return self._rows(self._read(texts))

    def transform_one(self, text: Any) -> Rows:
        """Features (n_features_,) of one text: the fast path."""
        return self.vectorize([text])[0]

    def without_other_texts(self, texts: Any, X: Rows, train: NDArray[np.intp]) -> Rows:
        """Features (n_texts, n_features_) of all texts by a fit on those at ``train`` only.

        ``X`` are the features by the fit on all texts. Embeddings hardly depend on the texts of a fit, and
        are returned as they are.
        """
        return X

    def check_parameters(self) -> None:  # noqa: B027
        """Refuse parameters that break their rules, as ``fit`` does."""

    def _read(self, texts: Any) -> Any:
        """The texts as a list, checked."""
        return check_texts(texts)

    @abstractmethod
    def _learn(self, texts: Any) -> None:
        """Learn from what ``_read`` gives, at least one text."""

    @abstractmethod
    def _rows(self, texts: Any) -> Rows:
        """Features of what ``_read`` gives."""

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

    def unseen_shares(self, texts: Sequence[Any]) -> NDArray[np.float64]:
        """Share (n_texts,) of the terms of each text that are not known from training.

        0 for features that are not made of terms.
        """
        return np.zeros(len(texts))

    def held_out_shares(self, seen: Sequence[Any], texts: Sequence[Any]) -> NDArray[np.float64]:
        """``unseen_shares`` of texts by features that were fitted on the ``seen`` ones."""
        return np.zeros(len(texts))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names (n_features_,) of the columns; ``input_features`` is ignored."""
        self._check_fitted()
        return np.array(self._column_names(), object)

    def _column_names(self) -> list[str]:
        return [f"{self.kind}{i}" for i in range(self.n_features_)]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep`` also those of combined features."""
        from sklearn.base import BaseEstimator

        return BaseEstimator.get_params(self, deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        from sklearn.base import BaseEstimator

        return BaseEstimator.set_params(self, **params)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what ``transform`` returns: "pandas", "polars", or "default" for an array."""
        from sklearn.utils._set_output import _SetOutputMixin

        return _SetOutputMixin.set_output(self, transform=transform)

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(inspect.signature(cls).parameters)

    def __repr__(self) -> str:
        changed = []
        for parameter in inspect.signature(type(self)).parameters.values():
            value = getattr(self, parameter.name)
            if value != parameter.default:
                changed.append(f"{parameter.name}={value!r:.80}")
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=False, string=True),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return bool(getattr(self, "n_features_", 0))

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            from sklearn.utils.validation import check_is_fitted

            check_is_fitted(self)  # raises NotFittedError, as routers do


class EmbeddingFeatures(TextFeatures):
    """Pretrained embeddings, centred, and divided by one number so that their mean variance is 1.

    One scale for all dimensions: some encoders have dimensions that are almost constant, and a scale of
    their own would turn them into noise.
    """

    @property
    def n_features_(self) -> int:
        return self._centre.size

    def _learn(self, texts: Sequence[str]) -> None:
        vars(self).pop("_centre", None)
        self._forget()
        sample = [texts[row] for row in scale_rows(len(texts)).tolist()]
        centre, scale = flat_scale(self._embed(sample))
        self.take_scale(centre, scale)

    def _rows(self, texts: Sequence[str]) -> Rows:
        rows = self._embed(texts)
        rows -= self._centre
        rows *= self._factor
        return rows

    @abstractmethod
    def _forget(self) -> None:
        """Close what an earlier fit opened: the parameters may have changed."""

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Rows:
        """Embeddings (n_texts, width), a fresh float32 array."""

    def take_scale(self, centre: NDArray[Any], scale: NDArray[Any]) -> None:
        """Set the mean (width,) and the common scale (1,), in place of ``fit``."""
        self._centre = np.ascontiguousarray(centre, np.float32)
        self._scale = np.ascontiguousarray(scale, np.float32)
        self._factor = 1 / self._scale

    def _scale_tensors(self) -> Tensors:
        self._check_fitted()
        return {"centre": self._centre, "scale": self._scale}


def scale_rows(n_texts: int) -> NDArray[np.intp]:
    """Indices of those of ``n_texts`` texts from which the scale is learned: evenly spaced, ascending."""
    step = max(1, math.ceil(n_texts / SCALE_TEXTS))
    return np.arange(0, n_texts, step)


def flat_scale(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean of every column, and the square root of the mean variance, as an array of one number."""
    centre = rows.mean(axis=0, dtype=np.float64)
    scale = np.sqrt(np.mean(rows.var(axis=0, dtype=np.float64)))
    if not scale > 1e-6:
        # All texts have the same vector.
        scale = 1.0
    return centre, np.array([scale])


def is_table(values: Any) -> bool:
    """Whether the values are a frame, a mapping of columns, or an array that is not one-dimensional."""
    return isinstance(values, Mapping) or len(getattr(values, "shape", (0,))) != 1


def column_values(values: Any) -> list[Any]:
    """A column as a list."""
    if hasattr(values, "to_pylist"):
        # The elements of a pyarrow column are not Python's texts and numbers.
        converted: list[Any] = values.to_pylist()
        return converted
    return list(values)


def check_texts(texts: Any) -> list[str]:
    """Return the texts as a list of strings; refuse anything else."""
    if is_table(texts):
        # Iterating would give the names of its columns.
        raise invalid(
            "texts",
            f"must be a sequence of strings, such as a column; got a {type(texts).__name__}; pass "
            "its column, such as frame['query'].",
        )
    if isinstance(texts, (str, bytes)):
        raise invalid("texts", f"must be a list of strings; got one {type(texts).__name__}.")
    if not isinstance(texts, Iterable):
        raise invalid("texts", f"must be a list of strings; got {type(texts).__name__}.")
    checked = column_values(texts)
    for place, text in enumerate(checked):
        if not isinstance(text, str):
            kind = type(text).__name__
            raise invalid("texts", f"must be strings; got {kind} at place {place}.")
    return checked


def check_text(text: Any) -> str:
    """Return one text; refuse what is not a string."""
    if not isinstance(text, str):
        raise invalid("text", f"must be a string; got {type(text).__name__}.")
    return text
