"""A table of token embeddings on disk: wordllama's, or a folder of model2vec or sentence-transformers."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as unpack

from mild.errors import DataFileError, MissingExtraError
from mild.features.model_places import file_digest, model_folder, package_folder

__all__ = ["StaticFiles", "find_static", "read_table", "read_tokenizer"]

WORDLLAMA = "wordllama"
WORDLLAMA_TABLE = "weights/l2_supercat_256.safetensors"
WORDLLAMA_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
# Table and tokenizer, in the order in which they are looked for.
LAYOUTS = (
    (WORDLLAMA_TABLE, WORDLLAMA_TOKENIZER),
    ("model.safetensors", "tokenizer.json"),
    ("0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"),
)
TABLE_NAMES = ("embeddings", "embedding.weight")


@dataclass(frozen=True)
class StaticFiles:
    """Where the two files of a static model lie.

    Attributes
    ----------
    folder : what the paths are in
    table : safetensors file with one row per token
    tokenizer : JSON file for the ``tokenizers`` library
    normalize : whether the model scales its embeddings to norm 1
    """

    folder: Path
    table: Path
    tokenizer: Path
    normalize: bool

    def digests(self) -> dict[str, str]:
        """SHA-256 of both files."""
        return {
            "table_sha256": file_digest(self.table),
            "tokenizer_sha256": file_digest(self.tokenizer),
        }


def find_static(name: str, hint: str | None = None) -> StaticFiles:
    """Files of "wordllama" or of a folder; say what to do where they are not to be found."""
    for table, tokenizer in LAYOUTS:
        folder = model_folder(name, hint, table)
        if folder is None and name == WORDLLAMA:
            folder = package_folder(WORDLLAMA)
        if folder is not None and (folder / table).is_file() and (folder / tokenizer).is_file():
            return StaticFiles(folder, folder / table, folder / tokenizer, _normalizes(folder))
    if name == WORDLLAMA:
        raise MissingExtraError(
            "static features use the embeddings of the package wordllama, which is not installed; "
            "pip install wordllama, or name a folder with model.safetensors and tokenizer.json."
        )
    raise DataFileError(
        f"static features need a folder with model.safetensors and tokenizer.json; found none at "
        f"{hint or name!r}."
    )


def read_table(path: Path) -> NDArray[np.float32]:
    """Embeddings (n_tokens, width); a model2vec table with weights and a mapping is laid out per token."""
    try:
        tensors = unpack(path.read_bytes())
    except (SafetensorError, OSError, KeyError) as error:
        raise DataFileError(f"{path} must be a safetensors file of numbers ({error}).") from error
    table = next((tensors[name] for name in TABLE_NAMES if name in tensors), None)
    if table is None or table.ndim != 2 or table.dtype.kind not in "fi" or 0 in table.shape:
        raise DataFileError(
            f"{path} must hold a matrix of numbers named {' or '.join(TABLE_NAMES)}; got "
            f"{', '.join(sorted(tensors)) or 'nothing'}."
        )
    mapping, weights = tensors.get("mapping"), tensors.get("weights")
    if mapping is not None:
        if mapping.dtype.kind not in "iu" or mapping.min() < 0 or mapping.max() >= len(table):
            raise DataFileError(f"{path}: mapping must hold rows of the table.")
        table = table[mapping]
    result = table.astype(np.float32)
    if weights is not None:
        if weights.shape != (len(result),):
            raise DataFileError(f"{path}: weights must have one number per token.")
        result *= weights[:, None]
    if not np.isfinite(result).all():
        raise DataFileError(f"{path} must hold finite embeddings.")
    return result


def read_tokenizer(content: bytes, n_tokens: int) -> tuple[Any, int | None]:
    """Tokenizer from its JSON, and the number of its unknown token if it has one.

    Its tokens must have rows in a table of ``n_tokens``.
    """
    try:
        # By name: without the extra the package has no types.
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise MissingExtraError(
            "static features need the package tokenizers; pip install 'mild-learn[text]'."
        ) from error
    try:
        described = json.loads(content)
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises nothing narrower
        raise DataFileError(f"the tokenizer cannot be read ({error}).") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest >= n_tokens:
        raise DataFileError(
            f"the tokenizer must have at most the {n_tokens} token(s) of the table; got token "
            f"{largest}."
        )
    unknown = described.get("model", {}).get("unk_token")
    return tokenizer, tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None


def _normalizes(folder: Path) -> bool:
    path = folder / "config.json"
    if not path.is_file():
        return False
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("normalize") is True
    except (OSError, ValueError, AttributeError) as error:
        raise DataFileError(f"{path} must be a JSON object ({error}).") from error
