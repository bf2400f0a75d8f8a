import numpy as np
import pytest
from numpy.testing import assert_allclose

import mild.core.decisions as chain
from mild.core.decisions import stationary_experts_first
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate


@pytest.mark.parametrize("tau", [1.0, 0.5])
@pytest.mark.parametrize("shared", [False, True])
def test_wide_single_precision_rows_need_no_logarithms_while_doubles_reach(
    tau, shared, monkeypatch
):
    margins = np.array([0.1, 0.3, 0.3, 1.0, 2.0]) if shared else np.array([0.1, 0.3, 0.5, 1.0, 2.0])
    groups = margin_groups(margins)
    scores = np.random.default_rng(0).uniform(-14, 0, size=(5, 200)).astype(np.float32)
    scores[:, :3] *= 100
    lowest = (scores - scores.max(axis=0)).min(axis=0)
    assert (lowest < -4).mean() > 0.5
    sizes = []
    logarithmic = chain._logarithmic

    def record(shifted, *rest):
        sizes.append(shifted.shape[1])
        return logarithmic(shifted, *rest)

    monkeypatch.setattr(chain, "_logarithmic", record)
    surrogate = Surrogate("comp_sum", tau)
    got = stationary_experts_first(scores, margins, groups, surrogate)
    assert sizes == [int((lowest < -300 * 0.1).sum())] == [3]
    assert got.dtype == np.float32
    exact = stationary_experts_first(scores.astype(np.float64), margins, groups, surrogate)
    assert_allclose(got, exact, rtol=2e-5, atol=1e-30)
