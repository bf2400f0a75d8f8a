"""Forward and backward pass of the backbone by hand, for training on a CUDA GPU.

The convolutions are cuDNN's; what lies between them is in ``kernels``. Gradients of weights feed
nothing but the optimiser, so they are computed on a stream of their own, beside the passes over
memory that the next layer waits for.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from mild.reproduce.images.kernels import (
    apply_norm,
    grad_norm,
    grad_norm_residual,
    norm_statistics,
)
from mild.reproduce.images.network import Backbone, Block

__all__ = ["fused_forward"]


class _Layer(NamedTuple):
    """A convolution with its normalisation, and what its forward pass leaves for the backward one."""

    conv: nn.Conv2d
    norm: nn.BatchNorm2d
    weight: Tensor
    source: Tensor
    value: Tensor
    stats: Tensor


class _Step(NamedTuple):
    """The layers of one block, and its output."""

    first: _Layer
    second: _Layer
    shortcut: _Layer | None
    output: Tensor


def fused_forward(backbone: Backbone, images: Tensor) -> Tensor:
    """Features (n, 8 * width) in training mode, differentiable in the weights; bfloat16 inside."""
    features: Tensor = _FusedBackbone.apply(backbone, images, *backbone.parameters())  # type: ignore[no-untyped-call]
    return features


class _FusedBackbone(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backbone: Backbone, images: Tensor, *weights: Tensor) -> Tensor:
        halves = _half(backbone)
        ctx.backbone = backbone
        ctx.stem, x = _conv_norm(backbone.stem, backbone.norm, images, halves)
        ctx.steps = []
        for block in backbone.blocks:
            step = _block(cast(Block, block), x, halves)
            ctx.steps.append(step)
            x = step.output
        return x.mean(dim=(2, 3), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        gradients = _Gradients(outputs[0].device)
        top = ctx.steps[-1].output
        grad = outputs[0].to(torch.bfloat16) / (top.shape[2] * top.shape[3])
        grad = torch.empty_like(top).copy_(grad[:, :, None, None])
        other: Tensor | None = None
        for step in reversed(ctx.steps):
            grad, other = _block_backward(step, grad, other, gradients)
        stem = ctx.stem
        on_value, weight, bias, _ = grad_norm_residual(grad, other, None, stem.value, stem.stats)
        gradients.add(stem, on_value, weight, bias)
        found = gradients.gather()
        ctx.steps = ctx.stem = None
        return None, None, *(found[weight] for weight in ctx.backbone.parameters())


class _Gradients:
    """Gradients of all weights; those of convolutions are computed on a stream beside the main one."""

    def __init__(self, device: torch.device) -> None:
        self.main = torch.cuda.current_stream(device)
        self.side = _side_stream(device)
        self.found: dict[Tensor, Tensor] = {}
        # What the side stream reads must not be given away before it is done.
        self.held: list[Tensor] = []

    def add(self, layer: _Layer, on_value: Tensor, weight: Tensor, bias: Tensor) -> None:
        self.found[layer.norm.weight] = weight
        self.found[layer.norm.bias] = bias
        self.held.append(on_value)
        self.side.wait_stream(self.main)
        with torch.cuda.stream(self.side):
            self.found[layer.conv.weight] = _conv_backward(layer, on_value, of_weight=True)

    def gather(self) -> dict[Tensor, Tensor]:
        self.main.wait_stream(self.side)
        self.held.clear()
        names = [key for key, value in self.found.items() if value.dtype != torch.float32]
        full = [torch.empty_like(key) for key in names]
        torch._foreach_copy_(full, [self.found[key] for key in names])
        self.found.update(zip(names, full, strict=True))
        return self.found


_streams: dict[torch.device, torch.cuda.Stream] = {}


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _streams:
        _streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return _streams[device]


def _half(backbone: Backbone) -> dict[Tensor, Tensor]:
    """Weights of the convolutions in bfloat16, channels-last, by one kernel."""
    weights = [module.weight for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    halves = [
        torch.empty_like(weight, dtype=torch.bfloat16, memory_format=torch.channels_last)
        for weight in weights
    ]
    torch._foreach_copy_(halves, weights)
    return dict(zip(weights, halves, strict=True))


def _conv_norm(
    conv: nn.Conv2d,
    norm: nn.BatchNorm2d,
    source: Tensor,
    halves: dict[Tensor, Tensor],
    relu: bool = True,
    residual: Tensor | None = None,
) -> tuple[_Layer, Tensor]:
    weight = halves[conv.weight]
    value = torch.conv2d(source, weight, None, conv.stride, conv.padding)
    running = cast(tuple[Tensor, Tensor], (norm.running_mean, norm.running_var))
    momentum = cast(float, norm.momentum)
    stats = norm_statistics(value, norm.weight, norm.bias, *running, norm.eps, momentum)
    output = apply_norm(value, stats, residual, relu)
    return _Layer(conv, norm, weight, source, value, stats), output


def _block(block: Block, x: Tensor, halves: dict[Tensor, Tensor]) -> _Step:
    shortcut, residual = None, x
    if isinstance(block.shortcut, nn.Sequential):
        conv, norm = cast(tuple[nn.Conv2d, nn.BatchNorm2d], tuple(block.shortcut))
        shortcut, residual = _conv_norm(conv, norm, x, halves, relu=False)
    first, inner = _conv_norm(block.conv1, block.norm1, x, halves)
    second, output = _conv_norm(block.conv2, block.norm2, inner, halves, residual=residual)
    return _Step(first, second, shortcut, output)


def _block_backward(
    step: _Step, grad: Tensor, other: Tensor | None, gradients: _Gradients
) -> tuple[Tensor, Tensor]:
    """Two gradients on the block's input, whose sum is left to the next kernel that reads them."""
    first, second = step.first, step.second
    on_value, weight, bias, kept = grad_norm_residual(
        grad, other, step.output, second.value, second.stats
    )
    gradients.add(second, on_value, weight, bias)
    on_inner = _conv_backward(second, on_value)
    on_value, weight, bias = grad_norm(on_inner, first.value, first.stats, relu=True)
    gradients.add(first, on_value, weight, bias)
    on_input = _conv_backward(first, on_value)
    if step.shortcut is None:
        return on_input, kept
    on_value, weight, bias = grad_norm(kept, step.shortcut.value, step.shortcut.stats, relu=False)
    gradients.add(step.shortcut, on_value, weight, bias)
    return on_input, _conv_backward(step.shortcut, on_value)


def _conv_backward(layer: _Layer, grad: Tensor, of_weight: bool = False) -> Tensor:
    """Gradient of a convolution on its input, or on its weight."""
    conv = layer.conv
    on_input, on_weight, _ = torch.ops.aten.convolution_backward(
        grad, layer.source, layer.weight, None, conv.stride, conv.padding, conv.dilation, False,
        [0, 0], 1, [not of_weight, of_weight, False],
    )  # fmt: skip
    return on_weight if of_weight else on_input
