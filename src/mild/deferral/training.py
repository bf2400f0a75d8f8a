"""Training of a network on a loss of rows: L-BFGS for linear heads, AdamW for the others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mild.core.arrays import invalid
from mild.deferral.data import DeferralTrainingRows
from mild.deferral.losses import RowLoss
from mild.errors import ConvergenceWarning, InvalidInputError
from mild.routers.neural.training import learning_rate, make_optimizer, train_epochs

MAX_ITER = 500
# L-BFGS stops where the largest slope, or the change of the objective, is below these.
SMALLEST_SLOPE, SMALLEST_CHANGE = 1e-6, 1e-10
MEMORY = 20
# Rows that are scored at once where no gradient is needed.
BLOCK = 4096


@dataclass(frozen=True)
class Trainer:
    """How networks are trained; the same for every network of one fit.

    Attributes
    ----------
    weight_decay : L2 strength of a linear head, decoupled weight decay of other networks
    lr, epochs, batch_size : of AdamW
    seed : of the order of the rows
    reseed : seeds the generators of torch
    """

    weight_decay: float
    lr: float
    epochs: int
    batch_size: int
    seed: int
    reseed: Callable[[int], None]

    def train(
        self,
        network: nn.Module,
        rows: DeferralTrainingRows,
        held_out: DeferralTrainingRows | None,
        loss: RowLoss,
        is_linear: bool,
    ) -> int:
        """Train in place; returns the number of iterations or epochs."""
        if is_linear:
            return self._train_linear(network, rows, loss)
        return self._train_network(network, rows, held_out, loss)

    def _train_linear(self, network: nn.Module, rows: DeferralTrainingRows, loss: RowLoss) -> int:
        """Minimise ``mean loss + weight_decay / 2 * ||W||^2`` over a linear layer, from where it is.

        With s = 1 / sqrt(variance + weight_decay) per feature and m its mean, the variables are
        V = W / s and the intercepts at the mean. This changes the path, not the minimum: every variable
        has about the same curvature.
        """
        layer = _only_layer(network)
        mean = rows.X.mean(dim=0)
        spread = rows.X.var(dim=0, unbiased=False) + self.weight_decay
        step = torch.where(spread > 0, spread, 1.0).rsqrt()
        centred = (rows.X - mean) * step
        V = (layer.weight.detach() / step).requires_grad_(True)
        level = (layer.bias.detach() + layer.weight.detach() @ mean).requires_grad_(True)
        optimizer = torch.optim.LBFGS(
            [V, level],
            max_iter=MAX_ITER,
            max_eval=2 * MAX_ITER,
            tolerance_grad=SMALLEST_SLOPE,
            tolerance_change=SMALLEST_CHANGE,
            history_size=MEMORY,
            line_search_fn="strong_wolfe",
        )

        def objective() -> float:
            optimizer.zero_grad()
            scores = centred @ V.T + level
            penalty = self.weight_decay / 2 * (V * step).square().sum()
            value = loss(scores, rows).mean() + penalty
            value.backward()  # type: ignore[no-untyped-call]
            return float(value.detach())

        with torch.enable_grad():
            optimizer.step(objective)  # type: ignore[no-untyped-call]
        weight = V.detach() * step
        bias = level.detach() - weight @ mean
        if not bool(weight.isfinite().all() & bias.isfinite().all()):
            raise invalid("X", "must have features of one scale: the fit did not stay finite.")
        with torch.no_grad():
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        n_iter = int(optimizer.state_dict()["state"][0]["n_iter"])
        if n_iter >= MAX_ITER:
            warnings.warn(
                f"DeferralClassifier stopped after {n_iter} iterations before it converged. Raise "
                "weight_decay, or scale the features.",
                ConvergenceWarning,
                stacklevel=5,
            )
        return n_iter

    def _train_network(
        self,
        network: nn.Module,
        rows: DeferralTrainingRows,
        held_out: DeferralTrainingRows | None,
        loss: RowLoss,
    ) -> int:
        """Minimise the mean loss in batches; with rows held out, the best epoch on them is kept."""
        optimizer = make_optimizer([(network, self.lr)], self.weight_decay)
        n_batches = math.ceil(len(rows) / self.batch_size)
        n_steps = self.epochs * n_batches

        def run_epoch(epoch: int) -> dict[str, Any]:
            rng = np.random.default_rng([self.seed, epoch])
            self.reseed(int(rng.integers(2**63)))
            batches = np.array_split(rng.permutation(len(rows)), n_batches)
            network.train()
            total = 0.0
            for number, batch in enumerate(batches):
                step = (epoch - 1) * n_batches + number
                for group in optimizer.param_groups:
                    group["lr"] = self.lr * learning_rate(step, n_steps)
                batch_rows = rows.take(torch.from_numpy(batch).to(rows.X.device))
                optimizer.zero_grad()
                value = loss(network(batch_rows.X), batch_rows).mean()
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += float(value.detach()) * len(batch)
            record: dict[str, Any] = {"epoch": epoch, "loss": total / len(rows)}
            if held_out is not None and len(held_out):
                held_out_loss = mean_loss(network, held_out, loss)
                record["validation_loss"] = held_out_loss
                record["validation_surrogate"] = held_out_loss
            return record

        run = train_epochs(
            network, run_epoch, self.epochs, remedy=f"Lower lr={self.lr:g}, or scale the features."
        )
        network.eval()
        return run.epoch


def score_rows(network: nn.Module, rows: DeferralTrainingRows) -> Tensor:
    """Scores (n, n_outputs) in evaluation mode, without gradients."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(block) for block in torch.split(rows.X, BLOCK)])


def mean_loss(network: nn.Module, rows: DeferralTrainingRows, loss: RowLoss) -> float:
    """Mean loss of rows in evaluation mode."""
    scores = score_rows(network, rows)
    return float(loss(scores, rows).mean())


def _only_layer(network: nn.Module) -> nn.Linear:
    """The layer of a linear network, which is alone in a sequence."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            return layer
    raise InvalidInputError("a linear body has one layer.")
