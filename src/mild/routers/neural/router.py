"""A neural router: any network that scores experts, trained in minibatches on any of the losses."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mild.core.arrays import FloatArray
from mild.errors import ConvergenceWarning, MissingExtraError
from mild.policies import Decoder, ScorePolicy
from mild.routers.base import BaseRouter
from mild.routers.neural.options import check_options, check_together
from mild.routers.targets import LABEL_LOSSES, Targets, training_targets

if TYPE_CHECKING:
    from mild.routers.neural.run import Run

__all__ = ["NeuralRouter"]


class NeuralRouter(BaseRouter):
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
    loss : "mild", "tdef", "ce", "cwce", "ldam", "logit_adjusted" or "temperature"
    rewards : "others", "complement", "contrast" or "baseline"; for ``loss="mild"``
    strength : float >= 0, of ``baseline`` rewards: 0 is contrast, 1 is others
    surrogate : "logistic", "exponential", tau >= 0, "hinge" or "pairwise_..."; for mild and tdef
        From tau = 2 on no distribution can be read from the scores: the largest score decides.
    margins : "theory", "uniform", or (n_experts,) numbers; for ``loss="mild"``
    counts : "reward" or "best", the mass that theory margins use
    norms : "none", "max" or "rms", the feature norms that theory margins use
    total : float, sum of theory or uniform margins; None for the number of experts
    share_below : float, experts with a smaller share of the mass share one theory margin
    cost_scale : float, largest possible cost for complement rewards; None for the largest present
    decision : "stationary" or "argmax"
    sampling : None, "over" or "under": resample rows by their cheapest expert
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

    policy_: ScorePolicy

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

    @property
    def margins_(self) -> FloatArray:
        """(n_experts,) margins the router was trained with."""
        return self.policy_.decoder.margins

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ScorePolicy:
        try:
            importlib.import_module("torch")
        except ImportError as error:
            raise MissingExtraError(
                "NeuralRouter needs torch, which is not installed; "
                'run: pip install "mild-learn[neural]".'
            ) from error
        seed = check_options(self)
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
        # Here and not above: these import torch.
        from mild.routers.neural.checkpoint import Checkpoint, run_options
        from mild.routers.neural.group import Group
        from mild.routers.neural.network import build_module, find_device, warm_start
        from mild.routers.neural.policy import ModulePolicy, perceptron_policy
        from mild.routers.neural.problem import Problem
        from mild.routers.neural.run import Run
        from mild.routers.neural.training import Settings, own_randomness, train

        group = Group()
        check_together(self, group.size)
        device = find_device(self.device)
        decoder = Decoder(targets.margins, self.decision, targets.surrogate)
        held_out = float(self.validation_fraction)
        problem = Problem(X, costs, sample_weight, targets, decoder, held_out, seed, device)
        with own_randomness(device) as reseed:
            reseed(seed)
            module = build_module(self.module, self.hidden, problem)
            if self.warm_start and hasattr(self, "policy_"):
                warm_start(module, self.policy_)
            run = Run()
            if costs.shape[1] > 1:
                settings = Settings.of(self, seed)
                store = None
                group.begin(module)
                if self.checkpoint is not None or group.size > 1:
                    options = run_options(self, X, costs, sample_weight, targets, module)
                    group.check_same(options)
                if self.checkpoint is not None:
                    store = Checkpoint(self.checkpoint, options, bool(self.resume))
                run = train(module, problem, settings, reseed, store, self.progress, group)
        module.eval()
        if self.module is None:
            return perceptron_policy(module, decoder), run
        return ModulePolicy(module, decoder, X.shape[1], int(self.batch_size), device), run
