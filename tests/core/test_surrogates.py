"""Surrogates: how they are named, and what their constants are."""

from __future__ import annotations

import math

import numpy as np
import pytest

import oracles
from mild.core.surrogates import SURROGATES, Surrogate, parse_surrogate
from mild.errors import InvalidInputError, OptionError


@pytest.mark.parametrize(
    ("name", "form", "tau"),
    [
        ("logistic", "comp_sum", 1.0),
        ("exponential", "comp_sum", 0.0),
        ("pairwise_logistic", "pairwise", 1.0),
        ("pairwise_exponential", "pairwise", 0.0),
        ("hinge", "hinge", 1.0),
        (0, "comp_sum", 0.0),
        (0.25, "comp_sum", 0.25),
        (1.7, "comp_sum", 1.7),
        (np.float32(0.5), "comp_sum", 0.5),
        (np.int64(0), "comp_sum", 0.0),
    ],
)
def test_names_and_numbers_are_read(name: object, form: str, tau: float) -> None:
    assert parse_surrogate(name) == Surrogate(form, tau)
    assert parse_surrogate(parse_surrogate(name)) == Surrogate(form, tau)


def test_every_listed_name_is_read() -> None:
    assert {parse_surrogate(name) for name in SURROGATES} == {
        Surrogate("comp_sum", 1.0),
        Surrogate("comp_sum", 0.0),
        Surrogate("hinge"),
        Surrogate("pairwise", 1.0),
        Surrogate("pairwise", 0.0),
    }


@pytest.mark.parametrize("tau", [0.0, 0.3, 0.5, 1.0, 1.7, 2.0])
def test_unit_is_phi_at_one(tau: float) -> None:
    assert parse_surrogate(tau).unit == pytest.approx(oracles.phi(tau, math.log(2)))


def test_unit_is_log_two_for_the_logistic_and_one_for_hinge_and_exponential() -> None:
    assert parse_surrogate("logistic").unit == math.log(2)
    assert parse_surrogate("hinge").unit == 1
    assert parse_surrogate("exponential").unit == pytest.approx(1)


def test_unit_is_continuous_at_the_logistic() -> None:
    assert parse_surrogate(1 - 1e-9).unit == pytest.approx(math.log(2), abs=1e-8)
    assert parse_surrogate(1 + 1e-9).unit == pytest.approx(math.log(2), abs=1e-8)


def test_only_the_hinge_is_not_smooth_and_only_large_tau_is_not_convex() -> None:
    assert [parse_surrogate(s).smooth for s in ("logistic", "hinge", 0.5)] == [True, False, True]
    assert [parse_surrogate(s).convex for s in ("logistic", "hinge", 0.5, 1.7)] == [
        True,
        True,
        True,
        False,
    ]


def test_an_unknown_name_suggests_the_nearest_one() -> None:
    with pytest.raises(OptionError, match=r"surrogate must be one of .*Did you mean 'logistic'\?"):
        parse_surrogate("logistics")


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_tau_must_be_finite_and_non_negative(value: float) -> None:
    with pytest.raises(InvalidInputError, match="tau must be finite and >= 0"):
        parse_surrogate(value)


@pytest.mark.parametrize("value", [None, True])
def test_a_value_that_is_neither_a_name_nor_a_number_is_refused(value: object) -> None:
    with pytest.raises(OptionError, match="may be a name or a number tau >= 0"):
        parse_surrogate(value)
