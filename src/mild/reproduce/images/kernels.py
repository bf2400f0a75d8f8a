"""Batch normalisation in as few passes over memory as it takes: Triton kernels for a CUDA GPU.

Activations are channels-last, read as matrices (rows, channels) of bfloat16. Training a ResNet-18 on
small images spends as much time moving them as multiplying them, so the residual sum, the ReLU and
the sum of two gradients are done in the passes that normalisation needs anyway. Sums are taken over
a fixed partition of the rows: the same input gives the same bits.

Statistics of one layer are a float32 array (4, channels): mean, 1 / deviation, and the affine map
``scale * x + shift`` that normalises and applies weight and bias.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["apply_norm", "grad_norm", "grad_norm_residual", "norm_statistics"]

ROWS, CHANNELS = 64, 64
# About four programs per multiprocessor of a large GPU.
PROGRAMS = 528
ELEMENTS = 4096
WARPS = 8


@triton.jit
def _sums(x_at, out_at, n_rows, per_program, C: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr):
    """Sum and sum of squares of each channel over this program's rows."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    total = tl.zeros((BM, BC), tl.float32)
    squares = tl.zeros((BM, BC), tl.float32)
    for start in range(0, per_program, 2 * BM):
        row = part * per_program + start + tl.arange(0, BM)
        place = row[:, None] * C + channel[None, :]
        x = tl.load(x_at + place, mask=row[:, None] < n_rows, other=0.0).to(tl.float32)
        # Two loads under way at once.
        y = tl.load(x_at + place + BM * C, mask=(row + BM)[:, None] < n_rows, other=0.0).to(
            tl.float32
        )
        total += x + y
        squares += x * x + y * y
    tl.store(out_at + part * 2 * C + channel, tl.sum(total, 0))
    tl.store(out_at + part * 2 * C + C + channel, tl.sum(squares, 0))


