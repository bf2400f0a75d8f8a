"""The fused backbone against torch's own, in float32: they may differ as bfloat16 differs."""

import importlib.util

import pytest
import torch

from mild.reproduce.images import training
from mild.reproduce.images.network import Backbone, make_network

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or importlib.util.find_spec("triton") is None,
    reason="needs a CUDA GPU and Triton",
)


def run(forward, images, half, dtype):
    network = make_network(3, 3, width=16).cuda().to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16, half):
        features = forward(network.backbone, images.to(dtype))
    loss = network.head(features.float()).logsumexp(dim=1).mean()
    loss.backward()
    gradients = [weight.grad.float() for weight in network.backbone.parameters()]
    named = network.backbone.named_buffers()
    return (
        features.detach().float(),
        gradients,
        [value for name, value in named if "running" in name],
    )


def error(found, wanted):
    return max(
        float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in zip(found, wanted, strict=True)
    )


def test_fused_is_as_close_to_float32_as_autocast_is():
    from mild.reproduce.images.fused import fused_forward

    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(96, 3, 32, 32, device="cuda", generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    exact = run(Backbone.forward, images, False, torch.float32)
    half = run(Backbone.forward, images, True, torch.float32)
    fused = run(fused_forward, images, False, torch.bfloat16)
    for part in range(3):
        ours = fused[part] if part else [fused[part]]
        usual = half[part] if part else [half[part]]
        wanted = exact[part] if part else [exact[part]]
        assert error(ours, wanted) <= 1.5 * error(usual, wanted) + 1e-3


def test_fused_gives_the_same_bits_twice():
    from mild.reproduce.images.fused import fused_forward

    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(256, 3, 32, 32, device="cuda", generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    # As in production: in one process cuDNN keeps to the convolutions that it found quickest.
    with training._repeatable():
        first, again = (run(fused_forward, images, False, torch.bfloat16) for _ in range(2))
    assert torch.equal(first[0], again[0])
    assert all(torch.equal(a, b) for a, b in zip(first[1], again[1], strict=True))


def test_the_norm_s_own_settings_reach_the_kernels():
    from mild.reproduce.images.fused import fused_forward

    generator = torch.Generator("cuda").manual_seed(0)
    images = torch.randn(64, 3, 16, 16, device="cuda", generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    found = []
    for forward, dtype in ((fused_forward, torch.bfloat16), (Backbone.forward, torch.float32)):
        network = make_network(3, 3, width=16).cuda().to(memory_format=torch.channels_last)
        norm = network.backbone.norm
        norm.eps, norm.momentum = 10.0, 0.5
        features = forward(network.backbone, images.to(dtype)).detach()
        found.append([features, norm.running_mean, norm.running_var])
    # The usual eps would be 0.5 away, the usual momentum 0.4; bfloat16 is 0.02 away.
    assert error(*found) < 0.1
