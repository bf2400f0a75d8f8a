"""What another router would have cost on logged traffic: estimates, and a verdict in a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_number,
    check_share,
    first_columns,
    invalid,
)
from mild.errors import counted, listed
from mild.evaluation.off_policy import (
    ENOUGH_CHANGED,
    LoggedAnswers,
    OffPolicyEstimate,
    doubly_robust,
    expected_costs,
    inverse_propensity,
    logged_mean,
    measure_overlap,
    self_normalised,
    serving_router,
)
from mild.evaluation.replay.log import WITHOUT_QUERY, LoggedRow, LogReader, read_draws
from mild.metrics import Verdict
from mild.metrics.intervals import Interval
from mild.money import amount, plain_number

# More features than WIDE are projected to NARROW for the cost model.
WIDE = 256
NARROW = 128
# Reason for which judged requests are left out.
SELF_SELECTED = "judged, but not picked at random (trust_feedback=True counts them)"
# Effective draws below which the intervals cannot be trusted.
ENOUGH = 100.0


@dataclass(frozen=True, repr=False, kw_only=True)
class ReplayVerdict(Verdict):
    """The verdict on a new router against the serving one; a draw counts once.

    ``reason`` is one word for it: "better", "worse", "same", "noise", "too_few", "unseen", "propensities"
    or "nothing".
    """

    reason: str

    @property
    def pays(self) -> bool | None:
        """Whether the new router is better; None if it is not clear."""
        return {"better": True, "worse": False}.get(self.reason)

    @property
    def rows_needed(self) -> None:
        """Not known: it depends on how often experts are drawn."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; ``better`` is ``pays``."""
        return {"better": self.pays, "reason": self.reason, **super().as_dict()}


