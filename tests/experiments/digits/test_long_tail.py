"""Many experts with a long tail of shares."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.digits.long_tail import METHODS, TailCase, describe, run_case
from mild.datasets import domains
from mild.errors import InvalidInputError

CASE = TailCase(n_experts=6, n_rows=120, draws=3, alphas=(1e-3, 1e-2), n_folds=3)


@pytest.fixture(scope="module")
def rows():
    return run_case(CASE)


def test_domains_have_the_shares_and_skills_they_should():
    data = domains(20_000, 4, random_state=1)
    shares = np.bincount(data.labels) / len(data.labels)
    assert shares == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.02)
    own = data.labels[:, None] == np.arange(4)
    assert data.costs[own].mean() == pytest.approx(0.05, abs=0.01)
    assert data.costs[~own].mean() == pytest.approx(0.6, abs=0.01)
    assert data.expected_costs[own].max() == pytest.approx(0.05)
    with pytest.raises(InvalidInputError, match="at least 1"):
        domains(0)


def test_every_method_has_its_figures_in_every_draw(rows):
    assert [row["label"] for row in rows] == [label for label, _, _ in METHODS]
    for row in rows:
        assert len(row["losses"]) == len(row["balanced_losses"]) == len(row["rare_recall"]) == 3
        assert min(row["losses"]) >= 0.05 - 1e-12
        assert set(row["alphas"]) <= set(CASE.alphas)
    assert rows[0]["minus_tdef"] is None
    gap = np.mean(rows[1]["losses"]) - np.mean(rows[0]["losses"])
    assert rows[1]["minus_tdef"]["estimate"] == pytest.approx(gap)
    assert describe(rows[1])[1] == f"{np.mean(rows[1]['losses']):.4f}"


def test_argmax_fails_with_unequal_margins_where_the_stationary_rule_does_not(rows):
    stationary, argmax = rows[3], rows[4]
    assert np.mean(stationary["losses"]) < 0.2 < np.mean(argmax["losses"])