@triton.jit
def _statistics(
    sums_at, out_at, weight_at, bias_at, mean_at, var_at, n_rows, n_parts,
    eps, momentum, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Statistics of a layer from partial sums; its running mean and variance move on."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.arange(0, BP)[:, None]
    there = part < n_parts
    place = part * 2 * C + channel[None, :]
    mean = tl.sum(tl.load(sums_at + place, mask=there, other=0.0), 0) / n_rows
    square = tl.sum(tl.load(sums_at + place + C, mask=there, other=0.0), 0) / n_rows
    var = tl.maximum(square - mean * mean, 0.0)
    inverse = 1 / tl.sqrt(var + eps)
    scale = tl.load(weight_at + channel) * inverse
    tl.store(out_at + channel, mean)
    tl.store(out_at + C + channel, inverse)
    tl.store(out_at + 2 * C + channel, scale)
    tl.store(out_at + 3 * C + channel, tl.load(bias_at + channel) - mean * scale)
    unbiased = var * (n_rows / (n_rows - 1.0))
    tl.store(mean_at + channel, (1 - momentum) * tl.load(mean_at + channel) + momentum * mean)
    tl.store(var_at + channel, (1 - momentum) * tl.load(var_at + channel) + momentum * unbiased)


@triton.jit
def _apply(
    x_at, stats_at, residual_at, out_at, n, C: tl.constexpr,
    RESIDUAL: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    channel = place % C
    value = tl.load(x_at + place, mask=there, other=0.0).to(tl.float32)
    value = value * tl.load(stats_at + 2 * C + channel) + tl.load(stats_at + 3 * C + channel)
    if RESIDUAL:
        value += tl.load(residual_at + place, mask=there, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out_at + place, value.to(tl.bfloat16), mask=there)


@triton.jit
def _grad_sums(
    grad_at, other_at, output_at, x_at, stats_at, kept_at, out_at, n_rows, per_program,
    C: tl.constexpr, TWO: tl.constexpr, MASK: tl.constexpr, KEEP: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums over rows of the gradient g past the ReLU, and of g times the normalised input.

    ``TWO``: g is a sum of two gradients. ``MASK``: "output" where a ReLU's output is at hand,
    "input" where it is computed again, "none" without a ReLU. ``KEEP``: g is written out.
    """
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.program_id(1)
    mean = tl.load(stats_at + channel)[None, :]
    inverse = tl.load(stats_at + C + channel)[None, :]
    scale = tl.load(stats_at + 2 * C + channel)[None, :]
    shift = tl.load(stats_at + 3 * C + channel)[None, :]
    total = tl.zeros((BM, BC), tl.float32)
    along = tl.zeros((BM, BC), tl.float32)
    for start in range(0, per_program, BM):
        row = part * per_program + start + tl.arange(0, BM)
        place = row[:, None] * C + channel[None, :]
        there = row[:, None] < n_rows
        x = tl.load(x_at + place, mask=there, other=0.0).to(tl.float32)
        g = tl.load(grad_at + place, mask=there, other=0.0).to(tl.float32)
        if TWO:
            g += tl.load(other_at + place, mask=there, other=0.0).to(tl.float32)
        if MASK == "output":
            g = tl.where(tl.load(output_at + place, mask=there, other=0.0) > 0, g, 0.0)
        if MASK == "input":
            g = tl.where(x * scale + shift > 0, g, 0.0)
        if KEEP:
            tl.store(kept_at + place, g.to(tl.bfloat16), mask=there)
        total += g
        along += g * ((x - mean) * inverse)
    tl.store(out_at + part * 2 * C + channel, tl.sum(total, 0))
    tl.store(out_at + part * 2 * C + C + channel, tl.sum(along, 0))


@triton.jit
def _grad_totals(
    sums_at, bias_at, weight_at, n_parts, C: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr
):
    """Partial sums added up: the gradients of bias and weight."""
    channel = tl.program_id(0) * BC + tl.arange(0, BC)
    part = tl.arange(0, BP)[:, None]
    there = part < n_parts
    place = part * 2 * C + channel[None, :]
    tl.store(bias_at + channel, tl.sum(tl.load(sums_at + place, mask=there, other=0.0), 0))
    tl.store(weight_at + channel, tl.sum(tl.load(sums_at + place + C, mask=there, other=0.0), 0))


@triton.jit
def _grad_apply(
    grad_at, x_at, stats_at, bias_at, weight_at, out_at, n, n_rows, C: tl.constexpr,
    MASK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = place < n
    channel = place % C
    x = tl.load(x_at + place, mask=there, other=0.0).to(tl.float32)
    g = tl.load(grad_at + place, mask=there, other=0.0).to(tl.float32)
    scale = tl.load(stats_at + 2 * C + channel)
    if MASK:
        g = tl.where(x * scale + tl.load(stats_at + 3 * C + channel) > 0, g, 0.0)
    normal = (x - tl.load(stats_at + channel)) * tl.load(stats_at + C + channel)
    mean = (tl.load(bias_at + channel) + normal * tl.load(weight_at + channel)) / n_rows
    tl.store(out_at + place, (scale * (g - mean)).to(tl.bfloat16), mask=there)


def norm_statistics(
    x: Tensor, weight: Tensor, bias: Tensor, running_mean: Tensor, running_var: Tensor,
    eps: float, momentum: float,
) -> Tensor:  # fmt: skip
    """Statistics of activations over batch and pixels; the running ones are updated in place."""
    n_rows, channels = _shape(x)
    per_program, parts = _partition(n_rows, channels)
    sums = torch.empty(parts, 2, channels, device=x.device)
    stats = torch.empty(4, channels, device=x.device)
    width = min(channels, CHANNELS)
    _launch(_sums, (channels // width, parts), x, sums, n_rows, per_program, channels, ROWS, width)
    narrow = min(channels, 16)
    _launch(
        _statistics, (channels // narrow,), sums, stats, weight, bias, running_mean, running_var,
        n_rows, parts, eps, momentum, channels, triton.next_power_of_2(parts), narrow,
    )  # fmt: skip
    return stats


def apply_norm(x: Tensor, stats: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    """``relu(scale * x + shift + residual)``; without the parts that are not wanted."""
    out = torch.empty_like(x)
    _launch(
        _apply, (triton.cdiv(x.numel(), ELEMENTS),), x, stats, x if residual is None else residual,
        out, x.numel(), x.shape[1], residual is not None, relu, ELEMENTS,
    )  # fmt: skip
    return out


def grad_norm(grad: Tensor, x: Tensor, stats: Tensor, relu: bool) -> tuple[Tensor, ...]:
    """Gradients on x, weight and bias of ``relu(normalised x)``, or of it without the ReLU."""
    mask = "input" if relu else "none"
    bias, weight, _ = _gradient_sums(grad, None, None, x, stats, mask, keep=False)
    return _on_input(grad, x, stats, bias, weight, relu), weight, bias


def grad_norm_residual(
    grad: Tensor, other: Tensor | None, output: Tensor | None, x: Tensor, stats: Tensor
) -> tuple[Tensor, ...]:
    """Gradients on x, weight, bias and residual of ``output = relu(normalised x + residual)``.

    The gradient on the output is ``grad + other``. Without ``output`` there was no residual, and
    where the ReLU let values through is computed from x.
    """
    mask = "input" if output is None else "output"
    bias, weight, kept = _gradient_sums(grad, other, output, x, stats, mask, keep=True)
    return _on_input(kept, x, stats, bias, weight, False), weight, bias, kept


def _gradient_sums(
    grad: Tensor, other: Tensor | None, output: Tensor | None, x: Tensor, stats: Tensor,
    mask: str, keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    n_rows, channels = _shape(x)
    per_program, parts = _partition(n_rows, channels)
    sums = torch.empty(parts, 2, channels, device=x.device)
    kept = torch.empty_like(x) if keep else grad
    width = min(channels, CHANNELS)
    _launch(
        _grad_sums, (channels // width, parts), grad, grad if other is None else other,
        x if output is None else output, x, stats, kept, sums, n_rows, per_program, channels,
        other is not None, mask, keep, ROWS, width,
    )  # fmt: skip
    bias, weight = torch.empty(2, channels, device=x.device).unbind()
    narrow = min(channels, 16)
    _launch(
        _grad_totals, (channels // narrow,), sums, bias, weight, parts, channels,
        triton.next_power_of_2(parts), narrow,
    )  # fmt: skip
    return bias, weight, kept


def _on_input(
    grad: Tensor, x: Tensor, stats: Tensor, bias: Tensor, weight: Tensor, mask: bool
) -> Tensor:
    out = torch.empty_like(x)
    _launch(
        _grad_apply, (triton.cdiv(x.numel(), ELEMENTS),), grad, x, stats, bias, weight, out,
        x.numel(), _shape(x)[0], x.shape[1], mask, ELEMENTS,
    )  # fmt: skip
    return out


def _shape(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[1], x.shape[1]


def _partition(n_rows: int, channels: int) -> tuple[int, int]:
    """Rows of each program, and how many programs share the rows of a group of channels."""
    groups = max(1, channels // CHANNELS)
    wanted = max(1, PROGRAMS // groups)
    blocks = triton.cdiv(triton.cdiv(n_rows, wanted), 2 * ROWS)
    per_program = blocks * 2 * ROWS
    return per_program, triton.cdiv(n_rows, per_program)


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> None:
    kernel[grid](*arguments, num_warps=WARPS)
