"""How tables call the settings of experiments with language models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["cost_title", "model_notes", "models_title", "training_title"]


def models_title(cell: Mapping[str, Any]) -> str:
    """The experts with their accuracies.

    Examples
    --------
    >>> models_title({"models": ["Q-7B-it", "Q-1B-it"], "coverage": [0.56, 0.4]})
    'Q 7B, 1B it (accuracy 56-40 %)'
    """
    right = "-".join(f"{100 * part:.0f}" for part in cell["coverage"])
    parts = [name.split("-") for name in cell["models"]]
    least = min(map(len, parts)) - 1
    lead = next((i for i in range(least) if len({each[i] for each in parts}) > 1), least)
    end = next(
        (i for i in range(least - lead) if len({p[-1 - i] for p in parts}) > 1), least - lead
    )
    names = ", ".join("-".join(each[lead : len(each) - end]) for each in parts)
    shared = ["-".join(parts[0][:lead]), names, "-".join(parts[0][len(parts[0]) - end :])]
    return f"{' '.join(filter(None, shared))} (accuracy {right} %)"


def cost_title(cell: Mapping[str, Any]) -> str:
    """The setting: errors, what asking costs, and what was done to the costs."""
    if cell["cost"] == "error":
        title = "error"
    else:
        prices = ", ".join(f"{value:g}" for value in cell["beta"])
        title = f"error + cost ({prices})"
    if cell["skew"]:
        title += f", skewed to {100 * cell['skew']['share']:g} %"
    if cell["noise"]:
        title += f", {cell['noise']['kind']} noise {cell['noise']['std']:g}"
    return title


def training_title(protocol: Mapping[str, Any]) -> str:
    """The router: linear on some features, or a fine-tuned transformer.

    Examples
    --------
    >>> training_title({"name": "linear", "features": {"kind": "hashing"}, "alphas": [0.1]})
    'linear on hashing features, strength 0.1'
    """
    features = protocol["features"]
    model = features.get("model")
    if protocol["name"] != "linear":
        return f"{model} fine-tuned ({protocol['epochs']} epochs, learning rate {protocol['lr']:g})"
    title = f"linear on {features['kind']} features" + (f" ({model})" if model else "")
    alphas = protocol["alphas"]
    return f"{title}, strength {alphas[0]:g}" if len(alphas) == 1 else title


def model_notes(cell: Mapping[str, Any], paper: bool) -> list[str]:
    """What a reader of a block must know of how the paper's words were read."""
    notes = []
    if paper:
        notes.append(
            "The paper's figures are for the same three models on other MMLU questions (high-school "
            "mathematics and world history), with a fine-tuned DeBERTa-v3-xsmall."
        )
    if cell["noise"]:
        kind = cell["noise"]["kind"]
        how = "c + s z" if kind == "additive" else "c (1 + s z)"
        notes.append(
            f"Noise: the paper says 20 % random Gaussian variations; read as max(0, {how}) with s = "
            f"{cell['noise']['std']:g} and z standard normal, on the training costs alone: the test "
            f"costs are clean."
        )
    if cell["skew"]:
        notes.append(
            f"Skew: the paper does not print its prices. Here a price is per word (that of a query of "
            f"mean length is the one in brackets), and the smaller models' are raised by "
            f"{cell['skew']['added']:.3g} until {cell['models'][0]} is cheapest on "
            f"{100 * cell['skew']['share']:g} % of the queries. The level of the loss is therefore not "
            f"the paper's; its shares are of the largest model and of both others together."
        )
    return notes
