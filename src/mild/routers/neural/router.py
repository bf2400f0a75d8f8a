"""A neural router: any network that scores experts, trained in minibatches on any of the losses."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MissingExtraError,
    check_option,
)
from mild.policies import Decoder, ScorePolicy
from mild.routers.base import SurrogateRouter
from mild.routers.options import check_count, check_training_options
from mild.routers.targets import LABEL_LOSSES, Targets, training_targets

if TYPE_CHECKING:
    from mild.routers.neural.checkpoint import Run

__all__ = ["NeuralRouter"]

OPTIMIZERS = ("adamw", "adam", "sgd")
SCHEDULES = ("onecycle",)
# Parameters that must be the same for a run to be continued, with its data, margins and first weights.
RUN_OPTIONS = (
    "loss", "rewards", "counts", "norms", "total", "share_below", "cost_scale", "decision",
    "sampling", "batch_size", "lr", "weight_decay", "optimizer", "schedule", "validation_fraction",
    "patience", "random_state",
)  # fmt: skip


class NeuralRouter(SurrogateRouter):
    """Scores ``f(x, k)`` of a network, trained on a surrogate of the deferral loss.

    Minimises ``mean_i sum_k reward_ik * surrogate_k(f(x_i))``, rewards scaled to mean row sum 1, in
    minibatches of nearly equal size, in float32. Weight decay spares biases and other vectors. A
    part of the rows is held out: training stops when the deferral loss there has not improved for
    ``patience`` epochs (between epochs of equal deferral loss the smaller surrogate counts as better),
    and the best epoch is kept.

    Features of very different scales train badly: put a ``StandardScaler`` before the router.

    Inside a process group of torch (``torchrun``, ``torch.distributed.init_process_group``) the processes
    train together. Each must be given the same rows and options, works on its share of every batch, and
    ends with the network of one process with the same batches, up to rounding; dropout draws other numbers.
    The first process decides when to stop, reports progress and writes the checkpoint.

    Parameters
    ----------
    module : torch.nn.Module, callable or None
        Network that maps (n, n_features) float32 to (n, n_experts). It is copied, never changed. A
        callable is called as ``module(n_features, n_experts)`` and returns the network. None builds
        a ReLU perceptron with ``hidden``.
    hidden : tuple of int, widths of the hidden layers if ``module`` is None; () is a linear router
    loss, rewards, strength, margins, counts, norms, total, share_below, cost_scale, decision, sampling :
        as for LinearRouter
    surrogate : "logistic", "exponential", tau >= 0, "hinge" or "pairwise_..."; for mild and tdef
        From tau = 2 on no distribution can be read from the scores: the largest score decides.
    epochs : int, passes over the training rows at most
    batch_size : int, rows per step at most
    lr : float, learning rate; with a schedule its largest value
    weight_decay : float
    optimizer : "adamw", "adam" or "sgd" (momentum 0.9)
    schedule : None (constant) or "onecycle" (up for 30 % of the steps, then down to almost 0)
    validation_fraction : float in [0, 1), share of the rows held out; 0 trains on all, to the end
        With fewer than ``1 / validation_fraction`` rows none is held out.
    patience : int, epochs without improvement before training stops
    device : "auto" (a CUDA device if there is one, else the CPU) or what torch calls a device
    random_state : int, RandomState or None
        An int makes fits repeatable on the same machine. torch's own random state is left as it was.
    checkpoint : path or None
        File (safetensors, its header holding JSON) that is replaced after every epoch.
    resume : bool
        Continue from ``checkpoint`` if it is there: after a kill the result is that of an
        uninterrupted run. A checkpoint of other data, options or weights is refused. Without a
        schedule ``epochs`` may have grown. False starts over.
    warm_start : bool, start from the last solution where it has the same shape
    progress : callable or None, called as ``progress(epoch, epochs, message)`` after every epoch

    Attributes
    ----------
    margins_ : (n_experts,) array
    n_iter_ : int, epochs run
    best_epoch_ : int, the epoch that was kept, counted from 1
    history_ : list of dict, one per epoch: "epoch", "loss" (mean surrogate over the epoch),
        "learning_rate" and, with rows held out, "validation_loss" (deferral loss) and
        "validation_surrogate"

    Examples
    --------
    >>> X = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    >>> costs = [[0, 1], [1, 0], [1, 0], [0, 1]]  # exclusive or: no linear router can learn this
    >>> router = NeuralRouter(hidden=(16,), lr=0.05, epochs=100).fit(X, costs)
    >>> router.predict(X)
    array([0, 1, 1, 0])
    """

    def __init__(
        self,
        module: Any = None,
        *,
        hidden: Any = (64,),
        loss: str = "mild",
        rewards: str = "others",
        strength: float = 0.5,
        surrogate: Any = "logistic",
        margins: Any = "theory",
        counts: str = "reward",
        norms: str = "none",
        total: float | None = None,
        share_below: float = 0.0,
        cost_scale: float | None = None,
        decision: str = "stationary",
        sampling: str | None = None,
        epochs: int = 50,
        batch_size: int = 256,
        lr: float = 1e-3,
        weight_decay: float = 1e-4,
        optimizer: str = "adamw",
        schedule: str | None = None,
        validation_fraction: float = 0.1,
        patience: int = 10,
        device: Any = "auto",
        random_state: Any = 0,
        checkpoint: str | os.PathLike[str] | None = None,
        resume: bool = True,
        warm_start: bool = False,
        progress: Callable[[int, int, str], Any] | None = None,
    ) -> None:
        self.module = module
        self.hidden = hidden
        self.loss = loss
        self.rewards = rewards
        self.strength = strength
        self.surrogate = surrogate
        self.margins = margins
        self.counts = counts
        self.norms = norms
        self.total = total
        self.share_below = share_below
        self.cost_scale = cost_scale
        self.decision = decision
        self.sampling = sampling
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.schedule = schedule
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.device = device
        self.random_state = random_state
        self.checkpoint = checkpoint
        self.resume = resume
        self.warm_start = warm_start
        self.progress = progress

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ScorePolicy:
        try:
            importlib.import_module("torch")
        except ImportError as error:
            raise MissingExtraError(
                "NeuralRouter needs torch, which is not installed; "
                'run: pip install "mild-learn[neural]".'
            ) from error
        seed = self._check_options()
        self._warn_if_degenerate(costs, by_label=self.loss in LABEL_LOSSES)
        targets = training_targets(self, X, costs, sample_weight)
        policy, run = self._train(X, costs, sample_weight, targets, seed)
        if run.diverged:
            warnings.warn(
                f"training diverged in epoch {run.epoch + 1}: epoch {run.best_epoch} is kept. "
                f"Lower lr, or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.n_iter_ = run.epoch
        self.best_epoch_ = run.best_epoch
        self.history_ = run.history
        return policy

    def _train(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        targets: Targets,
        seed: int,
    ) -> tuple[ScorePolicy, Run]:
        # Imported here: these modules import torch.
        from mild.routers.neural import network
        from mild.routers.neural.checkpoint import Run
        from mild.routers.neural.problem import Problem
        from mild.routers.neural.training import (
            learning_rate,
            make_optimizer,
            own_randomness,
            train_router,
        )

        device = network.find_device(self.device)
        decoder = Decoder(targets.margins, self.decision, targets.surrogate)
        held_out = float(self.validation_fraction)
        problem = Problem(X, costs, sample_weight, targets, decoder, held_out, seed, device)
        with own_randomness(device) as reseed:
            reseed(seed)
            module = network.build_module(self.module, self.hidden, problem)
            if self.warm_start and hasattr(self, "policy_"):
                network.warm_start(module, self.policy_)
            run = Run()
            if costs.shape[1] > 1:
                run = train_router(
                    self,
                    module,
                    problem,
                    targets,
                    make_optimizer(
                        [(module, float(self.lr))], float(self.weight_decay), self.optimizer
                    ),
                    seed,
                    reseed,
                    options=RUN_OPTIONS if self.schedule is None else (*RUN_OPTIONS, "epochs"),
                    data={"X": X, "costs": costs, "weight": sample_weight},
                    schedule=None if self.schedule is None else learning_rate,
                    patience=int(self.patience),
                    progress=self.progress,
                    remedy=", or scale the features",
                )
        module.eval()
        if self.module is None:
            return network.perceptron_policy(module, decoder), run
        batch_size = int(self.batch_size)
        return network.ModulePolicy(module, decoder, X.shape[1], batch_size, device), run

    def _check_options(self) -> int:
        """Check the parameters and return the seed of this fit."""
        check_training_options(self)
        check_option("optimizer", self.optimizer, OPTIMIZERS)
        if self.schedule is not None:
            check_option("schedule", self.schedule, SCHEDULES)
        check_count("patience", self.patience)
        if isinstance(self.hidden, str) or not isinstance(self.hidden, (Sequence, np.ndarray)):
            raise InvalidInputError(
                f"hidden must be a sequence of layer widths, such as (64,); got {self.hidden!r}.",
                parameter="hidden",
            )
        for width in self.hidden:
            check_count("every width in hidden", width)
        state = self.random_state
        if state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, bool) or not isinstance(state, Integral) or state < 0:
            raise InvalidInputError(
                f"random_state must be a non-negative integer, a RandomState or None; got {state!r}.",
                parameter="random_state",
            )
        return int(state)
