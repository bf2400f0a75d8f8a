"""Static embeddings: every token has a vector, a text the mean of its tokens' vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.errors import ArtifactError
from mild.features.base import Rows, Settings, Tensors
from mild.features.embedding import EmbeddingFeatures
from mild.features.hashing.buffer import shorten
from mild.features.static_model import WORDLLAMA, find_static, read_table, read_tokenizer

__all__ = ["StaticFeatures"]

# Characters that are kept of longer texts, as for hashing.
FIRST, LAST = 6144, 2048
# Texts whose tokens are held at a time.
BATCH = 512
REFERENCE = ("name", "path", "normalize", "table_sha256", "tokenizer_sha256")


class StaticFeatures(EmbeddingFeatures):
    """Mean of token embeddings. Serving needs NumPy and the ``tokenizers`` library, no torch.

    A saved router names the table by its SHA-256 and says where it was; loading looks there, in the folder
    ``$MILD_MODELS`` and, for wordllama, in the installed package, and checks the digest. With ``embed`` the
    table (as float16) and the tokenizer are copied into the artefact, which then needs neither.

    Parameters
    ----------
    source : "wordllama" (``pip install wordllama``), or a folder with model.safetensors and
        tokenizer.json, as model2vec and sentence-transformers write them
    embed : bool, whether a saved router carries the table
    """

    kind = "static"

    def __init__(self, source: str = WORDLLAMA, *, embed: bool = False) -> None:
        self.source = str(source)
        self.embed = embed
        self._reference: Settings = {}
        self._table: NDArray[np.float32] | None = None
        self._tokenizer_json = b""
        self._tokenizer: Any = None

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        settings = {**self._reference, "embedded": self.embed}
        tensors = self._scale_tensors()
        if self.embed and self._table is not None:
            tensors["table"] = self._table.astype(np.float16)
            tensors["tokenizer"] = np.frombuffer(self._tokenizer_json, np.uint8)
        return settings, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(settings["name"], embed=settings["embedded"])
        features._reference = {key: settings[key] for key in REFERENCE}
        if features.embed:
            features._table = tensors["table"].astype(np.float32)
            features._tokenizer_json = tensors["tokenizer"].tobytes()
        else:
            features._find(settings)
        features._take_scale(tensors)
        return features

    def _find(self, expected: Mapping[str, Any] | None) -> NDArray[np.float32]:
        """Read the files; with a reference to an earlier reading, only if they are the same."""
        files = find_static(self.source, None if expected is None else expected["path"])
        digests = files.digests()
        if expected is not None and any(expected[key] != digests[key] for key in digests):
            raise ArtifactError(
                f"the static embeddings {self.source!r} in {files.folder} are not those that the "
                f"router was fitted with; install the same version, or save with embed=True."
            )
        table = read_table(files.table)
        if self.embed:
            # As they will be stored, so that a router decides alike before and after it is saved.
            table = table.astype(np.float16).astype(np.float32)
        self._tokenizer_json = files.tokenizer.read_bytes()
        if expected is None:
            packaged = self.source == WORDLLAMA
            self._reference = {
                "name": self.source if packaged else Path(self.source).name,
                "path": None if packaged else str(files.folder.resolve()),
                "normalize": files.normalize,
                **digests,
            }
        self._table = table
        return table

    def _embed(self, texts: Sequence[str]) -> Rows:
        table = self._find(None) if self._table is None else self._table
        if self._tokenizer is None:
            self._tokenizer, self._unknown = read_tokenizer(self._tokenizer_json, len(table))
        rows = np.zeros((len(texts), table.shape[1]), np.float32)
        for start in range(0, len(texts), BATCH):
            batch = [
                shorten(text, FIRST, LAST).encode("utf-8", "replace").decode()
                for text in texts[start : start + BATCH]
            ]
            encoded = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for place, tokens in enumerate(encoded, start):
                self._pool(table, np.array(tokens.ids, np.intp), rows[place])
        if self._reference["normalize"]:
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows /= np.maximum(norms, np.float32(1e-12))
        return rows

    def _pool(self, table: NDArray[np.float32], tokens: NDArray[np.intp], row: Rows) -> None:
        """Mean of the rows of the known tokens; zero where there is none."""
        if self._unknown is not None:
            tokens = tokens[tokens != self._unknown]
        if tokens.size:
            weights = np.full(tokens.size, 1 / tokens.size, np.float32)
            np.dot(weights, table.take(tokens, axis=0), out=row)
