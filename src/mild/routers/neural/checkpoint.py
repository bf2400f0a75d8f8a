"""A training run and its file, replaced after every epoch; safetensors whose header holds JSON.

The file holds the options of the run and digests of its data and initial weights: only the same run is
continued. A last digest covers everything, so that damage is detected. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from mild.artifact.files import replacing
from mild.errors import ArtifactError
from mild.routers.objective import LABEL_LOSSES, Targets

SCHEMA = 1
KEY = "mild_checkpoint"
# Options that are digests, and how a message names a difference in them.
DIGESTS = {"data": "other data", "network": "a network with other weights at the start"}

# safetensors has no types for these.
_pack: Callable[[dict[str, Tensor], dict[str, str]], bytes] = to_safetensors
_open: Any = safe_open


@dataclass
class Run:
    """Epochs run so far, their records, and the weights of the best, counted from 1.

    Where no rows are held out, the last epoch is the best, and ``best`` is None.
    """

    epoch: int = 0
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    diverged: bool = False

    def add(self, record: dict[str, Any], module: nn.Module) -> None:
        """Record one more epoch, and the network if it is the best so far."""
        self.epoch += 1
        self.history.append(record)
        if "validation_loss" not in record:
            self.best_epoch = self.epoch
        elif self.best is None or self._merit(self.epoch) < self._merit(self.best_epoch):
            self.best_epoch = self.epoch
            self.best = {name: value.clone() for name, value in module.state_dict().items()}

    def is_over(self, epochs: int, patience: int) -> bool:
        """Whether all epochs are run, or none of the last ``patience`` was the best."""
        return self.epoch >= epochs or self.epoch - self.best_epoch >= patience

    def _merit(self, epoch: int) -> tuple[float, float]:
        """Deferral loss; ties are broken by the surrogate."""
        record = self.history[epoch - 1]
        return record["validation_loss"], record["validation_surrogate"]


def run_options(
    router: Any, names: Sequence[str], data: Mapping[str, Any], targets: Targets, module: nn.Module
) -> dict[str, Any]:
    """What must be the same for a run to be continued, JSON-ready.

    ``names`` are the parameters of the router that change the run, ``data`` its arrays and CSR matrices;
    None for one that is absent.
    """
    options: dict[str, Any] = {name: getattr(router, name) for name in names}
    options["surrogate"] = [targets.surrogate.form, targets.surrogate.tau]
    options["margins"] = targets.margins.tolist()
    if router.loss in LABEL_LOSSES:
        options["ties"] = router.ties
    if router.rewards == "baseline":
        options["strength"] = router.strength
    arrays: dict[str, Any] = {}
    for name, value in data.items():
        if hasattr(value, "tocsr"):
            arrays |= {part: getattr(value, part) for part in ("data", "indices", "indptr")}
        elif value is not None:
            arrays[name] = value
    options["data"] = _digest(arrays, str(data["X"].shape))
    options["network"] = _digest(_arrays(module.state_dict()))
    return dict(json.loads(json.dumps(options, default=np.generic.item)))


@dataclass
class Checkpoint:
    """The file of one run, which ``options`` identify; without ``resume`` an existing run is replaced.

    Messages name the class of the router, ``owner``, and how to ``restart``.
    """

    path: str | os.PathLike[str]
    options: dict[str, Any]
    resume: bool
    owner: str = "NeuralRouter"
    restart: str = "pass resume=False to start over"

    def read(self, module: nn.Module, optimizer: torch.optim.Optimizer, epochs: int) -> Run:
        """The stored run, with its state loaded into module and optimizer; a new run if there is none."""
        if not os.path.lexists(self.path):
            # Raise before the first epoch what writing would raise after it.
            with self._writing() as path:
                if not os.access(path.parent, os.W_OK | os.X_OK):
                    raise OSError(0, f"{path.parent} is not a writable folder")
            return Run()
        try:
            header, tensors = self._open()
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} cannot be read: it is damaged, or not a checkpoint of "
                f"{self.owner}. Delete it, or choose another path."
            ) from error
        if not self.resume:
            return Run()
        self._compare(header["options"])
        if header["epoch"] > epochs:
            raise ArtifactError(
                f"checkpoint {self.path} has finished {header['epoch']} epochs, more than "
                f"epochs={epochs}. Raise epochs, or {self.restart}."
            )
        try:
            return _restore(header, tensors, module, optimizer)
        except (RuntimeError, KeyError, ValueError, TypeError) as error:
            raise ArtifactError(
                f"checkpoint {self.path} does not fit the network. Delete it, or choose another path."
            ) from error

    def write(self, run: Run, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Replace the file atomically."""
        tensors = {f"module.{name}": value for name, value in module.state_dict().items()}
        if run.best is not None and run.best_epoch != run.epoch:
            tensors |= {f"best.{name}": value for name, value in run.best.items()}
        for number, entries in optimizer.state_dict()["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{number}.{name}"] = value
        # Cloned, because safetensors refuses tied weights that share memory.
        own = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
        header = {
            "schema": SCHEMA,
            "options": self.options,
            "epoch": run.epoch,
            "best_epoch": run.best_epoch,
            "history": run.history,
        }
        header["digest"] = _digest(_arrays(own), json.dumps(header))
        content = _pack(own, {KEY: json.dumps(header)})
        with self._writing() as path, replacing(path) as file:
            file.write(content)

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

    @contextmanager
    def _writing(self) -> Iterator[Path]:
        """The path, in a folder that exists; what goes wrong is an ArtifactError."""
        try:
            path = Path(self.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            yield path
        except OSError as error:
            reason = error.strerror or str(error)
            raise ArtifactError(f"cannot write checkpoint {self.path}: {reason}.") from error


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
    _match_layout(optimizer)
    run = Run(int(header["epoch"]), int(header["best_epoch"]), list(header["history"]))
    if run.history and "validation_loss" in run.history[-1]:
        device = next(module.parameters()).device
        best = "module." if run.best_epoch == run.epoch else "best."
        run.best = {name: value.to(device) for name, value in _under(best, tensors).items()}
    return run


def _match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimiser's tensors the memory layout of their weights, as fused steps require."""
    for weight, entries in optimizer.state.items():
        for name, value in entries.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                entries[name] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray[Any, Any]]:
    """Tensors as bytes, since NumPy lacks some of torch's types."""
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
