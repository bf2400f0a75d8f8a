"""The methods that the experiments compare, and the losses that they stand for.

A method is written as one word or as ``mild:key=value,...``. ``mild`` alone is the literal reading of the
paper: ``others`` rewards, theory margins from reward counts, summing to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from mild.core.costs import ALL_REWARDS, REWARDS, cheapest
from mild.core.losses import class_weights, ldam_margins
from mild.core.margins import COUNTS, membership, theory_margins, uniform_margins
from mild.errors import InvalidInputError, OptionError, check_option

if TYPE_CHECKING:
    from torch import Tensor

    from experiments.images.training import Loss

Margins = str | tuple[float, ...] | None
Costs = NDArray[np.float32]
Scores = NDArray[np.floating[Any]]

#: TDEF with other targets, to report what makes `others` rewards work (``control_rewards``).
CONTROLS = ("tdef-smoothed", "tdef-smoothed-half", "tdef-dropped")
METHODS = ("mild", "tdef", "plugin", "ce", "cwce", "ldam", *CONTROLS)
#: How margins are found.
MARGINS = ("uniform", "theory", "tuned", "grid")
#: Rewards as they are, or scaled to mean row sum 1.
SCALES = ("raw", "unit")
OPTIONS = ("rewards", "counts", "margins", "total", "strength")
# A word that stands for MILD with these margins, and the sum of the margins where none is given.
SHORT = {"mild": "theory", "uniform": "uniform", "tuned": "tuned", "grid": "grid"}
TOTALS = {"theory": "1", "grid": "1", "uniform": "mean1", "tuned": "mean1"}
LABELS = {"tdef": "TDEF", "plugin": "plug-in", "ce": "CE", "cwce": "CWCE", "ldam": "LDAM"} | {
    "tdef-smoothed": "TDEF, smoothed targets",
    "tdef-smoothed-half": "TDEF, smoothed targets, ambiguous rows at half weight",
    "tdef-dropped": "TDEF, ambiguous rows dropped",
}
LDAM_SCALE, LDAM_MARGIN = 30.0, 0.5


@dataclass(frozen=True)
class Method:
    """One way to train a router. Options that mean nothing to a method are None.

    Attributes
    ----------
    name : one of METHODS
    rewards : "others", "complement", "contrast" or "baseline"; "any" lets a search choose
    counts : "reward" or "best", the mass that theory margins use
    margins : one of MARGINS, or numbers
    total : the sum of the margins as text: a number, or "mean3" for 3 times the number of experts
    strength : of "baseline" rewards

    >>> Method.parse("mild:rewards=contrast,total=mean3").text
    'mild:rewards=contrast,counts=reward,margins=theory,total=mean3'
    """

    name: str = "mild"
    rewards: str | None = None
    counts: str | None = None
    margins: Margins = None
    total: str | None = None
    strength: float | None = None

    def __post_init__(self) -> None:
        check_option("method", self.name, METHODS)
        if self.name != "mild":
            given = [option for option in OPTIONS if getattr(self, option) is not None]
            if given:
                raise OptionError(f"{given[0]} is an option of mild alone; got it for {self.name}.")
            return
        margins: str | tuple[float, ...] = self.margins or "theory"
        if isinstance(margins, str):
            check_option("margins", margins, MARGINS)
            total = _total(self.total or TOTALS[margins])
        else:
            margins = tuple(float(value) for value in margins)
            if not all(0 < value < math.inf for value in margins):
                raise OptionError(
                    f"margins must be positive, one number per expert; got {margins}."
                )
            if self.total is not None:
                raise OptionError(
                    f"total must be left out where margins are numbers; got {self.total}."
                )
            total = None
        counted = margins in ("theory", "grid")
        if self.counts is not None and not counted:
            raise OptionError(
                f"counts is an option of theory and grid margins alone; got {self.counts!r}."
            )
        rewards = self.rewards or "others"
        check_option("rewards", rewards, (*REWARDS, "any") if margins == "tuned" else ALL_REWARDS)
        if (self.strength is None) == (rewards == "baseline"):
            raise OptionError("strength must be given with baseline rewards, and with no others.")
        if self.strength is not None and not 0 <= self.strength < math.inf:
            raise OptionError(f"strength must be 0 or more; got {self.strength:g}.")
        counts = check_option("counts", self.counts or "reward", COUNTS) if counted else None
        for field, value in zip(OPTIONS, (rewards, counts, margins, total), strict=False):
            object.__setattr__(self, field, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The method that ``text`` asks for."""
        word, colon, rest = text.strip().partition(":")
        name = check_option("method", word.strip(), (*SHORT, *METHODS[1:]))
        options: dict[str, Any] = {}
        for part in rest.split(",") if colon else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not (equals and value) or key in options:
                raise OptionError(
                    f"options of a method must read key=value, each once, with commas between; got "
                    f"{part!r} in {text!r}."
                )
            options[check_option("option of a method", key, OPTIONS)] = value
        try:
            if "strength" in options:
                options["strength"] = float(options["strength"])
            if options.get("margins", "theory") not in MARGINS:
                options["margins"] = tuple(map(float, options["margins"].split("/")))
        except ValueError as error:
            raise OptionError(
                f"margins must be one of {', '.join(MARGINS)} or numbers a/b/c, and strength a number; got "
                f"{text!r}."
            ) from error
        if name not in SHORT:
            return cls(name, **options)
        if name != "mild" and "margins" in options:
            raise OptionError(f"margins must not be given with {name!r}, which says them already.")
        return cls("mild", **{"margins": SHORT[name], **options})

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record; without ``strength`` where there is none, as in the first records."""
        values = asdict(self)
        if self.strength is None:
            del values["strength"]
        if isinstance(self.margins, tuple):
            values["margins"] = list(self.margins)
        return values

    @property
    def text(self) -> str:
        """What ``parse`` reads back as this method."""
        if self.name != "mild":
            return self.name
        values = {name: getattr(self, name) for name in OPTIONS}
        if isinstance(self.margins, tuple):
            values["margins"] = "/".join(f"{value:g}" for value in self.margins)
        return "mild:" + ",".join(f"{k}={v}" for k, v in values.items() if v is not None)

    @property
    def searched(self) -> bool:
        """Whether its margins are found by a search on held-out rows."""
        return self.margins in ("tuned", "grid")

    def sum_of_margins(self, n_experts: int) -> float:
        """The sum that the margins are scaled to."""
        total = self.total or "1"
        return float(total[4:]) * n_experts if total.startswith("mean") else float(total)

    def with_margins(self, margins: Sequence[float], rewards: str | None = None) -> Method:
        """The same method at margins that a search found, perhaps with other rewards."""
        found = tuple(float(value) for value in margins)
        return replace(
            self, margins=found, rewards=rewards or self.rewards, counts=None, total=None
        )


def method_label(method: dict[str, Any], decision: str | None = None) -> str:
    """Name of a method, as a record holds it, in tables.

    >>> method_label(Method.parse("uniform").as_dict())
    'MILD others, uniform, mean ρ=1'
    """
    if method["name"] != "mild":
        return LABELS.get(method["name"], method["name"])
    margins, total = method.get("margins"), method.get("total")
    strength = method.get("strength")
    parts = [f"MILD {method.get('rewards')}" + ("" if strength is None else f" {strength:g}")]
    if isinstance(margins, str):
        parts.append(f"{margins} ({method['counts']})" if method.get("counts") else margins)
    else:
        parts.append("ρ=" + "/".join(f"{value:g}" for value in margins or ()))
    if total:
        mean = total.startswith("mean")
        parts.append(f"mean ρ={total.removeprefix('mean')}" if mean else f"Σρ={total}")
    # With equal margins both rules choose alike.
    return ", ".join(parts + ([decision] if decision and margins != "uniform" else []))


def _total(total: str) -> str:
    prefix = "mean" if total.startswith("mean") else ""
    try:
        value = float(total.removeprefix("mean"))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise OptionError(f"total must be a positive number, or mean3 and the like; got {total!r}.")
    return f"{prefix}{value!r}".removesuffix(".0")


#: Every reading that the paper leaves open, and TDEF.
READINGS = (
    *(
        Method("mild", rewards, counts, "theory", total)
        for rewards in REWARDS
        for counts in COUNTS
        for total in ("1", "mean1", "mean3")
    ),
    Method("mild", "others", margins="uniform", total="mean1"),
    Method("mild", "contrast", margins="uniform", total="mean1"),
    Method("tdef"),
)


def robustness(center: Sequence[float], steps: Sequence[float] = (1, 3, 5)) -> tuple[Method, ...]:
    """Margins around ``center`` (the paper's appendix): each expert moved alone, and all together.

    >>> [method.margins for method in robustness((0.5, 0.25), steps=(1,))]
    [(0.5, 0.25), (1.5, 0.25), (0.5, 1.25), (1.5, 1.25)]
    """
    moves = [*np.eye(len(center)), np.ones(len(center))]
    points = [tuple(center)]
    points += [tuple(np.round(np.add(center, step * move), 4)) for move in moves for step in steps]
    return tuple(Method("mild", margins=tuple(map(float, point))) for point in points)


#: Around the theory for others rewards, reward counts, sum 1 and coverage 7-2-1.
ROBUSTNESS = robustness((0.3629, 0.3232, 0.3139))


def _as_they_are(scores: Scores) -> Scores:
    return scores


@dataclass(frozen=True)
class Objective:
    """A loss ready for training, and the margins that its scores are decoded with.

    ``loss_on(costs)`` is the same loss for other rows. ``margins`` is None for methods that decide by the
    largest value without them. ``values(scores)`` are what a decision compares; higher is better.
    """

    loss: Loss
    margins: tuple[float, ...] | None
    loss_on: Callable[[Costs], Loss]
    values: Callable[[Scores], Scores] = _as_they_are


def decisions(margins: Sequence[float] | None) -> tuple[str, ...]:
    """Decision rules that differ at these margins.

    >>> decisions([1.0, 1.0]), decisions([1.0, 2.0]), decisions(None)
    (('argmax',), ('argmax', 'stationary'), ('argmax',))
    """
    return ("argmax",) if margins is None or len(set(margins)) == 1 else ("argmax", "stationary")


def training_margins(method: Method, costs: Costs, largest: float) -> tuple[float, ...]:
    """Margins (n_experts,) of a method with rewards on rows with these costs."""
    p = costs.shape[1]
    if method.name != "mild":
        return (1.0,) * p
    if method.searched or method.rewards == "any":
        raise InvalidInputError(f"margins of {method.text} must be searched before training.")
    if isinstance(method.margins, tuple):
        if len(method.margins) != p:
            raise InvalidInputError(
                f"{method.text} must have one margin per expert, {p}; got {len(method.margins)}."
            )
        return method.margins
    total = method.sum_of_margins(p)
    kind, counts = str(method.rewards), str(method.counts)
    found = uniform_margins(p, total)
    if method.margins == "theory":
        mass = membership(costs, kind, counts, largest, method.strength or 0.0).sum(axis=0)
        # Without any mass all experts cost the same in every row.
        found = theory_margins(mass, total=total) if mass.any() else found
    return tuple(float(value) for value in found)


def make_objective(
    method: Method,
    costs: Costs,
    largest: float,
    device: str = "cpu",
    scale: str = "raw",
    prices: Sequence[float] | NDArray[np.float64] | None = None,
) -> Objective:
    """The loss of ``method`` on rows with these costs.

    MILD and TDEF: ``sum_k reward_ik * log sum_k' exp((f_k' - f_k) / rho_k)``. Everything that a step needs
    lies on the device before the first step, so that a step may be recorded as a CUDA graph.

    ``largest`` is the largest possible cost, the scale of complement rewards; ``scale`` "unit" stands for
    rewards of mean row sum 1. ``prices`` (n_experts,) are the part of the costs that is no error, none by
    default; the plug-in alone treats them apart.
    """
    import torch

    from mild.nn import mild_loss, rewards
    from mild.nn.tensors import check_margins

    check_option("scale", scale, SCALES)
    if method.name in ("ce", "cwce", "ldam"):
        return _label_objective(method.name, costs, device)
    if method.name == "plugin":
        return _plugin_objective(
            costs, np.zeros(costs.shape[1]) if prices is None else prices, device
        )
    margins = training_margins(method, costs, largest)

    def weigh(costs: Costs) -> Tensor:
        tensor = torch.as_tensor(costs, device=device)
        if method.name in CONTROLS:
            return control_rewards(tensor, method.name, largest)
        return rewards(tensor, method.rewards or "complement", largest, method.strength or 0.0)

    unit = 1.0
    if scale == "unit":
        unit = float(weigh(costs).sum(dim=1, dtype=torch.float64).mean()) or 1.0

    def loss_on(costs: Costs) -> Loss:
        weights = weigh(costs) / unit
        rho = check_margins(list(margins), weights)
        return lambda scores, rows: mild_loss(scores, weights[rows], rho)

    return Objective(loss_on(costs), margins, loss_on)


def control_rewards(costs: Tensor, name: str, largest: float) -> Tensor:
    """Rewards (n, n_experts) of TDEF with the targets of one of the controls.

    A row is ambiguous where several experts cost least. "tdef-smoothed" gives the other rows the target
    of `others` rewards at TDEF's weight, (2, 1, 1) / 4 where one of three experts is right;
    "tdef-smoothed-half" also halves the weight of ambiguous rows; "tdef-dropped" keeps TDEF's targets and
    leaves ambiguous rows out.

    >>> import torch
    >>> control_rewards(torch.tensor([[0., 1, 1], [0, 0, 1]]), "tdef-smoothed-half", 1.0)
    tensor([[0.5000, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.0000]])
    """
    import torch

    from mild.nn import rewards

    hard = rewards(costs, "complement", cost_scale=largest)
    ambiguous = (costs == costs.min(dim=1, keepdim=True).values).sum(dim=1, keepdim=True) > 1
    if name == "tdef-dropped":
        return hard.masked_fill(ambiguous, 0.0)
    smooth = rewards(costs, "others")
    smooth = smooth * (hard.sum(dim=1) / smooth.sum(dim=1).clamp(min=1e-12))[:, None]
    return torch.where(ambiguous, hard * (0.5 if name == "tdef-smoothed-half" else 1.0), smooth)


def _plugin_objective(
    costs: Costs, prices: Sequence[float] | NDArray[np.float64], device: str
) -> Objective:
    """One logistic loss per expert on whether it is right; decides by estimated error plus price."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    charged = np.asarray(prices, np.float64)

    def loss_on(costs: Costs) -> Loss:
        right = torch.as_tensor(costs - charged < 0.5, dtype=torch.float32, device=device)
        return lambda scores, rows: binary_cross_entropy_with_logits(
            scores, right[rows], reduction="none"
        ).sum(dim=1)

    return Objective(
        loss_on(costs), None, loss_on, lambda scores: expit(scores.astype(np.float64)) - charged
    )


def _label_objective(name: str, costs: Costs, device: str) -> Objective:
    """CE, CWCE and LDAM, the cheapest expert being the label (ties to the lowest index)."""
    import torch

    from mild.nn import cross_entropy_loss

    counts = np.bincount(cheapest(costs), minlength=costs.shape[1])

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=torch.float32, device=device)

    weights = tensor(class_weights(counts)) if name == "cwce" else None
    # mild.nn.ldam_loss looks at the counts in every call, which waits for the device.
    delta = tensor(np.diag(ldam_margins(counts, LDAM_MARGIN)))

    def loss_on(costs: Costs) -> Loss:
        labels = torch.as_tensor(cheapest(costs), dtype=torch.int64, device=device)
        if name == "ldam":
            return lambda scores, rows: cross_entropy_loss(
                LDAM_SCALE * (scores - delta[labels[rows]]), labels[rows]
            )
        return lambda scores, rows: cross_entropy_loss(scores, labels[rows], weights)

    return Objective(loss_on(costs), None, loss_on)
