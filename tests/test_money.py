"""Figures in sentences: no exponents, no minus sign before 0, no difference of nothing."""

from __future__ import annotations

import pytest

from mild.artifact.info import cost_formula
from mild.artifact.targets import Target
from mild.metrics import Verdict
from mild.metrics.interval import Interval
from mild.metrics.verdict import TargetVerdict
from mild.money import amount, decimals, plain_number


@pytest.mark.parametrize("write", [amount, decimals, plain_number])
@pytest.mark.parametrize("value", [157_234.5, 1e9, 3.0, 0.25, 1e-4, 0.0])
def test_numbers_have_no_exponent(write, value):
    for number in (value, -value):
        text = write(number)
        assert "e" not in text
        assert float(text.replace(",", "")) == pytest.approx(number, rel=0.05, abs=1e-4)


@pytest.mark.parametrize("write", [amount, decimals])
def test_zero_has_no_sign(write):
    for value in (0.0, -0.0, -1e-12):
        assert float(write(value)) == 0
        assert "-" not in write(value)


def test_formulas_and_targets_are_written_in_full():
    assert cost_formula({}, 15_720_000) == "error + 15720000 × dollars"
    assert Target(max_dollars=15_720_000).words == "max_dollars 15720000"


def interval(estimate, low, high):
    return Interval(estimate, low, high, 0.0, 100, 0.95)


def target_verdict(saved, loss=(0.0, 0.0, 0.0)):
    return TargetVerdict(
        limits={"max_quality_loss": 0.01},
        reference="large",
        quality_kept=interval(1.0, 1.0, 1.0),
        quality_loss=interval(*loss),
        reference_share=interval(1.0, 1.0, 1.0),
        dollars_saved=interval(*saved),
        dollars_per_1000=None,
        quality=0.8,
        reference_quality=0.8,
        reference_dollars_per_1000=None,
    )


def test_a_difference_that_is_rounded_to_zero_has_no_sign():
    assert target_verdict((-1e-7, -1e-7, 1e-7)).words.endswith("and costs as much")
    assert "saves 0.0 % (-0.4 to 0.4)" in target_verdict((-1e-5, -0.004, 0.004)).words
    assert "costs 0.4 % (0.1 to 0.7) more" in target_verdict((-0.004, -0.007, -0.001)).words
    assert "-0.0000" not in target_verdict((0.1, 0.0, 0.2), (0.0, -1e-6, 1e-6)).words


def test_a_zero_in_a_verdict_has_no_sign():
    verdict = Verdict(
        estimate=-1e-6, low=-2e-6, high=-5e-7, constant="large", n_rows=500, n_groups=500
    )
    assert "is about equal to that of always large" in verdict.sentence
    assert "+0.0000 to +0.0000" in verdict.sentence
