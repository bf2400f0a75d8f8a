"""Seconds per epoch of 50,000 made images of CIFAR's size, beside a plain eager loop in the same run.

python -m benchmarks.images
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from experiments.images.network import make_network
from experiments.images.training import PROTOCOLS, train_network

N_IMAGES, N_OUTPUTS, EPOCHS = 50_000, 3, 6


def eager_epochs(images, labels, protocol):
    """Seconds of each epoch of the usual loop: bfloat16, channels last, fused AdamW, no compilation."""
    pixels = torch.as_tensor(images, device="cuda").permute(0, 3, 1, 2)
    network = make_network(3, N_OUTPUTS, protocol.width, 0).cuda()
    network.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(
        network.parameters(), protocol.lr, weight_decay=protocol.weight_decay, fused=True
    )
    seconds = []
    for _ in range(protocol.epochs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for rows in torch.randperm(len(pixels), device="cuda").split(protocol.batch_size):
            batch = (pixels[rows].float() / 255).to(memory_format=torch.channels_last)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                features = network.backbone(batch)
            cross_entropy(network.head(features.float()), labels[rows]).backward()
            optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def main():
    """Print the median seconds per epoch of both, the first epoch left out, and their ratio."""
    if not torch.cuda.is_available():
        print("this benchmark needs a CUDA GPU")
        return
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (N_IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = torch.as_tensor(rng.integers(0, N_OUTPUTS, N_IMAGES), device="cuda")
    protocol = PROTOCOLS["adamw"].changed(epochs=EPOCHS)

    def loss(scores, rows):
        return cross_entropy(scores, labels[rows], reduction="none")

    network = train_network(images, N_OUTPUTS, loss, protocol, 0, flip=True, device="cuda")
    ours = statistics.median(record["seconds"] for record in network.history[1:])
    eager = statistics.median(eager_epochs(images, labels, protocol)[1:])
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, batches of {protocol.batch_size}"
    )
    print(f"experiments.images.training: {ours:.3f} s per epoch, {N_IMAGES / ours:,.0f} images/s")
    print(f"plain eager loop:            {eager:.3f} s per epoch; ratio {ours / eager:.2f}")


if __name__ == "__main__":
    main()
