"""Claim: an epoch of router training on CIFAR-sized images takes at most 0.40 s on one H200.

Needs a CUDA GPU: ``python -m benchmarks.images``. The peer is the loop that one writes first: torch's
own layers, bfloat16 by autocast, channels-last, data on the GPU, fused Adam, cuDNN's benchmark mode
with all its convolutions to choose from. Ours keeps to those that give the same bits each time, as
``train_network`` does. What is timed is an epoch of steps, the drawing of its plan and the reading of
its loss included; judging and checkpoints are not. Both crop, mirror and normalise every batch and take
the loss of a router of three experts.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

import numpy as np
import torch

from benchmarks.measure import Report, environment, interleave, median_ratio, ratio_spread, seconds
from mild.nn import mild_loss
from mild.nn.tensors import check_margins
from mild.reproduce.images.feed import ImageFeed
from mild.reproduce.images.network import Backbone, make_network
from mild.reproduce.images.steps import Stepper, make_optimizer, make_stepper

IMAGES, BATCH, EXPERTS = 50_000, 1024, 3
# Multiplications and additions of a ResNet-18 on a 32 x 32 image, forward; backward takes twice that.
FORWARD = 2 * 555.4e6
SIZE = 8192


def convolutions(plain: bool) -> AbstractContextManager[None]:
    """cuDNN's settings of a contender: the peer need not repeat its bits."""
    return torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=not plain)


def contenders() -> tuple[Stepper, Stepper]:
    """The plain step and ours, on the same random images and rewards."""
    device = torch.device("cuda")
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
    feed = ImageFeed(pixels, True, True, device)
    rewards = torch.rand(IMAGES, EXPERTS, device=device)
    margins = check_margins([0.5, 0.3, 0.2], rewards)

    def loss(scores: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return mild_loss(scores, rewards[rows], margins)

    made = []
    for plain in (True, False):
        network = make_network(3, EXPERTS).to(device)
        network.to(memory_format=torch.channels_last).train()
        optimizer = make_optimizer(network, 1e-3, 1e-3)
        with convolutions(plain):
            if plain:
                made.append(Stepper(network, optimizer, feed, loss, BATCH, Backbone.forward))
            else:
                made.append(make_stepper(network, optimizer, feed, loss, BATCH, 64))
    return made[0], made[1]


def epoch(step: Stepper, plain: bool) -> float:
    """Seconds of one epoch of full batches: its plan, its steps and its loss."""
    torch.cuda.synchronize()

    def run() -> None:
        plans = step.feed.plan(0, 0, BATCH).to("cuda", non_blocking=True)
        step.total.zero_()
        for plan in plans:
            step(plan, 1e-3)
        # Reading the loss waits for the device.
        float(step.total)

    with convolutions(plain):
        return seconds(run)


def matmul_rate(repeats: int = 20) -> float:
    """Operations per second of a large bfloat16 matrix product."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()

    def run() -> None:
        for _ in range(repeats):
            a @ b
        torch.cuda.synchronize()

    return 2 * SIZE**3 * repeats / seconds(run)


def run(repeats: int = 7) -> Report:
    """Measure and return the table."""
    plain, ours = contenders()
    timed = {"plain": lambda: epoch(plain, True), "ours": lambda: epoch(ours, False)}
    for warm_up in timed.values():
        warm_up()
    times = interleave(timed, repeats)
    ceiling = matmul_rate()
    shown = IMAGES // BATCH * BATCH
    report = Report("Training a ResNet-18 router on a GPU")
    report.notes = [
        f"{IMAGES} random images of 32 x 32 pixels, batches of {BATCH}, MILD with {EXPERTS} experts; "
        f"an epoch is {IMAGES // BATCH} full batches with the drawing of their plan and the reading of "
        f"the loss, times are scaled to {IMAGES} images. The plain loop may take any of cuDNN's "
        f"convolutions, ours those that give the same bits each time. Median of "
        f"{repeats} interleaved epochs (range). {torch.cuda.get_device_name()}, "
        f"{environment(('numpy', 'torch'))}."
    ]
    for name, label in (("plain", "plain step loop"), ("ours", "our step loop")):
        each = times[name].median / shown
        share = 3 * FORWARD / each / ceiling
        report.add(
            f"{label}: s per {IMAGES} images", f"{each * IMAGES:.3f} ({times[name]} an epoch)"
        )
        report.add(f"{label}: images per second", f"{1 / each:,.0f}")
        report.add(f"{label}: share of the matrix product's rate", f"{share:.2f}")
    report.add("matrix product of 8192, bfloat16: TFLOP/s", f"{ceiling / 1e12:.0f}")
    best = times["ours"].median / shown * IMAGES
    report.add("our step loop, an epoch", f"{best:.3f} s", "≤ 0.40 s on an H200", best <= 0.40)
    ratio = median_ratio(times["ours"], times["plain"])
    report.add(
        "our step loop / plain step loop",
        ratio_spread(times["ours"], times["plain"]),
        "≤ 0.51",
        ratio <= 0.51,
    )
    return report


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 7).markdown())
