"""Do the probabilities mean what they say? Predicted against realised shares of the reward."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import ALL_REWARDS, rewards
from mild.errors import check_option
from mild.evaluation.report.evidence import Evidence

__all__ = ["FORMS", "calibration", "reward_form"]

#: What the probabilities are shares of: a reward, or the chance to be the cheapest.
FORMS = (*ALL_REWARDS, "cheapest")
BINS = 10
# So many rows in a bin at least, where there are as many.
ROWS_PER_BIN = 20
# Bars that show where the predictions lie.
BARS = 24


def calibration(
    evidence: Evidence,
    form: str,
    scale: float | None = None,
    confidence: float = 0.95,
    bundle: IntArray | None = None,
    strength: float = 0.5,
) -> dict[str, Any] | None:
    """Reliability of each expert's probability; None where the router gives none.

    The probability of expert k estimates ``E[reward_k | x] / E[sum_j reward_j | x]``. In each of ten bins
    of about as many rows, by the predicted probability, it is compared with

        ``sum_i reward_ik / sum_i C_i``, ``C_i = sum_j reward_ij``

    over the rows of the bin; the prediction of the bin is the mean weighted by ``C_i``. The interval is
    that of a ratio of means. Where an expert was never asked, predictions are shared out among the
    others. Rows without any reward say nothing.

    Parameters
    ----------
    form : one of FORMS, what the router was trained on
    scale : largest possible cost, for complement rewards; None for the largest present
    strength : of baseline rewards
    bundle : (n_samples,) rows with the same number count once in the intervals; None if each is alone
    """
    if evidence.probabilities is None:
        return None
    check_option("form", form, FORMS)
    reward = _rewards(evidence.costs, form, scale, strength)
    total = reward.sum(axis=1)
    asked = ~np.isnan(evidence.costs)
    guess = np.where(asked, evidence.probabilities, 0)
    mass = guess.sum(axis=1)
    use = (total > 0) & (mass > 0)
    if not use.any():
        return None
    guess = guess[use] / mass[use, None]
    unit = np.arange(evidence.rows)[use] if bundle is None else bundle[use]
    experts = [
        _curve(guess[:, k], reward[use, k], total[use], asked[use, k], unit, confidence)
        for k in range(len(evidence.expert_names))
    ]
    return {"form": form, "rows": int(use.sum()), "confidence": confidence, "experts": experts}


def reward_form(metadata: Mapping[str, Any]) -> tuple[str, float | None, float]:
    """What a saved router's probabilities are shares of; scale and strength of its rewards.

    Examples
    --------
    >>> reward_form({"estimator": {"class": "LinearRouter", "params": {"loss": "tdef"}}})
    ('complement', None, 0.5)
    >>> reward_form({})
    ('others', None, 0.5)
    """
    estimator = metadata.get("estimator") or {}
    params = dict(estimator.get("params") or {})
    if "best_family" in estimator:
        inner = params.get("estimator") or {}
        linear = estimator["best_family"] == "linear"
        params = {**(inner.get("params") or {})} if linear else {}
        params |= estimator.get("best_params") or {}
    loss, form = params.get("loss", "mild"), params.get("rewards", "others")
    scale = params.get("cost_scale")
    known_scale = float(scale) if isinstance(scale, (int, float)) else None
    if loss == "tdef":
        return "complement", known_scale, 0.5
    if loss != "mild":
        return "cheapest", None, 0.5
    strength = float(params.get("strength", 0.5))
    return (form if form in ALL_REWARDS else "others"), known_scale, strength


def _rewards(costs: FloatArray, form: str, scale: float | None, strength: float) -> FloatArray:
    if form == "cheapest":
        label = np.zeros_like(costs)
        label[np.arange(len(costs)), np.nanargmin(costs, axis=1)] = 1
        return label
    # A column without a single cost is refused by ``rewards``; here it merely has nothing to show.
    silent = np.isnan(costs).all(axis=0)
    result = np.zeros_like(costs)
    largest = float(np.nanmax(costs))
    unit = max(scale, largest) if scale is not None else None
    result[:, ~silent] = rewards(costs[:, ~silent], form, unit, strength)
    return result


def _curve(
    guess: FloatArray,
    reward: FloatArray,
    total: FloatArray,
    asked: BoolArray,
    unit: IntArray,
    confidence: float,
) -> dict[str, Any]:
    guess, reward, total, unit = guess[asked], reward[asked], total[asked], unit[asked]
    n = len(guess)
    if n == 0:
        return {"bins": [], "error": None, "counts": [], "range": None}
    wanted = max(1, min(BINS, n // ROWS_PER_BIN))
    edges = np.unique(np.quantile(guess, np.linspace(0, 1, wanted + 1)[1:-1]))
    place = np.searchsorted(edges, guess, side="right")
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    bins = [
        _bin(guess[place == b], reward[place == b], total[place == b], unit[place == b], reach)
        for b in np.unique(place)
    ]
    low, high = float(guess.min()), float(guess.max())
    counts, _ = np.histogram(guess, BARS, (low, high if high > low else low + 1e-9))
    gaps = [one["rows"] * abs(one["predicted"] - one["realised"]) for one in bins]
    return {
        "bins": bins,
        "error": sum(gaps) / n,
        "counts": counts.tolist(),
        "range": [low, high],
    }


def _bin(
    guess: FloatArray, reward: FloatArray, total: FloatArray, unit: IntArray, reach: float
) -> dict[str, Any]:
    mass = float(total.sum())
    realised = float(reward.sum()) / mass
    # Rows of a unit may err together: their residuals are added before they are squared.
    place = np.unique(unit, return_inverse=True)[1]
    residual = np.bincount(place, reward - realised * total)
    n, error = len(residual), math.nan
    if n > 1:
        error = math.sqrt(float(residual @ residual) * n / (n - 1)) / mass
    known = math.isfinite(error)
    return {
        "predicted": float(guess @ total) / mass,
        "realised": realised,
        "low": max(0.0, realised - reach * error) if known else None,
        "high": min(1.0, realised + reach * error) if known else None,
        "rows": len(guess),
    }
