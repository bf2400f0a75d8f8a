"""What must be the same for a fine-tuning run to be continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mild.core.arrays import FloatArray
from mild.features.tokens import Ids
from mild.routers.neural.checkpoint import Checkpoint
from mild.routers.targets import Targets
from mild.routers.transformer.network import RoutingNetwork

if TYPE_CHECKING:
    from mild.routers.transformer.router import TransformerRouter

__all__ = ["checkpoint_of"]

# The schedule runs over all epochs: another number of them is another run.
OPTIONS = (
    "loss", "rewards", "decision", "epochs", "lr", "head_lr", "batch_size", "weight_decay", "warmup",
    "clip", "dropout", "precision", "validation_fraction", "random_state",
)  # fmt: skip


def checkpoint_of(
    router: TransformerRouter,
    tokens: Sequence[Ids],
    costs: FloatArray,
    sample_weight: FloatArray | None,
    targets: Targets,
    network: RoutingNetwork,
) -> Checkpoint:
    """The checkpoint of a router's run on these data, from these weights."""
    data = hashlib.sha256()
    for row in tokens:
        data.update(f"{len(row)};".encode() + row.tobytes())
    for array in (costs, sample_weight):
        if array is not None:
            data.update(np.ascontiguousarray(array, np.float64).tobytes())
    weights = hashlib.sha256()
    for name, value in network.state_dict().items():
        whole = value.detach().cpu().contiguous().reshape(-1)
        weights.update(f"{name} {tuple(value.shape)};".encode())
        weights.update(whole.view(torch.uint8).numpy().data)
    options: dict[str, Any] = {name: getattr(router, name) for name in OPTIONS}
    options["surrogate"] = [targets.surrogate.form, targets.surrogate.tau]
    options["margins"] = targets.margins.tolist()
    if router.rewards == "baseline":
        options["strength"] = router.strength
    options |= {"data": data.hexdigest(), "network": weights.hexdigest()}
    plain: dict[str, Any] = json.loads(json.dumps(options, default=float))
    return Checkpoint(router.checkpoint or "", plain, bool(router.resume), "TransformerRouter")
