"""How a network is trained: AdamW for 50 epochs, the paper's Adam for 200, or a short run of 16."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from mild.exceptions import InvalidInputError, check_option

__all__ = [
    "CHANGED",
    "DECAYS",
    "DEFAULT",
    "FULL_WIDTH",
    "PROTOCOLS",
    "RECIPE",
    "SCHEDULES",
    "Protocol",
    "recipe",
]

#: Part of the names of what is kept of trainings: raise it when network, initialisation, augmentation
#: or steps change what a training gives.
RECIPE = 1

SCHEDULES = ("constant", "one-cycle")
#: Weight decay as part of the gradient (torch's Adam) or taken off the weights by itself (AdamW).
DECAYS = ("coupled", "decoupled")
#: The protocol that is used where none is named.
DEFAULT = "adamw"
#: Ends the name of a protocol that is not as it was.
CHANGED = ", changed"
#: Channels of ResNet-18's first stage.
FULL_WIDTH = 64
LEAST = {"epochs": 1, "batch_size": 2, "width": 1}


@dataclass(frozen=True)
class Protocol:
    """Settings of one training; results are labelled with ``name``.

    Attributes
    ----------
    epochs, batch_size : ints; every epoch is a new order of the images in full batches, and the
        fewer than ``batch_size`` images that are left over wait for another epoch
    lr, weight_decay : Adam's; all parameters decay
    decay : "coupled" adds ``weight_decay * weight`` to the gradient, so that the size of the loss
        decides how strong it is; "decoupled" subtracts ``lr * weight_decay * weight`` in each step
    schedule : "constant", or "one-cycle": up to ``lr`` for 30 % of the steps, then down to nothing
    augment : random crops from 4 padded pixels (fewer for small images), and mirror images where a
        mirror image means the same
    width : channels of the first stage; ResNet-18 has 64

    Examples
    --------
    >>> PROTOCOLS["fast"].changed(epochs=2, width=None).name
    'fast, changed'
    >>> PROTOCOLS["fast"].changed(epochs=16) == PROTOCOLS["fast"]
    True
    """

    name: str
    epochs: int
    batch_size: int
    lr: float
    weight_decay: float
    schedule: str
    augment: bool
    width: int = FULL_WIDTH
    decay: str = "coupled"

    def __post_init__(self) -> None:
        check_option("schedule", self.schedule, SCHEDULES)
        check_option("decay", self.decay, DECAYS)
        for field, least in LEAST.items():
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInputError(f"{field} must be an integer >= {least}; got {value!r}.")
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise InvalidInputError(f"lr must be positive and finite; got {self.lr}.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise InvalidInputError(
                f"weight_decay must be non-negative and finite; got {self.weight_decay}."
            )

    def changed(self, **fields: Any) -> Protocol:
        """The protocol with other fields (None keeps one), named so that nobody takes it for this."""
        new = {name: value for name, value in fields.items() if value is not None}
        result = dataclasses.replace(self, **new)
        if result == self or "name" in new:
            return result
        return dataclasses.replace(result, name=self.name.removesuffix(CHANGED) + CHANGED)

    @property
    def optimizer(self) -> dict[str, Any]:
        """The optimiser in the words of a record."""
        name = "AdamW" if self.decay == "decoupled" else "Adam"
        return {"name": name, "weight_decay": self.weight_decay, "decay": self.decay}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a results file; without ``decay`` where it is coupled, as in the first ones."""
        values = dataclasses.asdict(self)
        if self.decay == "coupled":
            del values["decay"]
        return values


#: "paper" is the paper's (section 6), which does not say whether it augmented the images, nor which
#: kind of decay it used. The decay of "adamw" is the best of eight for TDEF on held-out training rows
#: of setup I (docs/reproduction.md).
PROTOCOLS = {
    "adamw": Protocol("adamw", 50, 1024, 1e-3, 8.0, "one-cycle", augment=True, decay="decoupled"),
    "paper": Protocol("paper", 200, 1024, 1e-3, 1e-3, "constant", augment=True),
    "fast": Protocol("fast", 16, 1024, 4e-3, 1e-3, "one-cycle", augment=True),
}


def recipe() -> dict[str, int]:
    """What a cell and a checkpoint say of the recipe: nothing of the first, as those of old do."""
    return {} if RECIPE == 1 else {"recipe": RECIPE}
