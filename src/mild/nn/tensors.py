"""Validation of tensors; losses check nothing that would synchronise with the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from mild.core import arrays
from mild.core.arrays import check_shape, invalid

Vector: TypeAlias = Tensor | Sequence[float]


class Margins(NamedTuple):
    """Margins on the device, prepared once for many training steps."""

    per_expert: Tensor  # (p,), equal to distinct[group_of]
    distinct: tuple[float, ...]  # in rising order
    group_of: Tensor  # (p,) index of each expert's margin in ``distinct``


def float_matrix(name: str, values: Tensor, like: Tensor | None = None) -> Tensor:
    """Return a float32 or float64 tensor (n_samples, n_experts); half precision becomes float32.

    ``like`` is a tensor whose shape, device and dtype the result must have.
    """
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
    if like is not None:
        check_shape(name, values.shape, "(n_samples, n_experts)", like.shape)
        return values.to(like.device, like.dtype)
    if values.dtype in (torch.float32, torch.float64):
        return values
    if values.is_floating_point():
        return values.to(torch.float32)
    return values.to(torch.get_default_dtype())


def check_non_negative(name: str, values: Tensor) -> Tensor:
    """Return finite, non-negative numbers; waits for the device."""
    bad = ~(torch.isfinite(values) & (values >= 0))
    if bool(bad.any()):
        raise invalid(name, f"must be finite and non-negative; got {values[bad][0]:g}.")
    return values


def check_labels(labels: Tensor, like: Tensor, name: str = "labels") -> Tensor:
    """Return one integer label per row of ``like``, on its device; the range is not checked."""
    rule = f"must be a tensor of shape (n_samples,) = ({like.shape[0]},)"
    if not isinstance(labels, Tensor):
        raise invalid(name, f"{rule}; got {type(labels).__name__}.")
    if labels.shape != like.shape[:1]:
        raise invalid(name, f"{rule}; got {tuple(labels.shape)}.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise invalid(name, f"must be integers; got dtype {labels.dtype}.")
    return labels.to(like.device, torch.int64)


def check_vector(name: str, values: Vector, like: Tensor) -> Tensor:
    """Return one number per expert, in the precision and on the device of ``like``."""
    try:
        array = torch.as_tensor(values, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise invalid(name, f"must be numbers; got {values!r}.") from error
    check_shape(name, array.shape, "(n_experts,)", like.shape[1:])
    return array


def check_margins(margins: Vector | float | Margins | None, like: Tensor) -> Margins:
    """Return positive margins, one per expert; None stands for all ones, a number for all equal.

    ``Margins`` are returned as they are, so that a training step copies nothing to the device. They
    must have the device and dtype of the scores; for float64 scores they are converted exactly.
    """
    if not isinstance(margins, Margins):
        array = arrays.check_margins(to_numpy(margins), like.shape[1])
        distinct, group_of = np.unique(array, return_inverse=True)
        return Margins(
            torch.from_numpy(array).to(like.dtype).to(like.device),
            tuple(distinct.tolist()),
            torch.from_numpy(group_of).to(like.device),
        )
    prepared = margins.per_expert
    check_shape("margins", prepared.shape, "(n_experts,)", like.shape[1:])
    if prepared.device == like.device and prepared.dtype == like.dtype:
        return margins
    if prepared.device == like.device and like.dtype == torch.float64:
        exact = torch.tensor(margins.distinct, dtype=like.dtype, device=like.device)
        return margins._replace(per_expert=exact[margins.group_of])
    raise invalid(
        "margins",
        f"prepared from scores must have their device and precision, {like.device} and "
        f"{like.dtype}; got {prepared.device} and {prepared.dtype}. Prepare them again, from such scores.",
    )


def to_numpy(values: Any) -> Any:
    """Tensors as float64 arrays; anything else as it is."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float64).numpy()
    return values


def argmax_last(values: Tensor) -> Tensor:
    """Index of the largest entry per row, ties to the highest index (the paper's rule)."""
    return values.shape[1] - 1 - values.flip(1).argmax(dim=1)
