"""A training run on disk, complete after every epoch; safetensors whose header holds JSON.

The options of the run, a digest of its data and one of its first weights are kept with it: only the same
run is continued. A last digest covers everything, so that damage shows. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from mild.artifact.files import replacing
from mild.core.arrays import FloatArray
from mild.errors import ArtifactError
from mild.routers.neural.run import Run
from mild.routers.targets import Targets

__all__ = ["Checkpoint", "run_options"]

SCHEMA = 1
KEY = "mild_checkpoint"
OPTIONS = (
    "loss", "rewards", "counts", "norms", "total", "share_below", "cost_scale", "decision",
    "sampling", "batch_size", "lr", "weight_decay", "optimizer", "schedule", "validation_fraction",
    "patience", "random_state",
)  # fmt: skip
# Options whose values say nothing to a reader.
DIGESTS = {"data": "other data", "network": "a network with other weights at the start"}

# safetensors has no types for these.
_pack: Callable[[dict[str, Tensor], dict[str, str]], bytes] = to_safetensors
_open: Any = safe_open


def run_options(
    router: Any,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    targets: Targets,
    module: nn.Module,
) -> dict[str, Any]:
    """What must be the same for a run to be continued, JSON-ready."""
    options: dict[str, Any] = {name: getattr(router, name) for name in OPTIONS}
    options["surrogate"] = [targets.surrogate.form, targets.surrogate.tau]
    options["margins"] = targets.margins.tolist()
    if router.rewards == "baseline":
        options["strength"] = router.strength
    if router.schedule is not None:
        options["epochs"] = router.epochs
    parts = ("data", "indices", "indptr") if hasattr(X, "tocsr") else ()
    arrays = {name: getattr(X, name) for name in parts} or {"X": X}
    arrays["costs"] = costs
    if sample_weight is not None:
        arrays["weight"] = sample_weight
    options["data"] = _digest(arrays, str(X.shape))
    options["network"] = _digest(_arrays(module.state_dict()))
    plain = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in options.items()
    }
    result: dict[str, Any] = json.loads(json.dumps(plain))
    return result


class Checkpoint:
    """The file of one run.

    Parameters
    ----------
    path : file to read and replace
    options : what ``run_options`` gave
    resume : whether a run that is there is continued; if not it is replaced
    owner : whose checkpoints these are, for messages
    restart : what to do to start over, for messages
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: dict[str, Any],
        resume: bool,
        owner: str = "NeuralRouter",
        restart: str = "pass resume=False to start over",
    ) -> None:
        self.path = Path(path)
        self.options = options
        self.resume = resume
        self.owner = owner
        self.restart = restart

    def read(self, module: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> Run:
        """The run so far, its weights put into module and optimizer; a new run if there is none."""
        if not os.path.lexists(self.path):
            self._check_place()
            return Run()
        try:
            header, tensors = self._open()
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} cannot be read: it is damaged, or no checkpoint of "
                f"{self.owner}. Delete it, or choose another path."
            ) from error
        if not self.resume:
            return Run()
        self._compare(header["options"])
        if header["epoch"] > epochs:
            raise ArtifactError(
                f"checkpoint {self.path} has {header['epoch']} epochs behind it, more than "
                f"epochs={epochs}. Raise epochs, or {self.restart}."
            )
        try:
            return _restore(header, tensors, module, optimizer)
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} does not fit the network. Delete it, or choose another "
                f"path."
            ) from error

    def write(self, run: Run, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Replace the file: a reader, or a kill, finds the old one or the new one."""
        tensors = {f"module.{name}": value for name, value in module.state_dict().items()}
        if run.best is not None and run.best_epoch != run.epoch:
            tensors |= {f"best.{name}": value for name, value in run.best.items()}
        for number, entries in optimizer.state_dict()["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{number}.{name}"] = value
        # Clones: tied weights share memory, which safetensors refuses.
        own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
        header = {
            "schema": SCHEMA,
            "options": self.options,
            "epoch": run.epoch,
            "best_epoch": run.best_epoch,
            "history": run.history,
        }
        header["digest"] = _digest(_arrays(own), json.dumps(header))
        self._replace(_pack(own, {KEY: json.dumps(header)}))

    def _open(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        with _open(self.path, framework="pt") as file:
            header: dict[str, Any] = json.loads((file.metadata() or {})[KEY])
            if header["schema"] != SCHEMA:
                raise ValueError("schema")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        digest = header.pop("digest")
        if digest != _digest(_arrays(tensors), json.dumps(header)):
            raise ValueError("digest")
        return header, tensors

    def _compare(self, stored: Mapping[str, Any]) -> None:
        for name, value in self.options.items():
            before = stored.get(name)
            if before == value:
                continue
            what = DIGESTS.get(name, f"{name}={before!r}, not {value!r}")
            raise ArtifactError(
                f"checkpoint {self.path} belongs to another run, with {what}. Choose another path, "
                f"or {self.restart}."
            )

    def _check_place(self) -> None:
        """Say before the first epoch what writing would say after it."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise self._unwritable(f"{folder} is not a writable folder")

    def _unwritable(self, reason: str) -> ArtifactError:
        return ArtifactError(f"cannot write checkpoint {self.path}: {reason}.")

    def _replace(self, content: bytes) -> None:
        try:
            # Another process may have removed the folder with the last checkpoint but ours.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as file:
                file.write(content)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error


def _restore(
    header: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Run:
    module.load_state_dict(_under("module.", tensors))
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in _under("optimizer.", tensors).items():
        number, _, entry = name.partition(".")
        state.setdefault(int(number), {})[entry] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _lay_out_alike(optimizer)
    run = Run(int(header["epoch"]), int(header["best_epoch"]), list(header["history"]))
    if run.history and "validation_loss" in run.history[-1]:
        device = next(module.parameters()).device
        best = "module." if run.best_epoch == run.epoch else "best."
        run.best = {name: value.to(device) for name, value in _under(best, tensors).items()}
    return run


def _lay_out_alike(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimiser's tensors the memory layout of their weights, which fused steps rely on."""
    for weight, entries in optimizer.state.items():
        for name, value in entries.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                entries[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Bytes of tensors; NumPy has not all of torch's types."""
    return {
        f"{name} {value.dtype} {tuple(value.shape)}": (
            value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        )
        for name, value in tensors.items()
    }


def _digest(arrays: Mapping[str, np.ndarray[Any, Any]], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f";{name} {array.dtype.str} {array.shape};".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()
