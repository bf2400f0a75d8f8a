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

# Largest number of iterations of L-BFGS.
MAX_ITER = 500
# L-BFGS stops where the largest slope, or the change of the objective, is below these.
SMALLEST_SLOPE = 1e-6
SMALLEST_CHANGE = 1e-10
# Number of steps that L-BFGS remembers.
MEMORY = 20
# Rows are scored in blocks of this size where no gradient is needed.
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
        """Minimise ``mean loss + weight_decay / 2 * ||W||^2`` over a linear layer ``f = W x + b``.

        L-BFGS starts at the weights of the layer, and returns the number of its iterations. It converges
        fast if every variable has about the same curvature. So instead of W and b its variables are V and
        c, with the mean m and the scale s of each feature:

            s = 1 / sqrt(variance + weight_decay),    V = W / s,    c = b + W m,
            z = (x - m) * s,                          f = V z + c.

        This changes the path to the minimum, not the minimum.
        """
        layer = _only_layer(network)
        m = rows.X.mean(dim=0)
        curvature = rows.X.var(dim=0, unbiased=False) + self.weight_decay
        s = torch.where(curvature > 0, curvature, 1.0).rsqrt()
        Z = (rows.X - m) * s
        V = (layer.weight.detach() / s).requires_grad_(True)
        c = (layer.bias.detach() + layer.weight.detach() @ m).requires_grad_(True)
        optimizer = _lbfgs([V, c])

        def objective() -> float:
            optimizer.zero_grad()
            scores = Z @ V.T + c
            penalty = self.weight_decay / 2 * (V * s).square().sum()
            value = loss(scores, rows).mean() + penalty
            value.backward()  # type: ignore[no-untyped-call]
            return float(value.detach())

        with torch.enable_grad():
            optimizer.step(objective)  # type: ignore[no-untyped-call]
        W = V.detach() * s
        b = c.detach() - W @ m
        if not bool(W.isfinite().all() & b.isfinite().all()):
            raise invalid("X", "must have features of one scale: the fit did not stay finite.")
        with torch.no_grad():
            layer.weight.copy_(W)
            layer.bias.copy_(b)
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
        """Minimise the mean loss in batches, by AdamW with one cycle of the learning rate.

        Returns the number of epochs. If there are held-out rows, the network is left at the epoch of least
        loss on them.
        """
        optimizer = make_optimizer([(network, self.lr)], self.weight_decay)
        n_batches = math.ceil(len(rows) / self.batch_size)
        n_steps = self.epochs * n_batches

        def run_epoch(epoch: int) -> dict[str, Any]:
            """Train on all batches once; ``epoch`` is counted from 1."""
            rng = np.random.default_rng([self.seed, epoch])
            self.reseed(int(rng.integers(2**63)))
            batches = np.array_split(rng.permutation(len(rows)), n_batches)
            first_step = (epoch - 1) * n_batches
            network.train()
            summed_loss = 0.0
            for step, batch in enumerate(batches, first_step):
                for group in optimizer.param_groups:
                    group["lr"] = self.lr * learning_rate(step, n_steps)
                batch_rows = rows.take(torch.from_numpy(batch).to(rows.X.device))
                optimizer.zero_grad()
                batch_loss = loss(network(batch_rows.X), batch_rows).mean()
                batch_loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                summed_loss += float(batch_loss.detach()) * len(batch)
            record: dict[str, Any] = {"epoch": epoch, "loss": summed_loss / len(rows)}
            if held_out is not None and len(held_out):
                held_out_loss = mean_loss(network, held_out, loss)
                # Training keeps the epoch of least validation loss, and breaks ties by the surrogate.
                record["validation_loss"] = held_out_loss
                record["validation_surrogate"] = held_out_loss
            return record

        run = train_epochs(
            network, run_epoch, self.epochs, remedy=f"Lower lr={self.lr:g}, or scale the features."
        )
        network.eval()
        return run.epoch


def _lbfgs(variables: list[Tensor]) -> torch.optim.LBFGS:
    """Make an L-BFGS optimiser that solves a problem to convergence in one step."""
    return torch.optim.LBFGS(
        variables,
        max_iter=MAX_ITER,
        max_eval=2 * MAX_ITER,
        tolerance_grad=SMALLEST_SLOPE,
        tolerance_change=SMALLEST_CHANGE,
        history_size=MEMORY,
        line_search_fn="strong_wolfe",
    )


def score_rows(network: nn.Module, rows: DeferralTrainingRows) -> Tensor:
    """Return scores (n, n_outputs) in evaluation mode, without gradients."""
    network.eval()
    with torch.no_grad():
        return torch.cat([network(block) for block in torch.split(rows.X, BLOCK)])


def mean_loss(network: nn.Module, rows: DeferralTrainingRows, loss: RowLoss) -> float:
    """Return the mean loss of rows in evaluation mode."""
    scores = score_rows(network, rows)
    return float(loss(scores, rows).mean())


def _only_layer(network: nn.Module) -> nn.Linear:
    """Return the layer of a linear network, which has no other one."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear):
            return layer
    raise InvalidInputError("a linear body has one layer.")
