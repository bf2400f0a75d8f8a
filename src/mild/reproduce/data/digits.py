"""The 1,797 handwritten digits that scikit-learn carries: no file, no download."""

from __future__ import annotations

import numpy as np

from mild.reproduce.data.images import ImageData

__all__ = ["load_embedded_digits"]

# Grey values of these digits run from 0 to 16.
BRIGHTEST = 16


def load_embedded_digits() -> ImageData:
    """Digits of 8 x 8 grey pixels, a stratified half to train on and the other to test on.

    The split is always the same.

    Examples
    --------
    >>> data = load_embedded_digits()
    >>> data.train_images.shape, data.test_images.shape, int(data.train_images.max())
    ((898, 8, 8, 1), (899, 8, 8, 1), 255)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = np.rint(digits.images * (255 / BRIGHTEST)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int64)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=0.5, stratify=labels, random_state=0
    )
    return ImageData(
        "digits",
        images[train],
        labels[train],
        images[test],
        labels[test],
        tuple(str(digit) for digit in range(10)),
        flip=False,
        note="1,797 digits of 8 x 8 pixels, split in half: for trying out, not in the paper",
    )
