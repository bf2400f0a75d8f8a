"""What a network is trained on: features, classes and the answers of experts, as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mild.core.arrays import FloatArray, IntArray
from mild.deferral.answers import ExpertAnswers


@dataclass(frozen=True)
class DeferralTrainingRows:
    """Rows with the answers of p experts, on the device that trains."""

    X: Tensor  # (n, n_features), or more dimensions
    y: Tensor  # (n,) class indices
    correct: Tensor  # (n, p) whether the expert has an answer and it is right
    asked: Tensor  # (n, p) whether the expert has an answer
    costs: Tensor  # (n, p) 1 where the expert is not correct, plus the cost of asking
    n_classes: int

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.correct.shape[1]

    def take(self, rows: Tensor) -> DeferralTrainingRows:
        """Return some of the rows, by index or by a boolean mask."""
        return DeferralTrainingRows(
            self.X[rows],
            self.y[rows],
            self.correct[rows],
            self.asked[rows],
            self.costs[rows],
            self.n_classes,
        )


def training_rows(
    X: FloatArray,
    y: IntArray,
    answers: ExpertAnswers,
    expert_costs: FloatArray,
    n_classes: int,
    dtype: torch.dtype,
    device: torch.device,
) -> DeferralTrainingRows:
    """Return features (n, n_features), class indices (n,) and answers as tensors of this precision."""
    correct = answers.correct(y)
    costs = (~correct).astype(np.float64) + expert_costs
    return DeferralTrainingRows(
        as_tensor(X, dtype, device),
        torch.from_numpy(y.astype(np.int64)).to(device),
        torch.from_numpy(correct).to(device),
        torch.from_numpy(answers.asked).to(device),
        as_tensor(costs, dtype, device),
        n_classes,
    )


def as_tensor(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an array as a tensor of this precision; read-only arrays are copied."""
    array = np.array(values, copy=not values.flags.writeable or None)
    return torch.from_numpy(array).to(device, dtype)
