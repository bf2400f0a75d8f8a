"""Hashed n-grams and a sentence encoder's vector side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.features.base import Rows, Settings, Tensors, TextFeatures
from mild.features.encoder import EncoderFeatures
from mild.features.hashing import HashingFeatures


@dataclass(eq=False, repr=False)
class CombinedFeatures(TextFeatures):
    """Both kinds of features of a text, those of ``hashing`` first, each with its own scale.

    Hashed n-grams know the words and the form of the training texts, an encoder knows which texts mean the
    same. The encoder's files must be there when a saved router is served.

    Parameters
    ----------
    hashing : HashingFeatures, default=HashingFeatures()
        Features of hashed n-grams.
    encoder : EncoderFeatures, default=EncoderFeatures()
        Features of a sentence encoder.

    Examples
    --------
    >>> features = CombinedFeatures(HashingFeatures(n_components=32))
    >>> features.set_params(encoder__max_length=64).get_params()["encoder__max_length"]
    64
    """

    kind = "hashing+encoder"

    hashing: HashingFeatures = field(default_factory=HashingFeatures)
    encoder: EncoderFeatures = field(default_factory=EncoderFeatures)

    @property
    def parts(self) -> tuple[TextFeatures, ...]:
        return self.hashing, self.encoder

    @property
    def n_features_(self) -> int:
        return sum(part.n_features_ for part in self.parts)

    def check_parameters(self) -> None:
        for part in self.parts:
            part.check_parameters()

    def _learn(self, texts: Sequence[str]) -> None:
        for part in self.parts:
            part.fit(texts)

    def _rows(self, texts: Sequence[str]) -> Rows:
        return np.hstack([part.vectorize(texts) for part in self.parts])

    def _column_names(self) -> list[str]:
        return [name for part in self.parts for name in part.get_feature_names_out()]

    def unseen_shares(self, texts: Sequence[str]) -> NDArray[np.float64]:
        return self.hashing.unseen_shares(texts)

    def held_out_shares(self, seen: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        return self.hashing.held_out_shares(seen, texts)

    def without_other_texts(self, texts: Sequence[str], X: Rows, train: NDArray[np.intp]) -> Rows:
        width = self.hashing.n_features_
        hashed = self.hashing.without_other_texts(texts, X[:, :width], train)
        return np.hstack([hashed, X[:, width:]])

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        settings: Settings = {}
        tensors: Tensors = {}
        for part in self.parts:
            settings[part.kind], part_tensors = part.state()
            for name, tensor in part_tensors.items():
                tensors[f"{part.kind}.{name}"] = tensor
        return settings, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        def part(kind: type[TextFeatures]) -> Any:
            prefix = f"{kind.kind}."
            part_tensors = {}
            for name, tensor in tensors.items():
                if name.startswith(prefix):
                    part_tensors[name.removeprefix(prefix)] = tensor
            return kind.from_state(settings[kind.kind], part_tensors)

        return cls(part(HashingFeatures), part(EncoderFeatures))
