"""Pretrained models: where their files are, digests of these, and the packages that read them."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mild.errors import DataFileError, MissingExtraError, install_hint

# Names a folder of model folders, for machines where models are not where the router was fitted.
MODELS_VARIABLE = "MILD_MODELS"
# Characters that are read for each token that is kept, so that a text of a million takes no longer.
CHARACTERS_PER_TOKEN = 16
# Tokens in a batch, padding included.
BATCH_TOKENS = 8192

Ids: TypeAlias = NDArray[np.int64]


def import_extra(user: str, extra: str, *packages: str) -> list[Any]:
    """Import optional packages, which an extra installs, by name; ``user`` is what needs them."""
    try:
        return [importlib.import_module(name) for name in packages]
    except ImportError as error:
        raise MissingExtraError(
            f"{user} need {' and '.join(packages)}; {install_hint(extra)}."
        ) from error


def model_folder(name: str, hint: str | None = None) -> Path | None:
    """The first folder of a model, which has a config.json.

    These are tried: the folder ``hint``, the folder ``name``, a folder of that name in MILD_MODELS, and the
    folder ``model`` of an installed package of that name.
    """
    folders = []
    if hint:
        folders.append(Path(hint))
    folders.append(Path(name).expanduser())
    if models := os.environ.get(MODELS_VARIABLE):
        folders.append(Path(models).expanduser() / Path(name).name)
    module = name.replace("-", "_")
    if module.isidentifier() and (spec := importlib.util.find_spec(module)):
        folders += [Path(place) / "model" for place in spec.submodule_search_locations or ()]
    for folder in folders:
        if (folder / "config.json").is_file():
            return folder
    return None


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataFileError(f"cannot read {path}: {error.strerror or error}.") from error


def digest_files(folder: Path, names: Sequence[str]) -> str:
    """One SHA-256 over the names and contents of those files that exist."""
    digest = hashlib.sha256()
    for name in sorted(names):
        if (folder / name).is_file():
            digest.update(f"{name} {file_digest(folder / name)};".encode())
    return digest.hexdigest()


def read_json(path: Path) -> Any:
    """Content of a JSON file; an empty object if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} must be JSON ({error}).") from error


class Tokens:
    """A tokenizer of the ``tokenizers`` library, from its JSON: special tokens added, truncated.

    ``max_length`` counts special tokens; ``pad`` is the number of the padding token.
    """

    def __init__(self, content: bytes, max_length: int, pad: int = 0) -> None:
        self._tokenizer = open_tokenizer(content)
        self._tokenizer.enable_truncation(max_length)
        self.max_length = max_length
        self.pad = pad

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token numbers of each text, at least one."""
        cut = cut_texts(texts, self.max_length)
        encoded = self._tokenizer.encode_batch_fast(cut, add_special_tokens=True)
        # A tokenizer without special tokens gives no token for an empty text.
        return [np.array(tokens.ids or [self.pad], np.int64) for tokens in encoded]


def open_tokenizer(content: bytes) -> Any:
    """A tokenizer from its JSON, without padding and truncation."""
    (tokenizers,) = import_extra("onnx features", "onnx", "tokenizers")
    try:
        tokenizer = tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises nothing narrower
        raise DataFileError(f"the tokenizer cannot be read ({error}).") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def cut_texts(texts: Sequence[str], max_length: int) -> list[str]:
    """Texts cut to what ``max_length`` tokens can hold; lone surrogates become question marks."""
    longest = max_length * CHARACTERS_PER_TOKEN
    return [text[:longest].encode("utf-8", "replace").decode() for text in texts]


def padded(rows: Sequence[Ids], pad: int) -> tuple[Ids, Ids]:
    """Token numbers (n, longest) filled up with ``pad``, and a mask that is 0 there."""
    lengths = np.array([len(row) for row in rows])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad, np.int64)
    ids[mask == 1] = np.concatenate(rows)
    return ids, mask


def batches_by_length(rows: Sequence[Ids], max_tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices of rows of similar length, the longest first, at most ``max_tokens`` tokens at a time."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
    start = 0
    while start < len(order):
        longest = len(rows[order[start]])
        size = max(1, max_tokens // longest)
        yield order[start : start + size]
        start += size


def hub_folder(name: str, patterns: Sequence[str], download: bool) -> Path | None:
    """Folder of a model in the hub's cache; with ``download`` it is fetched first."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    options = {"allow_patterns": list(patterns), "local_files_only": not download}
    try:
        return Path(hub.snapshot_download(name, **options))
    except (hub.errors.HFValidationError, hub.errors.LocalEntryNotFoundError):
        return None
    except OSError as error:
        raise DataFileError(f"the model {name!r} cannot be fetched ({error}).") from error
