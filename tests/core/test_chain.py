import numpy as np
import pytest
from numpy.testing import assert_allclose

from mild.core.decisions import stationary_experts_first
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate


@pytest.mark.parametrize("tau", [1.0, 0.5])
@pytest.mark.parametrize("shared", [False, True])
def test_wide_rows_in_single_precision_are_decoded_as_in_double(tau, shared):
    margins = np.array([0.1, 0.3, 0.3, 1.0, 2.0]) if shared else np.array([0.1, 0.3, 0.5, 1.0, 2.0])
    groups = margin_groups(margins)
    scores = np.random.default_rng(0).uniform(-14, 0, size=(5, 200)).astype(np.float32)
    scores[:, :3] *= 100
    surrogate = Surrogate("comp_sum", tau)
    got = stationary_experts_first(scores, margins, groups, surrogate)
    assert got.dtype == np.float32
    exact = stationary_experts_first(scores.astype(np.float64), margins, groups, surrogate)
    assert_allclose(got, exact, rtol=2e-5, atol=1e-30)