def replay(
    ledger: LogReader,
    router: Router,
    *,
    texts: Mapping[str, str] | None = None,
    errors: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    explore: float = 0.0,
    since: float | None = None,
    until: float | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """What a router that reads text would have cost on the logged traffic, per request.

    As ``mild.replay``, whose fields the result has. ``texts``, ``errors`` and ``weights`` are by request:
    its query, where the ledger keeps none; its error in [0, 1], where one that failed and was not judged is
    1; and for how many requests it stands, 0 for one that was not picked at random.
    """
    if errors is not None:
        check_price_weight(price_weight)
    check_number("explore", explore, "lie in [0, 1]")
    check_share("confidence", confidence)
    left_out: Counter[str] = Counter()
    rows = collect_rows(
        read_draws(ledger, left_out, texts, errors, weights, since, until), router, seed
    )
    if errors is not None:
        judged, trusted = ~np.isnan(rows.error), rows.weight > 0
        left_out["not judged"] += int((~judged).sum())
        left_out[SELF_SELECTED] += int((judged & ~trusted).sum())
        rows = rows.kept(judged & trusted)
    cost, quantities = "dollars", {"cost": rows.dollars, "failures": rows.failed}
    if errors is not None:
        cost = f"error + {plain_number(price_weight or 0.0)} * dollars"
        quantities = {
            "cost": rows.error + (price_weight or 0.0) * rows.dollars,
            "dollars": rows.dollars,
            "errors": rows.error,
            "failures": rows.failed,
        }
    return replay_rows(
        rows,
        quantities,
        router,
        cost=cost,
        serving=rows.serving_weights(explore),
        left_out=left_out,
        explore=explore,
        confidence=confidence,
        seed=seed,
    )


def replay_rows(
    rows: Rows,
    quantities: Mapping[str, FloatArray],
    router: Router,
    *,
    cost: str,
    serving: FloatArray | None,
    left_out: Mapping[str, int],
    explore: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimates of each quantity (n,) and the verdict on the quantity "cost".

    ``cost`` says what that is, such as "dollars". ``serving`` are the weights of the serving router; None
    if the policy of the log is the serving one.
    """
    target = np.full((rows.wanted.size, router.n_experts), explore / router.n_experts)
    target[np.arange(rows.wanted.size), rows.wanted] += 1 - explore
    overlap = measure_overlap(rows.draws(), target, router.expert_names)
    overlap |= rows.changes()
    overlap["unknown"] = [name for name in rows.drawn if name not in router.expert_names]
    found: dict[str, dict[str, Any]] = {}
    gap = None
    for name, values in quantities.items() if overlap["draws"] >= 2 else ():
        estimates = _estimates(rows, values, target, serving, confidence, seed)
        found[name] = {
            method: _interval_fields(estimate.interval) for method, estimate in estimates.items()
        }
        if name == "cost":
            gap = estimates["difference_to_serving"].interval
    reasons = {reason: count for reason, count in left_out.items() if count}
    reason, sentence = judge(overlap, gap, "$" if cost == "dollars" else "", reasons)
    verdict = ReplayVerdict(
        estimate=math.nan if gap is None else gap.estimate,
        low=math.nan if gap is None else gap.low,
        high=math.nan if gap is None else gap.high,
        confidence=confidence,
        router="the new router",
        constant="the serving router",
        n_rows=int(rows.episode.size),
        n_groups=overlap["draws"],
        reason=reason,
        told=sentence,
    )
    drawn = max(sum(rows.drawn.values()), 1)
    new = dict.fromkeys(router.expert_names, 0.0)
    if len(target):
        new = dict(zip(router.expert_names, target.mean(axis=0).tolist(), strict=True))
    return {
        "verdict": verdict,
        "cost": cost,
        "confidence": confidence,
        "estimates": found,
        "overlap": overlap,
        "rows": int(rows.episode.size),
        "draws": overlap["draws"],
        "left_out": reasons,
        "shares": {
            name: {"logged": rows.drawn.get(name, 0) / drawn, "new": new.get(name, 0.0)}
            for name in dict.fromkeys([*router.expert_names, *rows.drawn])
        },
        "explore": explore,
    }


def check_price_weight(price_weight: float | None) -> float:
    """Refuse a weight of dollars that cannot be added to errors."""
    if price_weight is None or not 0 <= price_weight < np.inf:
        raise invalid(
            "price_weight",
            f"must be the number of errors that a dollar is worth, 0 or more, because answers are "
            f"graded; got {price_weight}.",
        )
    return price_weight


def _interval_fields(interval: Interval) -> dict[str, float]:
    return {
        "mean": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "standard_error": interval.standard_error,
    }


def _estimates(
    rows: Rows,
    costs: FloatArray,
    draw_target: FloatArray,
    draw_serving: FloatArray | None,
    confidence: float,
    seed: int,
) -> dict[str, OffPolicyEstimate]:
    """Estimates by name from the costs (n,) of the rows.

    ``draw_target`` (E, n_experts) and ``draw_serving`` (E,) are by draw; rows take those of theirs.
    """
    answers = rows.answers()
    target = draw_target[rows.episode]
    if draw_serving is None:
        serving: FloatArray = np.ones(len(costs))
    else:
        serving = draw_serving[rows.episode]
    n_experts = target.shape[1]
    expected = expected_costs(rows.features, answers.expert, costs, rows.episode, n_experts, seed)
    robust = doubly_robust(answers, costs, target, expected, confidence)
    logged = logged_mean(answers, costs, confidence)
    served = serving_router(answers, costs, target, expected, serving, confidence)
    return {
        "logged": logged,
        "serving": served,
        "inverse_propensity": inverse_propensity(answers, costs, target, confidence),
        "self_normalised": self_normalised(answers, costs, target, confidence),
        "doubly_robust": robust,
        "difference": robust.minus(logged),
        "difference_to_serving": robust.minus(served),
    }


@dataclass(frozen=True, eq=False)
class Rows:
    """n rows in E episodes."""

    episode: IntArray  # (n,) index of the draw that the row belongs to
    chosen: IntArray  # (E,) expert that was drawn; -1 if the new router does not know it
    propensity: FloatArray
    preferred: BoolArray  # (E,) whether the serving router would draw it without exploration
    wanted: IntArray  # (E,) what the new router would choose
    drawn: dict[str, int]  # how often each expert was drawn, by name
    features: FloatArray  # (n, d) float32 for the cost model
    dollars: FloatArray  # (n,)
    failed: FloatArray
    error: FloatArray  # NaN if the answer was not graded
    weight: FloatArray  # for how many requests it stands

    def kept(self, rows: BoolArray) -> Rows:
        """Some of the rows, and the draws that they belong to."""
        used, episode = np.unique(self.episode[rows], return_inverse=True)
        draws = {
            name: getattr(self, name)[used]
            for name in ("chosen", "propensity", "preferred", "wanted")
        }
        names = ("features", "dollars", "failed", "error", "weight")
        own = {name: getattr(self, name)[rows] for name in names}
        return replace(self, episode=episode, **draws, **own)

    def answers(self) -> LoggedAnswers:
        """The rows; no request has two of them."""
        expert = self.chosen[self.episode]
        propensity = self.propensity[self.episode]
        return LoggedAnswers(expert, propensity, self.weight, self.weight, self.episode)

    def draws(self) -> LoggedAnswers:
        """The draws, each with the mean weight of its rows."""
        n_draws = self.chosen.size
        n_rows = np.bincount(self.episode, minlength=n_draws)
        weight = np.bincount(self.episode, self.weight, minlength=n_draws) / n_rows
        return LoggedAnswers(self.chosen, self.propensity, weight, weight, np.arange(n_draws))

    def serving_weights(self, explore: float) -> FloatArray | None:
        """(E,) weights of the serving router under another share of exploration; None if it is not known.

        Of m experts the preferred one was drawn with ``1 - e + e / m`` and any other with ``e / m``, where
        e is the share of the log.
        """
        if not self.preferred.any() or self.preferred.all():
            return None
        missed = 1 - float(self.propensity[self.preferred].mean())
        other = float(self.propensity[~self.preferred].mean())
        scale = explore / (missed + other)
        chance = np.where(self.preferred, 1 - scale * missed, scale * other)
        weights: FloatArray = chance / self.propensity
        return weights

    def changes(self) -> dict[str, Any]:
        """Share of the draws that the new router decides otherwise, and draws that tell of these."""
        same = self.chosen == self.wanted
        changed = ~same[self.preferred]
        return {
            "changed": float(changed.mean()) if changed.size else None,
            "changed_draws": int((same & ~self.preferred).sum()),
        }


def collect_rows(blocks: Iterable[list[LoggedRow]], router: Router, seed: int = 0) -> Rows:
    """Let the new router decide every row; texts are not kept."""
    places = {name: place for place, name in enumerate(router.expert_names)}
    project = None
    if router.n_features > WIDE:
        rng = np.random.default_rng(seed)
        project = rng.standard_normal((router.n_features, NARROW)) / np.sqrt(NARROW)
        project = project.astype(np.float32)
    drawn: Counter[str] = Counter()
    parts: list[tuple[Any, ...]] = []
    for block in blocks:
        X = router.features([row.text for row in block])
        narrow = first_columns(X, router.n_features)
        if project is not None:
            narrow = narrow @ project
        draws = [row for row in block if row.decides]
        drawn.update(row.chosen for row in draws)
        parts.append(
            (
                np.array([row.episode for row in block], np.intp),
                np.array([places.get(row.chosen, -1) for row in draws], np.intp),
                np.array([row.propensity for row in draws], float),
                np.array([row.preferred for row in draws], bool),
                router.predict(X)[np.array([row.decides for row in block])],
                np.column_stack([narrow, router.decision_function(X)]).astype(np.float32),
                np.array(
                    [(row.dollars, row.failed, row.error, row.weight) for row in block], float
                ),
            )
        )
    if not parts:
        none, empty = np.empty(0, np.intp), np.empty(0)
        flags, features = np.empty(0, bool), np.empty((0, 1), np.float32)
        return Rows(none, none, empty, flags, none, {}, features, empty, empty, empty, empty)
    episode, chosen, propensity, preferred, wanted, inputs, results = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    return Rows(episode, chosen, propensity, preferred, wanted, dict(drawn), inputs, *results.T)


def judge(
    overlap: Mapping[str, Any],
    gap: Interval | None,
    unit: str,
    left_out: Mapping[str, int],
) -> tuple[str, str]:
    """Reason of a ``ReplayVerdict`` and its sentence.

    ``unit`` is "$" where only dollars are known, which the sentence begins with.
    """
    if overlap["draws"] == 0:
        return _nothing(left_out)
    if overlap["unseen"]:
        names = ", ".join(f"{name} ({share:.1%})" for name, share in overlap["unseen"].items())
        told = f"the new router gives queries to experts that were never drawn here: {names}."
        remedy = (
            "The log does not say what they would have cost; add them to the gateway and explore."
        )
        if overlap["unknown"]:
            remedy = (
                f"The log has {listed(overlap['unknown'])}, which the router does not know: names must "
                f"be the same in both, and a new expert must be drawn before it can be judged."
            )
        return _open("unseen", f"{told} {remedy}")
    if abs(overlap["mean_weight"] - 1) > 4 * overlap["weight_error"] + 1e-9:
        return _open(
            "propensities",
            f"the weights must be 1 on average; they are {overlap['mean_weight']:.3f} (standard error "
            f"{overlap['weight_error']:.3f}), so the logged propensities do not match the draws.",
        )
    if gap is None or overlap["effective"] < ENOUGH:
        return _open(
            "too_few",
            f"too few draws. The {overlap['draws']:,} draws say as much about the new router as "
            f"{overlap['effective']:.0f} decisions of its own would; with fewer than {ENOUGH:.0f} the "
            "intervals cannot be trusted. Explore more or longer.",
        )
    if overlap["changed"] == 0 and gap.estimate == 0:
        sentence = (
            "The new router decides like the serving one: there is no difference to estimate."
        )
        return "same", sentence
    if overlap["changed"] and overlap["changed_draws"] < ENOUGH_CHANGED:
        return _open(
            "too_few",
            f"too few draws. The new router decides {overlap['changed']:.1%} of the requests differently, "
            f"and only {counted(overlap['changed_draws'], 'draw shows', 'draws show')} what that costs "
            f"({ENOUGH_CHANGED} are needed). Explore more or longer.",
        )
    only = "" if not unit else "Dollars only, no feedback on the answers: the"
    span = f"{gap.confidence * 100:g} % interval of the difference {_money(gap.low, unit)} to "
    span += _money(gap.high, unit)
    if gap.high < 0 or gap.low > 0:
        verdict, change = ("better", "less") if gap.high < 0 else ("worse", "more")
        amount = _money(abs(gap.estimate), unit)
        sentence = (
            f"{only or 'The'} new router would have been {verdict}: {amount} {change} "
            f"per request than the serving one, exploration aside ({span})."
        )
        return verdict, sentence
    more = ""
    if gap.estimate != 0 and gap.standard_error > 0:
        factor = ((gap.high - gap.low) / 2 / abs(gap.estimate)) ** 2
        if factor < 100:
            more = f" If the true difference is this large, about {factor:.1f} times as many draws "
            more += "would show it."
    what = "difference in dollars" if unit else "difference"
    told = f"the {what} of {_money(gap.estimate, unit)} is within the noise ({span}).{more}"
    return _open("noise", f"{told} Only dollars are known: give feedback=FILE." if unit else told)


def _open(reason: str, words: str) -> tuple[str, str]:
    return reason, f"It is not clear whether the new router is better: {words}"


def _nothing(left_out: Mapping[str, int]) -> tuple[str, str]:
    certain = left_out.get("drawn without exploration", 0)
    if certain:
        return _open(
            "nothing",
            f"all {certain:,} routed requests were decided without exploration, so no row shows what "
            "another expert would have cost. Set explore = 0.05 under [routing] and collect more requests.",
        )
    if left_out.get(WITHOUT_QUERY):
        return _open(
            "nothing",
            "the ledger has no texts, and the new router needs them. Set keep_text = true under [ledger], "
            "or give the queries with queries=FILE.",
        )
    said = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    words = f"no row can be used ({said})." if said else "the ledger has no rows in this span."
    return _open("nothing", words)


def _money(value: float, unit: str) -> str:
    sign = "-" if value < 0 else ""
    if unit:
        return f"{sign}{unit}{amount(abs(value))}"
    # Costs of another system may be small.
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else plain_number(value, 3)
