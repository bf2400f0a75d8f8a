"""Static embeddings: every token has a vector; a text has the mean of its tokens' vectors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as unpack

from mild.core.long_texts import FIRST, LAST, shorten
from mild.errors import DataFileError, MissingExtraError, RouterFileError, count_noun, install_hint
from mild.features.base import EmbeddingFeatures, Rows, Settings, Tensors
from mild.features.pretrained import (
    file_digest,
    model_folder,
    open_tokenizer,
    package_folder,
    read_json,
)

# Number of texts whose tokens are held at a time.
BATCH = 512
# Settings of a saved router that say which files it needs.
REFERENCE = ("name", "path", "normalize", "table_sha256", "tokenizer_sha256")

WORDLLAMA = "wordllama"
# Table and tokenizer, in the order in which they are looked for.
LAYOUTS = (
    ("weights/l2_supercat_256.safetensors", "tokenizers/l2_supercat_tokenizer_config.json"),
    ("model.safetensors", "tokenizer.json"),
    ("0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"),
)
TABLE_NAMES = ("embeddings", "embedding.weight")


@dataclass(eq=False, repr=False)
class StaticFeatures(EmbeddingFeatures):
    """Mean of token embeddings. Serving needs NumPy and the ``tokenizers`` library, no torch.

    A saved router holds the folder and the SHA-256 of the table. Loading looks in that folder, in
    ``$MILD_MODELS`` and, for wordllama, in the installed package, and checks the digest. With ``embed``
    the table (as float16) and the tokenizer are copied into the artefact, which then needs neither.

    Parameters
    ----------
    source : str or path, default="wordllama"
        "wordllama" (the extra ``static``), or a folder with model.safetensors and tokenizer.json, as
        model2vec and sentence-transformers write them.
    embed : bool, default=False
        Whether a saved router contains the table.

    Examples
    --------
    >>> StaticFeatures("models/potion-base-8M", embed=True)
    StaticFeatures(source='models/potion-base-8M', embed=True)
    """

    kind = "static"

    source: str | os.PathLike[str] = WORDLLAMA
    _: KW_ONLY
    embed: bool = False
    _reference: Settings = field(default_factory=dict, init=False)
    _table: NDArray[np.float32] | None = field(default=None, init=False)
    _tokenizer_json: bytes = field(default=b"", init=False)
    _tokenizer: Any = field(default=None, init=False)

    def _forget(self) -> None:
        self._table = None
        self._tokenizer = None

    @property
    def outside_model(self) -> str | None:
        if self.embed:
            return None
        return str(self._reference["name"])

    def state(self) -> tuple[Settings, Tensors]:
        tensors = self._scale_tensors()
        if self.embed and self._table is not None:
            tensors["table"] = self._table.astype(np.float16)
            tensors["tokenizer"] = np.frombuffer(self._tokenizer_json, np.uint8)
        return {**self._reference, "embedded": self.embed}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(settings["name"], embed=settings["embedded"])
        features._reference = {key: settings[key] for key in REFERENCE}
        if features.embed:
            features._table = tensors["table"].astype(np.float32)
            features._tokenizer_json = tensors["tokenizer"].tobytes()
        else:
            features._read_files(settings)
        features.take_scale(tensors["centre"], tensors["scale"])
        return features

    def _read_files(self, expected: Mapping[str, Any] | None) -> NDArray[np.float32]:
        """Read the files and return the table; those of a saved router must be as they were in its fit."""
        source = str(self.source)
        hint = None
        if expected is not None:
            hint = expected["path"]
        folder, table_file, tokenizer_file = find_static(source, hint)
        digests = {
            "table_sha256": file_digest(table_file),
            "tokenizer_sha256": file_digest(tokenizer_file),
        }
        if expected is None:
            self._reference = _reference_of(source, folder, digests)
        elif any(expected[key] != digest for key, digest in digests.items()):
            raise RouterFileError(
                f"the static embeddings {source!r} in {folder} are not those that the "
                f"router was fitted with; install the same version, or save with embed=True."
            )
        table = read_table(table_file)
        if self.embed:
            # As they will be stored, so that a router decides alike before and after it is saved.
            table = table.astype(np.float16).astype(np.float32)
        self._tokenizer_json = tokenizer_file.read_bytes()
        self._table = table
        return table

    def _embed(self, texts: Sequence[str]) -> Rows:
        table = self._table
        if table is None:
            table = self._read_files(None)
        if self._tokenizer is None:
            tokenizer, self._unknown = read_tokenizer(self._tokenizer_json, len(table))
            # Set last: another thread that finds a tokenizer also reads the unknown token.
            self._tokenizer = tokenizer
        rows = np.zeros((len(texts), table.shape[1]), np.float32)
        for start in range(0, len(texts), BATCH):
            batch = []
            for text in texts[start : start + BATCH]:
                # Lone surrogates become question marks.
                batch.append(shorten(text, FIRST, LAST).encode("utf-8", "replace").decode())
            encoded = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            for i, tokens in enumerate(encoded, start):
                ids = np.array(tokens.ids, np.intp)
                if self._unknown is not None:
                    ids = ids[ids != self._unknown]
                if ids.size:
                    # The mean as a product, which takes no copy of the rows in double precision.
                    weights = np.full(ids.size, 1 / ids.size, np.float32)
                    np.dot(weights, table.take(ids, axis=0), out=rows[i])
        if self._reference["normalize"]:
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            rows /= np.maximum(norms, np.float32(1e-12))
        return rows


def _reference_of(source: str, folder: Path, digests: Mapping[str, str]) -> Settings:
    """The settings REFERENCE of files that features are fitted with."""
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise DataFileError(f"{folder / 'config.json'} must be a JSON object.")
    reference: Settings = {
        "name": source,
        "path": None,
        "normalize": config.get("normalize") is True,
        **digests,
    }
    if source != WORDLLAMA:
        reference["name"] = Path(source).name
        reference["path"] = str(folder.resolve())
    return reference


def find_static(name: str, hint: str | None = None) -> tuple[Path, Path, Path]:
    """Folder, table and tokenizer of "wordllama", or of a model of model2vec or sentence-transformers."""
    for table, tokenizer in LAYOUTS:
        folder = model_folder(name, hint, table)
        if folder is None and name == WORDLLAMA:
            folder = package_folder(WORDLLAMA)
        if folder is not None and (folder / table).is_file() and (folder / tokenizer).is_file():
            return folder, folder / table, folder / tokenizer
    if name == WORDLLAMA:
        raise MissingExtraError(
            "static features use the embeddings of the package wordllama, which is not installed; "
            f"{install_hint('static')}, or name a folder with model.safetensors and tokenizer.json."
        )
    raise DataFileError(
        "static features need a folder with model.safetensors and tokenizer.json; found none at "
        f"{hint or name!r}."
    )


def read_table(path: Path) -> NDArray[np.float32]:
    """Embeddings (n_tokens, width); the weights and the mapping of model2vec are applied."""
    try:
        tensors = unpack(path.read_bytes())
    except (SafetensorError, OSError, KeyError) as error:
        raise DataFileError(f"{path} must be a safetensors file of numbers ({error}).") from error
    table = _embedding_matrix(tensors)
    if table is None:
        raise DataFileError(
            f"{path} must hold a matrix of numbers named {' or '.join(TABLE_NAMES)}; got "
            f"{', '.join(sorted(tensors)) or 'nothing'}."
        )
    mapping = tensors.get("mapping")
    if mapping is not None:
        if mapping.dtype.kind not in "iu" or mapping.min() < 0 or mapping.max() >= len(table):
            raise DataFileError(f"{path}: mapping must hold rows of the table.")
        table = table[mapping]
    embeddings = table.astype(np.float32)
    weights = tensors.get("weights")
    if weights is not None:
        if weights.shape != (len(embeddings),):
            raise DataFileError(f"{path}: weights must have one number per token.")
        embeddings *= weights[:, None]
    if not np.isfinite(embeddings).all():
        raise DataFileError(f"{path} must hold finite embeddings.")
    return embeddings


def _embedding_matrix(tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """The tensor with the first of TABLE_NAMES, if it is a matrix of numbers."""
    for name in TABLE_NAMES:
        if name in tensors:
            table = tensors[name]
            if table.ndim == 2 and table.dtype.kind in "fi" and 0 not in table.shape:
                return table
            return None
    return None


def read_tokenizer(content: bytes, n_tokens: int) -> tuple[Any, int | None]:
    """Tokenizer with at most ``n_tokens``, from its JSON, and the number of its unknown token, if any."""
    tokenizer = open_tokenizer(content, "static features", "static")
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= n_tokens:
        n_allowed = count_noun(n_tokens, "token")
        raise DataFileError(
            f"the tokenizer must have at most {n_allowed} of the table; got token {largest}."
        )
    unknown = json.loads(content).get("model", {}).get("unk_token")
    if not isinstance(unknown, str):
        return tokenizer, None
    return tokenizer, tokenizer.token_to_id(unknown)
