"""A planted routing problem with features like sentence embeddings: correlated, of one norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["planted"]


def planted(
    n: int = 100_000, d: int = 384, p: int = 8, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features (n, d) float32 and costs (n, p): wrong or right by a linear-logistic model, plus a price.

    Features have 64 strong directions of falling strength plus noise, scaled to one norm. Experts are
    ordered from strong and dear to weak and cheap.
    """
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n, 64), dtype=np.float32)
    mixing = rng.standard_normal((64, d)) * (np.arange(1, 65) ** -0.5)[:, None]
    X = latent @ mixing.astype(np.float32)
    X += 0.3 * rng.standard_normal((n, d), dtype=np.float32)
    X *= np.float32(np.sqrt(d) / 2) / np.linalg.norm(X, axis=1, keepdims=True)
    skill = np.linspace(1.5, -1, p)
    slope = (1.5 * rng.standard_normal((d, p)) / np.sqrt(d)).astype(np.float32)
    wrong = rng.random((n, p)) < 1 / (1 + np.exp(skill + X @ slope))
    return X, wrong.astype(np.float32) + np.linspace(0.4, 0.05, p, dtype=np.float32)
