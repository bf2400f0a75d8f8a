"""Add an expert to a router from few graded answers, without refitting it.

The estimate of a new expert is a mixture of those of the known experts plus a constant. Known experts
whose mean is near that of the new one weigh most beforehand; a ridge regression of its costs on those of
the known experts corrects the weights. Where the outcomes of the known experts on the labelled queries
are known, they take the place of their estimates: they tell which queries are hard.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from mild.artifact import Router
from mild.artifact.frames import html_table
from mild.artifact.info import SharesInfo
from mild.core.arrays import FloatArray, IntArray, as_python, check_share, invalid
from mild.data import OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms
from mild.data.splits import folds
from mild.errors import (
    DegenerateDataWarning,
    InvalidInputError,
    UnsupportedError,
    check_arguments,
    listed,
)
from mild.policies import Policy
from mild.policies.adding import Labels, extended
from mild.tuning.fit import fit_data
from mild.tuning.fitting import contents
from mild.tuning.training_rows import TrainingQueryIndex

#: Labels from which on no warning is given, and above which a refit is as good.
FEW, MANY = 30, 300
# Parts of the labelled rows, each held out once, by which the gain is judged.
FOLDS = 5


@dataclass(frozen=True)
class AddedExpert:
    """A router with one more expert, and how far the new expert can be trusted.

    The gain is what the router with the new expert costs less than the one without it, per query, on
    labelled rows that were held out. It is trusted when its interval is above 0.
    """

    router: Router
    name: str  # of the new expert
    labels: int  # its graded answers
    share: float  # of the queries that the router sends to it
    cost: tuple[float, float, float]  # its mean cost per query: estimate, and an interval
    gain: tuple[float, float, float]  # estimate, and an interval
    trusted: bool  # whether the interval of the gain is above 0
    # labels at which it would be, if the gain stays as it is; None if there is no gain
    trusted_at: int | None
    confidence: float
    outcomes: int  # labelled queries on which outcomes of known experts were used
    refitted: bool = False  # whether heads for error and price took the place of scores

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        level = f"{100 * self.confidence:g} % interval"
        mean, low, high = self.cost
        gain, least, most = self.gain
        found = [
            f"{self.name}: {self.labels:,} labels, mean cost {mean:.3f} ({level} {low:.3f} to {high:.3f}); "
            f"the router sends it {100 * self.share:.0f} % of the queries.",
            f"Gain over the router without it: {gain:.4f} per query ({level} {least:.4f} to {most:.4f}).",
        ]
        if self.trusted:
            found.append("The gain can be trusted.")
        elif self.trusted_at is None:
            found.append("These labels show no gain.")
        else:
            found.append(
                f"The gain is not certain; it would be at about {self.trusted_at:,} labels."
            )
        if self.refitted:
            found.append(
                "The router decided by scores; it now decides by expected errors and prices, fitted on the "
                "known table."
            )
        if self.labels > MANY:
            found.append("With so many labels, tune a router on all outcomes (mild tune).")
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        names = (
            "name",
            "labels",
            "outcomes",
            "share",
            "trusted",
            "trusted_at",
            "confidence",
            "refitted",
        )
        parts = ("estimate", "low", "high")
        found = {name: getattr(self, name) for name in names}
        found["experts"] = self.router.expert_names
        for name in ("cost", "gain"):
            found[name] = dict(zip(parts, getattr(self, name), strict=True))
        return as_python({**found, "sentences": self.sentences}, finite=True)

    def __repr__(self) -> str:
        return f"AddedExpert({self.name})\n" + "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        shown = {"labels": self.labels, "share": self.share, "trusted": self.trusted}
        return html_table(f"Added {self.name}", [shown], self.sentences)


@check_arguments
def add_expert(
    router: Router,
    table: Any,
    name: str | None = None,
    *,
    known: Any = None,
    price: float | None = None,
    beta: float = 0.0,
    confidence: float = 0.95,
) -> AddedExpert:
    """Add an expert to a router from graded answers, usually 30 to 300, without refitting it.

    Parameters
    ----------
    router : one with text features that expects costs; of another one, which decides by scores, heads for
        error and price are fitted on ``known``
    table : OutcomeTable, or whatever ``mild.read_outcomes`` takes, with scores of the new expert; scores of
        known experts on the same queries make the estimate better
    name : the new expert; by default the only expert of the table that the router does not know
    known : the table that the router was fitted on. Outcomes on labelled queries are taken from it, and
        means are over all its rows
    price : dollars per answer, where the table has no prices of the new expert
    beta : what asking it costs, in wrong answers, beside dollars and seconds
    confidence : of the intervals

    Returns
    -------
    AddedExpert, whose ``router`` has the new expert as its last one. Its target, trade-offs and verdict are
    those of other experts and are left out.

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> table = load_outcomes()
    >>> names = table.expert_names
    >>> router = mild.fit(table.with_experts(names[:2]), router="regression", alpha=100.0)
    >>> added = mild.add_expert(router, table.take(range(100)), known=table)
    >>> added.name, added.labels, added.router.expert_names == names
    ('rules', 100, True)
    """
    check_share("confidence", confidence)
    if router.text is None:
        raise UnsupportedError("a router of columns of numbers takes no new expert; fit it again.")
    if router.cascade is not None:
        rule = "a cascade takes no new expert; add it to the router beside it (router.direct)"
        raise UnsupportedError(f"{rule}, or tune again.")
    table, known = (
        one if one is None or isinstance(one, OutcomeTable) else read_outcomes(one, part="train")
        for one in (table, known)
    )
    new = _new_name(router, table, name)
    own = table.take(~np.isnan(table.scores[:, table.expert_names.index(new)]))
    if own.rows == 0:
        rule = f"must have graded answers of {new}; it has none. Grade {FEW} to {MANY} of them."
        raise InvalidInputError(f"the table {rule}", parameter="table", code="no_labels")
    if price is not None:
        own = _priced(own, new, price)
    cost = router.info.cost
    betas = {**((cost and cost.beta) or {}), new: beta}
    terms = CostTerms(
        betas,
        router.info.price_weight,
        None if cost is None else cost.latency_weight,
    )
    refitted = not _expects_costs(router)
    if refitted:
        router = _refitted(router, known, terms)
    step: Any = router.text
    names = router.expert_names
    errors, costs = _outcomes(own, [new], terms)
    kept = ~np.isnan(costs[:, 0])
    own, errors, costs = own.take(kept), errors[kept, 0], costs[kept, 0]
    if own.rows < FEW:
        few = f"{own.rows} labels of {new} say little; {FEW} to {MANY} are usual."
        warnings.warn(few, DegenerateDataWarning, stacklevel=3)
    parts = _outcomes(own, names, terms)
    reference = own if known is None else known
    if known is not None:
        where = {text: i for i, text in enumerate(_keys(known, router))}
        found = np.array([where.get(text, -1) for text in _keys(own, router)])
        for mine, theirs in zip(parts, _outcomes(known, names, terms), strict=True):
            lacking = np.isnan(mine) & (found >= 0)[:, None]
            mine[lacking] = theirs[found][lacking]
    labels = Labels(
        step.vectorize(contents(own, step)),
        step.vectorize(contents(reference, step)),
        *parts,
        errors,
        costs,
        _price(router, own, new, beta, float((costs - errors).mean())),
    )
    policy, deviation = extended(router.policy, labels)
    expected = policy.expected_costs(labels.reference).mean(axis=0)
    chosen = policy.predict(labels.reference)
    shares = np.bincount(chosen, minlength=len(names) + 1) / len(chosen)
    gain, spread = _gain(router.policy, labels, own.groups())
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    if cost is not None:
        cost = replace(cost, beta=betas if any(betas.values()) else None)
        if router.info.target is not None:  # the trade-off of the target stays
            cost = replace(cost, formula=f"error + {terms.price_weight or 0:g} × dollars")
            cost = replace(cost, price_weight=terms.price_weight)
    info = replace(
        router.info,
        cost=cost,
        constant=[*names, new][int(np.argmin(expected))],
        mean_scores={**(router.info.mean_scores or {}), new: float(1 - errors.mean())},
        standard_errors={**(router.info.standard_errors or {}), new: deviation},
        shares=SharesInfo(len(chosen), dict(zip([*names, new], shares.tolist(), strict=True))),
        target=None,
        tradeoffs=None,
        verdict=None,
        calibration=None,
    )
    novelty = router.novelty
    if novelty is not None:
        column = [expected[-1]] if len(novelty.means) == 1 else [errors.mean(), labels.price]
        novelty = replace(novelty, means=np.column_stack([novelty.means, column]))
    index, before = TrainingQueryIndex.of(own), TrainingQueryIndex.by(router)
    index = index if before is None else index + before
    added = replace(
        router,
        policy=policy,
        expert_names=[*names, new],
        info=replace(info, hashes_complete=index.complete),
        query_hashes=index.hashes,
        novelty=novelty,
        calibration=None,
    )
    needed = None if gain <= 0 else math.ceil(own.rows * (z * spread / gain) ** 2)
    return AddedExpert(
        router=added,
        name=new,
        labels=own.rows,
        share=float(shares[-1]),
        cost=(float(expected[-1]), expected[-1] - z * deviation, expected[-1] + z * deviation),
        gain=(gain, gain - z * spread, gain + z * spread),
        trusted=gain > z * spread,
        trusted_at=needed,
        confidence=confidence,
        outcomes=int((~np.isnan(labels.known_costs)).any(axis=1).sum()),
        refitted=refitted,
    )


def _gain(policy: Policy, labels: Labels, groups: IntArray) -> tuple[float, float]:
    """Mean gain of the new expert on labelled rows that are held out, and its standard error."""
    count = len(np.unique(groups))
    if count < 2:
        return 0.0, math.inf
    gains, every = np.zeros(len(groups)), np.arange(len(groups))
    for train, test in folds(groups, min(FOLDS, count)):
        larger, _ = extended(policy, labels.take(train))
        gains[test] = larger.predict(labels.X[test]) == policy.n_experts
    before = policy.predict(labels.X)
    paid = labels.known_costs[every, before]
    paid = np.where(np.isnan(paid), policy.expected_costs(labels.X)[every, before], paid)
    gains *= paid - labels.costs
    return float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))


def _new_name(router: Router, table: OutcomeTable, name: str | None) -> str:
    """The name of the new expert, which the table must have and the router must not."""
    others = [one for one in table.expert_names if one not in router.expert_names]
    if name is None and len(others) == 1:
        return others[0]
    if name in router.expert_names:
        raise invalid("name", f"must be new; {name!r} is an expert of the router already.")
    if name not in others:
        rule = f"must be an expert of the table that the router does not know: {listed(others) or 'none'}"
        raise invalid("name", f"{rule}; got {name!r}.")
    return name


def _priced(table: OutcomeTable, name: str, price: float) -> OutcomeTable:
    """The table with a constant price of one expert."""
    if not (math.isfinite(price) and price >= 0):
        raise invalid("price", f"must be finite and not negative; got {price!r}.")
    prices = np.full_like(table.scores, np.nan) if table.prices is None else table.prices.copy()
    prices[:, table.expert_names.index(name)] = price
    return replace(table, prices=prices)


def _expects_costs(router: Router) -> bool:
    policy = router.policy
    try:
        policy.expected_costs(np.zeros((1, policy.n_features), np.float32))
    except UnsupportedError:
        return False
    return True


def _refitted(router: Router, known: OutcomeTable | None, terms: CostTerms) -> Router:
    """Heads for error and price, fitted on the known table in place of scores."""
    from mild.routers.cost_models import HEAD_ALPHAS, PricedRouter

    if known is None:
        rule = "this router learned which expert is best, not what each costs; pass the table that it was"
        raise UnsupportedError(f"{rule} fitted on (known).", parameter="known")
    old = replace(
        terms, beta={k: v for k, v in (terms.beta or {}).items() if k in router.expert_names}
    )
    table = known.with_experts(router.expert_names)
    return fit_data(table, PricedRouter(alpha=HEAD_ALPHAS[1]), old, router.text).router


def _outcomes(
    table: OutcomeTable, names: list[str], terms: CostTerms
) -> tuple[FloatArray, FloatArray]:
    """Errors and costs (n, len(names)) of experts, NaN where they are unknown."""
    errors = np.full((table.rows, len(names)), np.nan)
    costs = errors.copy()
    own = [name for name in names if name in table.expert_names]
    for place, name in ((names.index(name), name) for name in own):
        k = table.expert_names.index(name)
        errors[:, place] = 1 - table.scores[:, k]
        costs[:, place] = errors[:, place] + (terms.beta or {}).get(name, 0.0)
        weighed = (terms.price_weight, table.prices), (terms.latency_weight, table.latencies)
        for weight, values in weighed:
            if weight:
                costs[:, place] += weight * (np.nan if values is None else values[:, k])
        if len(names) == 1 and np.isnan(costs).all():
            rule = f"needs {terms.measured} of {name}, which the router weighs; add the column"
            raise InvalidInputError(
                f"the table {rule} cost__{name}, or give price.", parameter="price"
            )
    return errors, costs


def _price(router: Router, own: OutcomeTable, new: str, beta: float, other: float) -> float:
    """Mean price of the new expert in the unit of the price heads; 0 where there are none."""
    cost = router.info.cost
    if not router.has_prices:
        return 0.0
    weighed = cost is not None and bool(cost.price_weight) and not cost.has_other_prices
    if router.info.price_head != "dollars" and not weighed:
        return other
    prices = None if own.prices is None else own.prices[:, own.expert_names.index(new)]
    if prices is None or np.isnan(prices).all():
        rule = f"must be given: the router has prices, and the table has no column cost__{new}."
        raise invalid("price", rule)
    return float(np.nanmean(prices))


def _keys(table: OutcomeTable, router: Router) -> list[Any]:
    """What tells the queries of a table apart."""
    found = contents(table, router.text)
    return [row.tobytes() for row in found] if isinstance(found, np.ndarray) else list(found)
