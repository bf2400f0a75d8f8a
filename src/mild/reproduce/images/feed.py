"""Images on the device: batches are cut out, mirrored and normalised there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from mild.exceptions import InvalidInputError
from mild.reproduce.data.images import check_images

__all__ = ["ImageFeed"]

PADDING = 4
# A crop of an 8 x 8 digit moves by one pixel, one of a 32 x 32 photograph by four.
SHARE = 8
# Rows of a plan.
IMAGE, TOP, LEFT, MIRROR = range(4)


class ImageFeed:
    """Training images on a device.

    Parameters
    ----------
    images : uint8 array (n, height, width, channels)
    augment : whether batches are random crops of the padded images
    flip : whether half of them are mirrored as well
    device : where images and batches live
    """

    def __init__(
        self, images: NDArray[np.uint8], augment: bool, flip: bool, device: torch.device
    ) -> None:
        check_images("images", images)
        self.n_images, self.height, self.width, self.channels = images.shape
        self.shift = max(1, min(PADDING, self.height // SHARE)) if augment else 0
        self.flip = augment and flip
        pixels = torch.as_tensor(images, device=device)
        self.mean, self.std = _moments(pixels)
        around = (self.shift, self.shift)
        self.pixels = pad(pixels, (0, 0, *around, *around))
        self.precision = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._down = torch.arange(self.height, device=device)
        self._right = torch.arange(self.width, device=device)

    def plan(self, seed: int, epoch: int, batch_size: int) -> Tensor:
        """What an epoch shows: (steps, 4, batch_size) of image, top, left and mirrored or not.

        It depends on nothing but the seed and the number of the epoch.
        """
        steps = self.n_images // batch_size
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(self.n_images)[: steps * batch_size]
        offsets = rng.integers(0, 2 * self.shift + 1, size=(2, len(order)))
        mirrored = rng.integers(0, 2 if self.flip else 1, size=(1, len(order)))
        plan = np.concatenate([order[None], offsets, mirrored])
        return torch.as_tensor(plan.reshape(4, steps, batch_size)).transpose(0, 1).contiguous()

    def batch(self, plan: Tensor) -> Tensor:
        """The batch (b, channels, height, width) of one step of a plan, (4, b), on the device."""
        down = plan[TOP, :, None] + self._down
        right = torch.where(plan[MIRROR, :, None] > 0, self._right.flip(0), self._right)
        right = plan[LEFT, :, None] + right
        pixels = self.pixels[plan[IMAGE, :, None, None], down[:, :, None], right[:, None, :]]
        return self._normalised(pixels)

    def batches(self, images: NDArray[np.uint8], size: int) -> Iterator[Tensor]:
        """Other images as they are, normalised as these: batches of at most ``size``."""
        check_images("images", images)
        if images.shape[1:] != (self.height, self.width, self.channels):
            raise InvalidInputError(
                f"images must have the training images' shape "
                f"{(self.height, self.width, self.channels)}; got {images.shape[1:]}."
            )
        for start in range(0, len(images), size):
            part = np.ascontiguousarray(images[start : start + size])
            yield self._normalised(torch.as_tensor(part, device=self.pixels.device))

    def _normalised(self, pixels: Tensor) -> Tensor:
        """Pixels (b, height, width, channels) as an input; its memory stays channels-last."""
        return ((pixels - self.mean) / self.std).to(self.precision).permute(0, 3, 1, 2)


def _moments(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel; a constant channel gets deviation 1."""
    flat = pixels.reshape(-1, pixels.shape[-1]).to(torch.float32)
    mean = flat.mean(dim=0, dtype=torch.float64)
    spread = (flat - mean.to(torch.float32)).square().mean(dim=0, dtype=torch.float64).sqrt()
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    return mean.to(torch.float32), spread.to(torch.float32)
