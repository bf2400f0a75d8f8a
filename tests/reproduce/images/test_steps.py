"""Which way of taking steps is taken."""

import importlib.util
import sys
from types import ModuleType

import pytest

from mild.reproduce.images import steps
from mild.reproduce.images.network import Backbone


@pytest.fixture
def fused(monkeypatch):
    """Stands for the fused backbone, as if Triton were here."""

    def forward(backbone, images):
        raise AssertionError

    module = ModuleType("fused")
    module.fused_forward = forward
    monkeypatch.setitem(sys.modules, "mild.reproduce.images.fused", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return forward


def test_the_fused_backbone_is_taken_where_its_kernels_fit(fused):
    # Batches of 1,024 images of 32 x 32 pixels, and of 64 x 64.
    assert steps._forward_on_cuda(64, 1024 * 32 * 32 * 64) is fused
    assert steps._forward_on_cuda(64, 1024 * 64 * 64 * 64) is fused


@pytest.mark.parametrize(
    ("width", "largest"), [(8, 100), (48, 100), (64, 2**31), (64, 2**31 - 64), (64, 2**33)]
)
def test_torch_s_own_layers_are_taken_where_they_do_not(fused, width, largest):
    assert steps._forward_on_cuda(width, largest) is Backbone.forward


def test_torch_s_own_layers_are_taken_without_triton(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert steps._forward_on_cuda(64, 100) is Backbone.forward
