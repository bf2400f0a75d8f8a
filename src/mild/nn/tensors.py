"""Validation of tensors; losses check nothing that would synchronise with the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from mild.core.arrays import invalid
from mild.errors import InvalidInputError

__all__ = [
    "Margins",
    "Vector",
    "argmax_last",
    "check_costs",
    "check_labels",
    "check_margins",
    "check_same_shape",
    "check_vector",
    "float_matrix",
]

Vector: TypeAlias = Tensor | Sequence[float]


class Margins(NamedTuple):
    """Margins on the device: ``per_expert`` (p,), equal to ``distinct[group_of]``; distinct is sorted."""

    per_expert: Tensor
    distinct: tuple[float, ...]
    group_of: Tensor


def float_matrix(name: str, values: Tensor) -> Tensor:
    """Return a float32 or float64 tensor (n_samples, n_experts); half precision becomes float32."""
    if not isinstance(values, Tensor):
        raise invalid(
            name,
            f"must be a torch tensor; got {type(values).__name__}. Use torch.as_tensor, or "
            f"the NumPy function of the same name in mild.",
        )
    if values.ndim != 2 or values.shape[1] == 0:
        raise invalid(
            name,
            f"must have shape (n_samples, n_experts) with at least one expert; "
            f"got {tuple(values.shape)}.",
        )
    if values.is_complex() or values.dtype == torch.bool:
        raise invalid(name, f"must hold real numbers; got dtype {values.dtype}.")
    if values.dtype in (torch.float32, torch.float64):
        return values
    return values.to(torch.float32 if values.is_floating_point() else torch.get_default_dtype())


def check_same_shape(name: str, values: Tensor, like: Tensor) -> None:
    """Refuse ``values`` whose shape is not that of the scores."""
    if values.shape != like.shape:
        raise invalid(
            name,
            f"must have shape (n_samples, n_experts) = {tuple(like.shape)}; "
            f"got {tuple(values.shape)}.",
        )


def check_costs(costs: Tensor) -> Tensor:
    """Return costs (n_samples, n_experts): finite and non-negative, NaN where never asked."""
    array = float_matrix("costs", costs)
    if bool((torch.isinf(array) | (array < 0)).any()):
        raise invalid(
            "costs",
            "must be finite and non-negative, or NaN where an expert was never asked; "
            "got infinite or negative ones.",
        )
    if bool(torch.isnan(array).all(dim=1).any()):
        raise invalid(
            "costs", "must be known for at least one expert in every row; got a row of NaN alone."
        )
    return array


def check_labels(labels: Tensor, like: Tensor, name: str = "labels") -> Tensor:
    """Return one integer label per row of ``like``, on its device; the range is not checked."""
    if not isinstance(labels, Tensor) or labels.shape != like.shape[:1]:
        shape = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
        raise invalid(
            name, f"must be a tensor of shape (n_samples,) = ({like.shape[0]},); got {shape}."
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise invalid(name, f"must be integers; got dtype {labels.dtype}.")
    return labels.to(like.device, torch.int64)


def check_vector(name: str, values: Vector, like: Tensor) -> Tensor:
    """Return one number per expert, in the precision and on the device of ``like``."""
    try:
        array = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid(name, f"must be numbers; got {values!r}.") from error
    if array.shape != (like.shape[1],):
        raise invalid(
            name, f"must have shape (n_experts,) = ({like.shape[1]},); got {tuple(array.shape)}."
        )
    return array


def check_margins(margins: Vector | float | Margins | None, like: Tensor) -> Margins:
    """Return positive margins, one per expert; None stands for all ones, a number for all equal.

    ``Margins`` are returned as they are, so that a training step copies nothing to the device. They
    must have the device and dtype of the scores; for float64 scores they are converted exactly.
    """
    n_experts = like.shape[1]
    if isinstance(margins, Margins):
        if margins.per_expert.shape != (n_experts,):
            raise invalid(
                "margins",
                f"must have shape (n_experts,) = ({n_experts},); "
                f"got {tuple(margins.per_expert.shape)}.",
            )
        return _matching(margins, like)
    if margins is None:
        margins = 1.0
    try:
        array = torch.as_tensor(margins, dtype=torch.float64, device="cpu").detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid("margins", f"must be numbers; got {margins!r}.") from error
    if array.ndim == 0:
        array = array.expand(n_experts)
    if array.shape != (n_experts,):
        raise invalid(
            "margins", f"must have shape (n_experts,) = ({n_experts},); got {tuple(array.shape)}."
        )
    values: list[float] = array.tolist()
    for k, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise invalid("margins", f"must be positive and finite; got {value:g} for expert {k}.")
    distinct = tuple(sorted(set(values)))
    position = {value: g for g, value in enumerate(distinct)}
    return Margins(
        array.to(like.dtype).to(like.device),
        distinct,
        torch.tensor([position[value] for value in values], device=like.device),
    )


def _matching(margins: Margins, like: Tensor) -> Margins:
    """Prepared margins with the device and dtype of ``like``; others are refused."""
    own = margins.per_expert
    if own.device == like.device and own.dtype == like.dtype:
        return margins
    if own.device == like.device and like.dtype == torch.float64:
        exact = torch.tensor(margins.distinct, dtype=like.dtype, device=like.device)
        return margins._replace(per_expert=exact[margins.group_of])
    raise InvalidInputError(
        f"prepared margins must be on the device and in the precision of the scores, {like.device} and "
        f"{like.dtype}; got {own.device} and {own.dtype}. Prepare them again, from such scores.",
        parameter="margins",
    )


def argmax_last(values: Tensor) -> Tensor:
    """Index of the largest entry per row, ties to the highest index (the paper's rule)."""
    return values.shape[1] - 1 - values.flip(1).argmax(dim=1)
