"""How far a training run has come."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

__all__ = ["Run"]


@dataclass
class Run:
    """Epochs run so far, what each gave, and the weights of the best.

    Attributes
    ----------
    epoch : epochs run
    best_epoch : the best of them, counted from 1; the last where no rows are held out
    history : one record per epoch
    best : state of the network after the best epoch; None where no rows are held out
    diverged : whether training ended in numbers that are not finite
    """

    epoch: int = 0
    best_epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    diverged: bool = False

    def add(self, record: dict[str, Any], module: nn.Module) -> None:
        """Take in one more epoch, and the network after it."""
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
        """Deferral loss first; it moves in steps, so the surrogate decides between equals."""
        record = self.history[epoch - 1]
        return record["validation_loss"], record["validation_surrogate"]


def is_finite(module: nn.Module, record: dict[str, Any]) -> bool:
    """Whether an epoch left nothing but finite weights and a finite loss."""
    return (
        math.isfinite(record["loss"])
        and not math.isnan(record.get("validation_loss", 0.0))
        and all(bool(value.isfinite().all()) for value in module.parameters())
    )
