"""What another router would have cost on logged traffic: estimates, and a verdict in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.errors import InvalidInputError
from mild.evaluation.replay.cost_model import expected_costs
from mild.evaluation.replay.estimates import (
    Episodes,
    Estimate,
    Overlap,
    doubly_robust,
    inverse_propensity,
    logged_mean,
    measure_overlap,
    self_normalised,
)
from mild.evaluation.replay.log import Block, LeftOut, LogReader, read_draws

__all__ = ["Verdict", "judge", "replay"]

# Features beyond this many are projected to fewer: the cost model needs few.
WIDE = 256
NARROW = 128
# Effective draws below which the intervals are not to be trusted.
ENOUGH = 100.0


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
            f"got {weight}.",
            parameter="price_weight",
        )
    if not 0 <= explore <= 1:
        raise InvalidInputError(f"explore must lie in [0, 1]; got {explore}.", parameter="explore")
    if not 0 < confidence < 1:
        raise InvalidInputError(
            f"confidence must lie in (0, 1); got {confidence}.", parameter="confidence"
        )


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


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows in E episodes.

    Attributes
    ----------
    episode : (n,) index of the draw that the row belongs to
    chosen, propensity : (E,) the draws; chosen is -1 for experts that the new router does not know
    wanted : (E,) what the new router would choose
    drawn : how often each expert was drawn, by name
    features : (n, d) float32 for the cost model
    dollars, failed, error : (n,); error is NaN where nobody has judged
    """

    episode: IntArray
    chosen: IntArray
    propensity: FloatArray
    wanted: IntArray
    drawn: dict[str, int]
    features: FloatArray
    dollars: FloatArray
    failed: FloatArray
    error: FloatArray

    def kept(self, rows: BoolArray) -> Rows:
        """Some of the rows, and the draws that they belong to."""
        used, episode = np.unique(self.episode[rows], return_inverse=True)
        return Rows(
            episode,
            self.chosen[used],
            self.propensity[used],
            self.wanted[used],
            self.drawn,
            self.features[rows],
            self.dollars[rows],
            self.failed[rows],
            self.error[rows],
        )

    def episodes(self, costs: FloatArray, target: FloatArray) -> Episodes:
        """The draws with these costs (n,) and the new policy's probabilities (E, n_experts)."""
        count = self.chosen.size
        requests = np.bincount(self.episode, minlength=count).astype(float)
        total = np.bincount(self.episode, costs, minlength=count).astype(float)
        return Episodes(self.chosen, self.propensity, target, requests, total)

    def per_episode(self, values: FloatArray) -> FloatArray:
        """Sums (E, m) over the rows of each episode of values (n, m)."""
        count = self.chosen.size
        return np.column_stack(
            [np.bincount(self.episode, column, minlength=count) for column in values.T]
        )


def collect_rows(blocks: Iterable[Block], router: LoadedRouter, seed: int = 0) -> Rows:
    """Let the new router decide every row; texts are not kept."""
    places = {name: place for place, name in enumerate(router.expert_names)}
    project = _projection(router.n_features, seed)
    drawn: dict[str, int] = {}
    parts: list[tuple[FloatArray | IntArray, ...]] = []
    for block in blocks:
        X = router.features(block.texts)
        first = np.asarray(block.decides)
        for name, decides in zip(block.chosen, block.decides, strict=True):
            if decides:
                drawn[name] = drawn.get(name, 0) + 1
        values = router.decision_function(X)
        narrow = X if project is None else X @ project
        parts.append(
            (
                np.asarray(block.episodes, np.intp),
                np.asarray([places.get(name, -1) for name in block.chosen], np.intp)[first],
                np.asarray(block.propensity, float)[first],
                router.predict(X)[first],
                np.column_stack([narrow, values]).astype(np.float32),
                np.asarray(block.dollars, float),
                np.asarray(block.failed, float),
                np.asarray([np.nan if e is None else e for e in block.error], float),
            )
        )
    if not parts:
        none = np.empty(0, np.intp)
        empty = np.empty(0)
        return Rows(none, none, empty, none, {}, np.empty((0, 1), np.float32), empty, empty, empty)
    episode, chosen, propensity, wanted, features, dollars, failed, error = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    return Rows(episode, chosen, propensity, wanted, drawn, features, dollars, failed, error)


def _projection(width: int, seed: int) -> FloatArray | None:
    if width <= WIDE:
        return None
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((width, NARROW)) / np.sqrt(NARROW)).astype(np.float32)


@dataclass(frozen=True)
class Verdict:
    """``better`` is True, False, or None if it cannot be told."""

    better: bool | None
    sentence: str


def judge(
    overlap: Overlap, gap: Estimate | None, unit: str, left_out: Mapping[str, int]
) -> Verdict:
    """Judge the difference, new router minus what was logged, per request.

    Parameters
    ----------
    overlap : what the log can tell
    gap : doubly robust estimate of the difference; None if there are no draws
    unit : what is counted: "$", or "" for costs in errors
    left_out : rows that do not count, by reason
    """
    if overlap.draws == 0 or gap is None:
        return Verdict(None, _nothing(left_out))
    if overlap.unseen:
        names = ", ".join(f"{name} ({share:.1%})" for name, share in overlap.unseen.items())
        return _open(
            f"the new router gives queries to experts that were never drawn here: {names}. What they "
            f"would have cost is in no row; add them to the gateway and explore."
        )
    if not overlap.weights_fit:
        return _open(
            f"the weights must be 1 on average and are {overlap.mean_weight:.3f} (standard error "
            f"{overlap.weight_error:.3f}): the logged propensities are not those of the draws."
        )
    if overlap.effective < ENOUGH:
        return _open(
            f"{overlap.draws:,} draws tell as much about the new router as {overlap.effective:.0f} of "
            f"its own would, and below {ENOUGH:.0f} the intervals are not to be trusted; explore more or "
            f"longer."
        )
    span = f"{gap.confidence * 100:g} % interval of the difference {_money(gap.low, unit)} to "
    span += _money(gap.high, unit)
    size = _money(abs(gap.mean), unit)
    if gap.high < 0:
        return Verdict(
            True,
            f"The new router would have been better: {size} less per request than was logged ({span}).",
        )
    if gap.low > 0:
        return Verdict(
            False,
            f"The new router would have been worse: {size} more per request than was logged ({span}).",
        )
    more = ""
    if gap.mean != 0 and gap.standard_error > 0:
        reach = (gap.high - gap.low) / 2
        factor = (reach / abs(gap.mean)) ** 2
        if factor < 100:
            more = f" If it is as it looks, about {factor:.1f} times as many draws would show it."
    return _open(f"the difference of {_money(gap.mean, unit)} is within the noise ({span}).{more}")


def _open(reason: str) -> Verdict:
    return Verdict(None, f"It cannot be told whether the new router is better: {reason}")


def _nothing(left_out: Mapping[str, int]) -> str:
    start = "It cannot be told whether the new router is better: "
    certain = left_out.get("drawn without exploration", 0)
    if certain:
        return (
            start
            + f"all {certain:,} routed requests were decided without exploration, so that no row shows "
            "what another expert would have cost. Set explore = 0.05 under [routing] and come back later."
        )
    if left_out.get("without a query"):
        return (
            start
            + "the ledger has no texts, and the new router needs them. Set keep_text = true under "
            "[ledger], or give the queries with --queries."
        )
    said = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return start + (f"no row counts ({said})." if said else "the ledger has no rows in this span.")


def _money(value: float, unit: str) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}{unit}{abs(value):.3g}" if unit else f"{value:.4f}"
