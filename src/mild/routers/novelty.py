"""The novelty of inputs: how far one is from the training inputs, compared with held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from mild.artifact.novelty import LEVELS, NOVEL, Novelty
from mild.core.arrays import FloatArray, IntArray
from mild.features import TextFeatures

# If there are more rows than this, evenly spaced ones are used.
MAX_ROWS = 20_000
# At most this many centres stand for the training inputs, with at most this many numbers in all.
MAX_CENTRES = 256
MAX_NUMBERS = 1 << 18
# Centres are found from about this many rows.
CENTRE_ROWS = 2_000


def fit_novelty(
    text_features: TextFeatures,
    texts: Sequence[Any],
    X: FloatArray,
    fold: tuple[IntArray, IntArray],
    means: FloatArray,
) -> Novelty:
    """Learn how far held-out inputs are from training inputs, to recognise inputs that are farther.

    The score of an input is

        distance to the nearest centre / distance_scale + unseen share / unseen_scale,

    where the centres stand for the training inputs, the unseen share is the share of the text's terms
    that occur in no training text, and each scale is the 99th percentile over the held-out inputs, at
    least 0.01.

    Parameters
    ----------
    text_features : TextFeatures
        Counts the terms of texts.
    texts : sequence
        The texts of all rows.
    X : array of shape (n_samples, n_features)
        Their features.
    fold : (training rows, held-out rows)
        The rows to compare.
    means : array of shape (1 or 2, n_experts)
        Mean costs, or mean errors and prices, which the result keeps for novel inputs.

    Returns
    -------
    novelty : Novelty
    """
    train, held_out = fold
    # Evenly spaced rows, at most MAX_ROWS of each kind.
    train = train[:: 1 + len(train) // MAX_ROWS]
    held_out = held_out[:: 1 + len(held_out) // MAX_ROWS]
    centres = _centres(X[train[:: 1 + len(train) // CENTRE_ROWS]])
    train_texts = [texts[row] for row in train]
    held_out_texts = [texts[row] for row in held_out]
    unseen_shares = text_features.held_out_shares(train_texts, held_out_texts)
    # With these scales the score is the distance alone. Levels and means play no part in it.
    distance_only = Novelty(centres, np.array([1.0, np.inf]), LEVELS, means)
    distances = distance_only.scores(X[held_out], unseen_shares)
    distance_scale = _novelty_scale(distances)
    unseen_scale = _novelty_scale(unseen_shares)
    scores = distances / distance_scale + unseen_shares / unseen_scale
    return Novelty(
        centres,
        np.array([distance_scale, unseen_scale], np.float32),
        np.quantile(scores, LEVELS).astype(np.float32),
        means.astype(np.float32),
    )


def _centres(X: FloatArray) -> FloatArray:
    """Return points (m, n_features) that stand for the rows: all distinct rows, or k-means centres."""
    rows = np.unique(X.astype(np.float64).round(6), axis=0)
    n_centres = max(16, min(MAX_CENTRES, MAX_NUMBERS // X.shape[1]))
    if len(rows) > n_centres:
        rows = KMeans(n_centres, n_init=1, max_iter=10, random_state=0).fit(rows).cluster_centers_
    return rows.astype(np.float32)


def _novelty_scale(values: FloatArray) -> float:
    """Return the value that only one in a hundred held-out inputs exceeds."""
    # A scale of 0 would make every other input infinitely novel.
    return max(float(np.quantile(values, NOVEL)), 0.01)
