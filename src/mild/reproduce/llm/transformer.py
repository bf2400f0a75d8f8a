"""The seam to the fine-tuned transformer: a method becomes its options, one training both decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mild.arrays import FloatArray
from mild.reproduce.llm.linear import Fitted
from mild.reproduce.methods import Method
from mild.reproduce.outcomes import decisions

__all__ = ["fit_transformer", "transformer_protocol"]

# Of the router's own options those that change what a training gives.
SETTINGS = (
    *("epochs", "lr", "head_lr", "batch_size", "max_length", "weight_decay", "warmup", "clip"),
    *("dropout", "pooling", "precision"),
)


def transformer_protocol(model: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """What a record says of the training: the model, its files' digest and every setting."""
    from mild.text.model_places import digest_files, model_folder
    from mild.transformer import DEBERTA, TransformerRouter

    source = model or DEBERTA
    router = TransformerRouter(source, **options)
    folder = model_folder(source, None, "config.json")
    features: dict[str, Any] = {"kind": "transformer", "model": Path(source).name}
    if folder is not None:
        features["sha256"] = digest_files(folder, ("config.json", "model.safetensors"))
    return {
        "name": "transformer",
        "features": features,
        **{name: getattr(router, name) for name in SETTINGS},
    }


def fit_transformer(
    method: Method,
    train: Sequence[str],
    costs: FloatArray,
    test: Sequence[str],
    largest: float,
    seed: int,
    model: str | None,
    options: dict[str, Any],
    tell: Callable[[str], None],
) -> list[Fitted]:
    """Fine-tune on the training texts; both decision rules read the same scores."""
    from mild.transformer import DEBERTA, TransformerRouter

    asked: dict[str, Any] = {"loss": method.name}
    if method.name in ("mild", "tdef"):
        asked["cost_scale"] = largest
    if method.name == "mild":
        asked |= {"rewards": method.rewards, "counts": method.counts or "reward"}
        asked["margins"] = method.margins
        if not isinstance(method.margins, tuple):
            asked["total"] = method.sum_of_margins(costs.shape[1])
    router = TransformerRouter(
        model or DEBERTA,
        **{**asked, **options},
        random_state=seed,
        progress=lambda done, total, said: tell(f"step {done} of {total}, {said}"),
    )
    router.fit(list(train), costs)
    scores = router.decision_function(list(test))
    margins = None
    if method.name in ("mild", "tdef"):
        margins = tuple(float(value) for value in router.margins_)
    found = {"final_loss": float(router.history_[-1]["loss"])}
    return [Fitted(rule, scores, margins, found) for rule in decisions(margins)]
