"""A neural router: any network that scores experts, trained in minibatches on any of the losses."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, invalid
from mild.errors import (
    ConvergenceWarning,
    InvalidInputError,
    MissingExtraError,
    check_constructor,
    install_hint,
)
from mild.policies import Decoder, ScorePolicy
from mild.routers.base import SurrogateRouter
from mild.routers.objective import LABEL_LOSSES, training_targets


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkRouter(SurrogateRouter):
    """A router that is trained in minibatches; NeuralRouter documents these parameters."""

    epochs: int = 50
    batch_size: int = 256
    lr: float = 1e-3
    weight_decay: float = 1e-4
    validation_fraction: float = 0.1
    device: Any = "auto"
    random_state: Any = 0
    progress: Callable[[int, int, str], Any] | None = None


@check_constructor
@dataclass(eq=False, repr=False)
class NeuralRouter(NetworkRouter):
    """Scores ``f(x, k)`` of a network, trained on a surrogate of the deferral loss.

    Minimises ``mean_i sum_k reward_ik * surrogate_k(f(x_i))``, rewards scaled to mean row sum 1, in
    minibatches of nearly equal size, in float32. Weight decay spares biases and other vectors. A
    part of the rows is held out: training stops when the deferral loss there has not improved for
    ``patience`` epochs (between epochs of equal deferral loss the smaller surrogate counts as better),
    and the best epoch is kept.

    Features of very different scales train badly: put a ``StandardScaler`` before the router.

    Parameters
    ----------
    module : torch.nn.Module or callable, default=None
        A network that maps (n, n_features) float32 to (n, n_experts), which is copied; or a callable
        ``module(n_features, n_experts)`` that returns one; None for a ReLU perceptron.
    hidden : tuple of int, default=(64,)
        Widths of the hidden layers if ``module`` is None; () is a linear router.
    loss, rewards, strength, margins, counts, norms, total, share_below, cost_scale, decision, ties : object
        As for LinearRouter.
    sampling : {"over", "under"}, default=None
        As for LinearRouter.
    surrogate : {"logistic", "exponential", "hinge", "pairwise_..."} or float, default="logistic"
        The surrogate of mild and tdef: "logistic", "exponential", "hinge", "pairwise_..." or tau >= 0.
        From tau = 2 on no distribution can be read from the scores: the largest score decides.
    epochs : int, default=50
        Largest number of passes over the training rows.
    batch_size : int, default=256
        Largest number of rows per step.
    lr : float, default=1e-3
        Learning rate; with a schedule its largest value.
    weight_decay : float, default=1e-4
        Weight decay of matrices.
    optimizer : {"adamw", "adam", "sgd"}, default="adamw"
        "adamw", "adam" or "sgd", which has the momentum 0.9.
    schedule : {"onecycle"}, default=None
        "onecycle" rises for 30 % of the steps, then falls to almost 0; None is constant.
    validation_fraction : float, default=0.1
        Share of the rows held out, in [0, 1); 0 trains on all, to the end.
    patience : int, default=10
        Epochs without improvement before training stops.
    device : str or torch.device, default="auto"
        "auto" is a CUDA device if there is one, else the CPU; or what torch calls a device.
    random_state : int, RandomState or None, default=0
        With a number, fits repeat themselves on the same machine.
    warm_start : bool, default=False
        Whether to start from the last solution where it has the same shape.
    progress : callable, default=None
        Called as ``progress(epoch, epochs, message)`` after every epoch.

    Attributes
    ----------
    margins_ : ndarray of shape (n_experts,)
        The margins the router was trained with.
    n_iter_ : int
        Epochs run.
    best_epoch_ : int
        The epoch that was kept, counted from 1.
    history_ : list of dict
        One per epoch: "epoch", "loss" (mean surrogate over the epoch), "learning_rate" and, with rows held
        out, "validation_loss" (deferral loss) and "validation_surrogate".

    Examples
    --------
    >>> X = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    >>> costs = [[0, 1], [1, 0], [1, 0], [0, 1]]  # exclusive or: no linear router can learn this
    >>> router = NeuralRouter(hidden=(16,), lr=0.05, epochs=100).fit(X, costs)
    >>> router.predict(X)
    array([0, 1, 1, 0])
    """

    module: Any = None
    _: KW_ONLY
    hidden: Any = (64,)
    norms: str = "none"
    share_below: float = 0.0
    sampling: str | None = None
    optimizer: str = "adamw"
    schedule: str | None = None
    patience: int = 10
    warm_start: bool = False

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ScorePolicy:
        """Train a network, and return the policy of its best epoch."""
        _check_torch()
        # Imported here, because these modules import torch.
        from mild.routers.neural import network, training

        seed = self._seed()
        self._warn_if_degenerate(costs, by_label=self.loss in LABEL_LOSSES)
        targets = training_targets(self, X, costs, sample_weight)
        device = network.find_device(self.device)
        decoder = Decoder(targets.margins, self.decision, targets.surrogate)
        problem = network.Problem(
            X,
            costs,
            sample_weight,
            targets,
            decoder,
            float(self.validation_fraction),
            seed,
            device,
        )
        with training.own_randomness(device) as reseed:
            reseed(seed)
            module = network.build_module(self.module, self.hidden, problem)
            if self.warm_start and hasattr(self, "policy_"):
                network.warm_start(module, self.policy_)
            run = training.Run()
            if problem.n_experts > 1:  # with one expert there is nothing to learn
                run = self._train(module, problem, reseed)
        module.eval()
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
        if self.module is None:
            return network.perceptron_policy(module, decoder)
        return network.ModulePolicy(module, decoder, X.shape[1], int(self.batch_size), device)

    def _train(self, module: Any, problem: Any, reseed: Callable[[int], None]) -> Any:
        """Train the network in place; return the ``Run``, with the network at its best epoch."""
        from mild.routers.neural import training  # imports torch

        optimizer = training.make_optimizer(
            [(module, float(self.lr))], float(self.weight_decay), self.optimizer
        )
        schedule = None
        if self.schedule is not None:
            schedule = training.learning_rate
        return training.train_router(
            self,
            module,
            problem,
            optimizer,
            reseed,
            schedule=schedule,
            patience=int(self.patience),
            progress=self.progress,
            remedy=", or scale the features",
        )

    def _check_options(self) -> None:
        super()._check_options()
        if isinstance(self.hidden, str) or not isinstance(self.hidden, (Sequence, np.ndarray)):
            raise invalid(
                "hidden",
                f"must be a sequence of layer widths, such as (64,); got {self.hidden!r}.",
            )
        for width in self.hidden:
            if isinstance(width, bool) or not isinstance(width, Integral) or width < 1:
                reason = f"every width in hidden must be an integer, at least 1; got {width!r}."
                raise InvalidInputError(reason, parameter="hidden")

    def _seed(self) -> int:
        """Return a seed from ``random_state``."""
        state = self.random_state
        if state is None:
            return int(np.random.SeedSequence().generate_state(1)[0])
        if isinstance(state, np.random.RandomState):
            return int(state.randint(2**31 - 1))
        if isinstance(state, bool) or not isinstance(state, Integral) or state < 0:
            raise invalid(
                "random_state",
                f"must be a non-negative integer, a RandomState or None; got {state!r}.",
            )
        return int(state)


def _check_torch() -> None:
    """Raise an error that says how to install torch if it is missing."""
    try:
        importlib.import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            f"NeuralRouter needs torch, which is not installed; run: {install_hint('neural')}."
        ) from error
