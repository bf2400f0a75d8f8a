"""What a trained network becomes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from mild.artifact import load, save  # noqa: E402
from mild.errors import UnsupportedError  # noqa: E402
from mild.policies import PerceptronPolicy  # noqa: E402
from mild.routers.neural.network import ModulePolicy  # noqa: E402
from neural_cases import Dropout, quick, three_experts  # noqa: E402


def test_the_built_in_network_becomes_a_numpy_policy_that_saves(tmp_path):
    X, costs = three_experts()
    router = quick(hidden=(8, 5)).fit(X, costs)
    assert type(router.policy_) is PerceptronPolicy
    assert [weight.shape for weight in router.policy_.weights] == [(8, 4), (5, 8), (3, 5)]
    assert {weight.dtype for weight in router.policy_.weights} == {np.dtype(np.float32)}
    loaded = load(save(router, tmp_path / "router"))
    assert_array_equal(loaded.predict(X), router.predict(X))
    assert_array_equal(loaded.predict_proba(X), router.predict_proba(X))


def test_a_module_policy_scores_as_the_module_does_in_any_batches():
    X, costs = three_experts()
    router = quick(Dropout).fit(X, costs)
    policy = router.policy_
    assert isinstance(policy, ModulePolicy)
    with torch.no_grad():
        expected = policy.module(torch.tensor(X, dtype=torch.float32)).numpy()
    assert_allclose(router.decision_function(X), expected, atol=1e-5)
    assert router.decision_function(X).dtype == np.float64
    assert router.decision_function(X.astype(np.float32)).dtype == np.float32
    less = router.without(1)
    assert_array_equal(less.decision_function(X), router.decision_function(X)[:, [0, 2]])
    assert_array_equal(less.without(0).decision_function(X), router.decision_function(X)[:, [2]])


def test_a_module_policy_refuses_to_be_saved_and_says_what_to_do(tmp_path):
    router = quick(Dropout).fit(*three_experts())
    with pytest.raises(UnsupportedError, match=r"module of your own.*fit NeuralRouter"):
        router.policy_.state()
    with pytest.raises(UnsupportedError, match="cannot be written as JSON and safetensors"):
        save(router, tmp_path / "router")
