"""What a client asks for by the name of a model."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mild_gateway.experts.translation.fields import cut_short
from mild_gateway.refusals import Refusal

ROUTER_MODEL = "mild"
DIRECT_MODEL = "mild-direct"
# Of the demo, whose model ``mild`` asks one expert.
CASCADE_MODEL = "mild-cascade"
# What the ledger says was chosen where a cascade decided.
CASCADE = "cascade"
_PREFIX = "router-mild-"
# Characters of a weight: the name is written to the ledger.
_MAX_CHARACTERS = 32
# A larger weight decides alike, and its products leave the range of single precision.
_MAX_WEIGHT = 1e12


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked for: an expert by name, or the router's choice, perhaps under another price weight.

    With ``direct``, no cascade is used.
    """

    expert: str | None = None
    price_weight: float | None = None
    direct: bool = False


def configured_name(name: str) -> str:
    """The configured expert that an expert of a router is: ``small#2`` is a second call of ``small``.

    >>> configured_name("small#2"), configured_name("small")
    ('small', 'small')
    """
    base, _, number = name.rpartition("#")
    if base and number.isdecimal():
        return base
    return name


def without_endpoint(names: Sequence[str], configured: Collection[str]) -> list[str]:
    """Those of a router's experts that no configured expert answers for.

    >>> without_endpoint(["small", "small#2", "large"], ["small"])
    ['large']
    """
    return [name for name in names if configured_name(name) not in configured]


def router_models(cascade_by_name: bool) -> list[str]:
    """Names of the models that the router decides for."""
    if cascade_by_name:
        return [ROUTER_MODEL, CASCADE_MODEL, DIRECT_MODEL]
    return [ROUTER_MODEL, DIRECT_MODEL]


def read_model(
    model: object, experts: Sequence[str], weighs: bool, cascade_by_name: bool = False
) -> ModelRequest:
    """Read the name of a model: ``mild``, ``mild-direct``, ``router-mild-<t>`` or an expert's own.

    With ``cascade_by_name``, only ``mild-cascade`` asks the router's cascade.

    Refusal 400 if it is no text or t no number, 404 if nobody has that name.

    >>> read_model("mild", ["small"], True)
    ModelRequest(expert=None, price_weight=None, direct=False)
    >>> read_model("router-mild-0.5", ["small"], True), read_model("small", ["small"], True).expert
    (ModelRequest(expert=None, price_weight=0.5, direct=False), 'small')
    """
    if model == ROUTER_MODEL:
        return ModelRequest(direct=cascade_by_name)
    if model == CASCADE_MODEL and cascade_by_name:
        return ModelRequest()
    if model == DIRECT_MODEL:
        return ModelRequest(direct=True)
    if not isinstance(model, str) or not model:
        problem = "It is not a string."
        if model is None:
            problem = "It is missing."
        message = f"The request must name a model. {problem}"
        raise Refusal(400, message, code="model_missing", param="model")
    if model in experts:
        return ModelRequest(expert=model)
    if model.startswith(_PREFIX):
        return ModelRequest(price_weight=_weight(model.removeprefix(_PREFIX)))
    names = router_models(cascade_by_name)
    if weighs:
        names.append(f"{_PREFIX}<t>")
    names.extend(experts)
    raise Refusal(
        404,
        f"There is no model {cut_short(model)!r}. Valid names: {', '.join(names)}.",
        code="model_not_found",
        param="model",
    )


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= _MAX_WEIGHT or not text.isascii() or len(text) > _MAX_CHARACTERS:
        raise Refusal(
            400,
            f"{_PREFIX}<t> takes a number t from 0 to 1e12, the weight of the price: larger is "
            f"cheaper. Got {cut_short(text)!r}.",
            code="invalid_price_weight",
            param="model",
        )
    return weight
