"""Plain numbers beyond those of the training texts."""

from __future__ import annotations

import numpy as np

from mild.features import HashingFeatures
from mild.features.terms import NUMBER_NAMES

TEXTS = ["Add 2 and 3.", "Who wrote Faust?", "def f(x):\n    return x", "Where is Rome?"]


def test_numbers_stay_in_the_range_of_training():
    features = HashingFeatures(dimensions=2).fit(TEXTS)
    known = features.transform(TEXTS)[:, -len(NUMBER_NAMES) :]
    far = features.transform(["x" * 1_000_000, "?\n" * 500, "{}" * 90, ""])[:, -len(NUMBER_NAMES) :]
    assert (far >= known.min(axis=0) - 1e-5).all()
    assert (far <= known.max(axis=0) + 1e-5).all()


def test_one_text_is_clipped_as_many_are():
    features = HashingFeatures(dimensions=2).fit(TEXTS)
    text = "x" * 10_000
    np.testing.assert_allclose(
        features.transform_one(text), features.transform([text])[0], atol=1e-6
    )


def test_a_state_without_limits_is_not_clipped():
    features = HashingFeatures(dimensions=2).fit(TEXTS)
    settings, tensors = features.state()
    same = HashingFeatures.from_state(settings, tensors)
    np.testing.assert_array_equal(same.transform(["x" * 999]), features.transform(["x" * 999]))
    del tensors["limits"]
    old = HashingFeatures.from_state(settings, tensors)
    np.testing.assert_allclose(old.transform(TEXTS), features.transform(TEXTS), atol=1e-5)
    assert old.transform_one("x" * 10**6).max() > features.transform_one("x" * 10**6).max()
