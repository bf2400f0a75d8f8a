"""A ledger and a new router in, estimates and a sentence out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.core.arrays import FloatArray
from mild.errors import InvalidInputError
from mild.evaluation.replay.cost_model import expected_costs
from mild.evaluation.replay.estimates import (
    Episodes,
    Estimate,
    doubly_robust,
    inverse_propensity,
    logged_mean,
    self_normalised,
)
from mild.evaluation.replay.log import LeftOut, LogReader, read_draws
from mild.evaluation.replay.overlap import measure_overlap
from mild.evaluation.replay.rows import Rows, collect_rows
from mild.evaluation.replay.verdict import judge

__all__ = ["replay"]


def replay(
    ledger: LogReader,
    router: LoadedRouter,
    *,
    texts: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    explore: float = 0.0,
    since: float | None = None,
    until: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """What a router would have cost on the logged traffic, per request.

    The cost of a request is its price in dollars, by the usage that the expert reported, fallbacks
    included. Where answers were judged, it is ``error + price_weight * dollars``: the errors that a
    request is worth, as in fitting; only judged requests count then, and one that failed is an error.

    Parameters
    ----------
    ledger : reads the ledger, which was written with exploration; see
        ``mild.gateway.ledger.ledger_reader``
    router : the new router, reading text
    texts : request -> query, where the ledger keeps no texts
    errors : request -> error in [0, 1] of the answer
    price_weight : errors that one dollar is worth; needed with errors
    explore : share of exploration of the new router
    since, until : span of time, seconds since 1970
    confidence : coverage of the intervals
    seed : of folds and projections

    Returns
    -------
    dict, ready for JSON: ``verdict``, ``estimates`` per quantity (cost, and dollars, failures and errors
    beside it) and method, ``overlap``, ``rows``, ``left_out``, ``shares``
    """
    _check(errors, price_weight, explore, confidence)
    left_out = LeftOut()
    rows = collect_rows(read_draws(ledger, left_out, texts, errors, since, until), router, seed)
    if errors is not None:
        judged = ~np.isnan(rows.error)
        left_out.reasons["not judged"] += int((~judged).sum())
        rows = rows.kept(judged)
    target = _target(rows, router.n_experts, explore)
    overlap = measure_overlap(rows.episodes(rows.dollars, target), router.expert_names)
    found: dict[str, dict[str, Any]] = {}
    gap = None
    if overlap.draws >= 2:
        for name, values in _quantities(rows, errors is not None, price_weight).items():
            every = _estimates(rows, values, target, confidence, seed)
            found[name] = {method: _plain(estimate) for method, estimate in every.items()}
            if name == "cost":
                gap = every["difference"]
    reasons = {reason: count for reason, count in left_out.reasons.items() if count}
    verdict = judge(overlap, gap, "" if errors is not None else "$", reasons)
    return {
        "verdict": asdict(verdict),
        "cost": "dollars" if errors is None else f"error + {price_weight:g} * dollars",
        "confidence": confidence,
        "estimates": found,
        "overlap": asdict(overlap),
        "rows": int(rows.episode.size),
        "draws": overlap.draws,
        "left_out": reasons,
        "shares": _shares(rows, router, target),
        "explore": explore,
    }


def _check(
    errors: Mapping[str, float] | None, weight: float | None, explore: float, confidence: float
) -> None:
    if errors is not None and (weight is None or not 0 <= weight < np.inf):
        raise InvalidInputError(
            f"with judged answers, price_weight must say how many errors a dollar is worth, 0 or more; "
            f"got {weight}."
        )
    if not 0 <= explore <= 1:
        raise InvalidInputError(f"explore must lie in [0, 1]; got {explore}.")
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence must lie in (0, 1); got {confidence}.")


def _target(rows: Rows, n_experts: int, explore: float) -> FloatArray:
    target = np.full((rows.wanted.size, n_experts), explore / n_experts)
    target[np.arange(rows.wanted.size), rows.wanted] += 1 - explore
    return target


def _quantities(rows: Rows, judged: bool, weight: float | None) -> dict[str, FloatArray]:
    if not judged:
        return {"cost": rows.dollars, "failures": rows.failed}
    return {
        "cost": rows.error + (weight or 0.0) * rows.dollars,
        "dollars": rows.dollars,
        "errors": rows.error,
        "failures": rows.failed,
    }


def _estimates(
    rows: Rows, values: FloatArray, target: FloatArray, confidence: float, seed: int
) -> dict[str, Estimate]:
    episodes: Episodes = rows.episodes(values, target)
    chosen = rows.chosen[rows.episode]
    model = expected_costs(rows.features, chosen, values, rows.episode, target.shape[1], seed)
    robust = doubly_robust(episodes, rows.per_episode(model), confidence)
    logged = logged_mean(episodes, confidence)
    return {
        "logged": logged,
        "inverse_propensity": inverse_propensity(episodes, confidence),
        "self_normalised": self_normalised(episodes, confidence),
        "doubly_robust": robust,
        "difference": robust.minus(logged),
    }


def _plain(estimate: Estimate) -> dict[str, float]:
    return {
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "standard_error": estimate.standard_error,
    }


def _shares(rows: Rows, router: LoadedRouter, target: FloatArray) -> dict[str, dict[str, float]]:
    count = max(sum(rows.drawn.values()), 1)
    new = target.mean(axis=0) if len(target) else np.zeros(router.n_experts)
    names = list(dict.fromkeys([*router.expert_names, *rows.drawn]))
    place = {name: k for k, name in enumerate(router.expert_names)}
    return {
        name: {
            "logged": rows.drawn.get(name, 0) / count,
            "new": float(new[place[name]]) if name in place else 0.0,
        }
        for name in names
    }
