"""The CIFAR-style ResNet-18: 3 x 3 first convolution, no pooling before the last (He et al. 2016)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BLOCKS_PER_STAGE = 2
STAGES = 4


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where shapes change."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class Backbone(nn.Module):
    """Images to features: (n, channels, height, width) to (n, 8 * width)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        inside = width
        for stage in range(STAGES):
            outside = width * 2**stage
            for number in range(BLOCKS_PER_STAGE):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(Block(inside, outside, stride))
                inside = outside
        self.blocks = nn.Sequential(*blocks)
        self.n_features = inside

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        # In float32 also under autocast, as the fused step does.
        features: Tensor = self.blocks(x).mean(dim=(2, 3), dtype=torch.float32)
        return features


class Network(nn.Module):
    """A backbone and a linear head with one score per output."""

    def __init__(self, channels: int, n_outputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.backbone = Backbone(channels, width, stride)
        self.head = nn.Linear(self.backbone.n_features, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.backbone(x).float())
        return scores


def make_network(
    channels: int, n_outputs: int, width: int = 64, seed: int = 0, stride: int = 1
) -> Network:
    """A ResNet-18 whose first weights depend on the seed alone; torch's generators stay untouched.

    ``stride`` is that of the first convolution: 1 for CIFAR, 2 for images of twice its size at a quarter of
    the work. Convolutions start at He's normal (fan out), as in the paper that introduced the network.

    >>> network = make_network(3, 5, width=4)
    >>> network(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 5])
    >>> sum(weight.numel() for weight in make_network(3, 10).parameters())
    11173962
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would seed the generators of all GPUs, too.
        torch.default_generator.manual_seed(seed)
        network = Network(channels, n_outputs, width, stride)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network
