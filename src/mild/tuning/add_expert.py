"""Add an expert to a router from few graded answers, without refitting it."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mild.artifact import Router, load
from mild.artifact.info import CostInfo, SharesInfo
from mild.core.arrays import IntArray, as_python, check_strength, invalid
from mild.core.costs import cheapest_expected
from mild.data import OutcomeTable, read_outcomes
from mild.data.cost_terms import CostTerms, require_scores
from mild.data.splits import folds
from mild.errors import (
    DegenerateDataWarning,
    InvalidInputError,
    UnsupportedError,
    check_arguments,
    listed,
)
from mild.metrics import expert_shares
from mild.money import decimals
from mild.policies import Policy
from mild.policies.adding import Labels, extended
from mild.tuning.fitting import contents
from mild.tuning.training_rows import TrainingQueryIndex, query_hashes, terms_of

#: Labels from which on no warning is given, and above which a refit is as good.
FEW, MANY = 30, 300
# Parts of the labelled rows, each held out once, by which the gain is judged; standard errors to each side
# in an interval of 95 %.
FOLDS, Z = 5, 1.96


@dataclass(frozen=True, repr=False)
class AddedExpert:
    """A router with one more expert, and how far the new expert can be trusted.

    The gain is what the router with the new expert costs less than the one without it, per query, on
    labelled rows that were held out. It is trusted when its interval is above 0.

    Attributes
    ----------
    router : the router with the new expert
    name : name of the new expert
    labels : number of its graded answers
    share : share of the queries that the router sends to it
    cost : its mean cost per query: estimate, 95 % interval
    gain : what the router gains per query: estimate, 95 % interval
    trusted_at : number of labels from which on the gain is certain, if it stays; None without a
        gain
    by_scores : whether the router decided by scores before

    Examples
    --------
    >>> import mild
    >>> known = table.with_experts(["large"])
    >>> router = mild.fit(known, router="regression")
    >>> added = mild.add_expert(router, table)
    >>> added.name, added.router.expert_names
    ('small', ['large', 'small'])
    """

    router: Router
    name: str
    labels: int
    share: float
    cost: tuple[float, float, float]
    gain: tuple[float, float, float]
    trusted_at: int | None
    by_scores: bool

    @property
    def trusted(self) -> bool:
        """Whether the interval of the gain is above 0."""
        return self.gain[1] > 0

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        (mean, low, high), (gain, least, most) = self.cost, self.gain
        certain = f"The gain is not certain; it would be at about {self.trusted_at or 0:,} labels."
        if self.trusted or self.trusted_at is None:
            certain = "The gain is certain." if self.trusted else "These labels show no gain."
        found = [
            f"{self.name}: {self.labels:,} labels, mean cost {decimals(mean, 3)} ({decimals(low, 3)} to "
            f"{decimals(high, 3)}); the router sends it {100 * self.share:.0f} % of the queries.",
            f"Gain over the router without it: {decimals(gain)} per query ({decimals(least)} to "
            f"{decimals(most)}, 95 %).",
            certain,
        ]
        if self.by_scores:
            found.append("It decided by scores; it now decides by expected errors and prices.")
        if self.labels > MANY:
            found.append("With so many labels, tune a router on all outcomes (mild tune).")
        return found

    def as_dict(self) -> dict[str, Any]:
        """What ``mild add-expert --json`` prints."""
        names = [field.name for field in fields(self) if field.name != "router"]
        found = {name: getattr(self, name) for name in (*names, "trusted", "sentences")}
        return as_python({**found, "experts": self.router.expert_names}, finite=True)

    def __repr__(self) -> str:
        return "\n".join([f"AddedExpert({self.name})", *self.sentences])


@check_arguments
def add_expert(
    router: Router | str | os.PathLike[str],
    table: Any,
    name: str | None = None,
    *,
    known: Any = None,
    price: float | None = None,
    beta: float = 0.0,
) -> AddedExpert:
    """Add an expert to a router from graded answers, usually 30 to 300, without refitting it.

    Its estimate is a mixture of those of the known experts plus a constant (``mild.policies.adding``).

    Parameters
    ----------
    router : one with text features that expects costs, or has separate heads for error and price; or the
        folder of one
    table : OutcomeTable, or whatever ``mild.read_outcomes`` takes, with scores of the new expert
    name : the new expert; by default the only expert of the table that the router does not know
    known : the table that the router was fitted on; what the known experts did on the labelled queries is
        taken from it where ``table`` does not say it, and means are over its rows
    price : dollars per answer; by default those of the table
    beta : what asking it costs, in wrong answers, beside dollars and seconds

    Returns
    -------
    AddedExpert, whose ``router`` has the new expert as its last one. Its target, trade-offs and verdict are
    those of other experts and are left out.

    Examples
    --------
    >>> import mild
    >>> from mild.data.datasets import load_outcomes
    >>> table = load_outcomes()
    >>> known = table.with_experts(["gemma3", "smollm2"])
    >>> router = mild.fit(known, router="regression", alpha=100.0)
    >>> added = mild.add_expert(router, table.take(range(100)), known=table)
    >>> added.name, added.labels, added.router.expert_names
    ('rules', 100, ['gemma3', 'smollm2', 'rules'])
    """
    if isinstance(router, (str, os.PathLike)):
        router = load(router)
    elif not isinstance(router, Router):
        rule = f"must be a Router, or its folder; got {type(router).__name__}."
        raise invalid("router", rule)
    if router.text is None or router.cascade is not None:
        what = "a router of columns of numbers" if router.text is None else "a cascade"
        remedy = "fit it again" if router.text is None else "add it to router.direct, or tune again"
        raise UnsupportedError(f"{what} takes no new expert; {remedy}.")
    table, known = (
        one if isinstance(one, OutcomeTable | None) else read_outcomes(one, part="train")
        for one in (table, known)
    )
    require_scores(table, "table")
    new = _new_name(router, table, name)
    names, info = [*router.expert_names, new], router.info
    terms = terms_of(router) or CostTerms()
    betas = {**{one: (terms.beta or {}).get(one, 0.0) for one in names}, new: beta}
    terms = replace(
        terms, beta=betas if any(betas.values()) else None, price_weight=info.price_weight
    )
    own = _labelled(table, known, names)
    # The table sorts its experts; below, the new one comes last, as in the router.
    columns = [own.expert_names.index(one) for one in names]
    if price is not None:
        own.prices[:, columns[-1]] = check_strength("price", price)
    costs = terms.costs(own, piece=True)[:, columns]
    in_dollars = info.price_head == "dollars" or bool(
        terms.price_weight and not (info.cost and info.cost.has_other_prices)
    )
    lacking = np.isnan(costs[:, -1])
    if lacking.all() or (in_dollars and np.isnan(own.prices[:, columns[-1]]).all()):
        rule = f"must be known: the table has no {terms.measured or 'price'} of {new}, which the router"
        raise invalid(
            "price", f"{rule} weighs; add cost__{new} or latency_ms__{new}, or give price."
        )
    own, costs = own.take(~lacking), costs[~lacking]
    if own.rows < FEW:
        few = f"{own.rows} labels of {new} say little; {FEW} to {MANY} are usual."
        warnings.warn(few, DegenerateDataWarning, stacklevel=3)
    errors = 1 - own.scores[:, columns]
    paid = float((costs - errors)[:, -1].mean())
    if in_dollars:
        paid = float(np.nanmean(own.prices[:, columns[-1]])) + beta / (
            terms.price_weight or math.inf
        )
    step = router.text
    labels = Labels(
        step.vectorize(contents(own, step)),
        step.vectorize(contents(own if known is None else known, step)),
        errors[:, :-1],
        costs[:, :-1],
        errors[:, -1],
        costs[:, -1],
        paid,
    )
    by_scores = router.policy.decide(labels.X[:1]).costs is None
    if by_scores and not router.has_prices:
        rule = "this router learned which expert is best, not what each costs; fit one that does,"
        raise UnsupportedError(
            f"{rule} as mild.fit(TABLE, router='priced'), and add the expert to it."
        )
    if by_scores:
        heads = router.policy.with_prices(price_weight=terms.price_weight or 0.0)
        router = replace(router, policy=heads)
    policy, deviation = extended(router.policy, labels)
    expected_means = policy.expected_costs(labels.reference).mean(axis=0)
    constant = int(cheapest_expected(expected_means[None], policy.ranks)[0])
    expected = expected_means.tolist()
    shares = expert_shares(policy.predict(labels.reference), len(names)).tolist()
    novelty = router.novelty
    if novelty is not None:
        column = [expected[-1]] if len(novelty.means) == 1 else [labels.errors.mean(), paid]
        novelty = replace(novelty, means=np.column_stack([novelty.means, column]))
    index, before = TrainingQueryIndex.of(own), TrainingQueryIndex.by(router)
    index = index if before is None else index + before
    added = replace(
        router,
        policy=policy,
        expert_names=names,
        query_hashes=index.hashes,
        novelty=novelty,
        calibration=None,
        info=replace(
            info,
            cost=info.cost and CostInfo(terms.formula(own), **terms.as_dict()),
            constant=names[constant],
            mean_scores={**(info.mean_scores or {}), new: float(1 - labels.errors.mean())},
            shares=SharesInfo(len(labels.reference), dict(zip(names, shares, strict=True))),
            standard_errors={**(info.standard_errors or {}), new: deviation},
            hashes_complete=index.complete,
            target=None,
            tradeoffs=None,
            verdict=None,
            calibration=None,
        ),
    )
    gain, spread = _gain(router.policy, labels, own.groups())
    return AddedExpert(
        router=added,
        name=new,
        labels=own.rows,
        share=shares[-1],
        cost=(expected[-1], expected[-1] - Z * deviation, expected[-1] + Z * deviation),
        gain=(gain, gain - Z * spread, gain + Z * spread),
        trusted_at=None if gain <= 0 else math.ceil(own.rows * (Z * spread / gain) ** 2),
        by_scores=by_scores,
    )


def _gain(policy: Policy, labels: Labels, groups: IntArray) -> tuple[float, float]:
    """Mean gain of the new expert on labelled rows that are held out, and its standard error."""
    count = len(np.unique(groups))
    if count < 2:
        return 0.0, math.inf
    asked, every = np.zeros(len(groups), bool), np.arange(len(groups))
    for train, test in folds(groups, min(FOLDS, count)):
        larger, _ = extended(policy, labels.take(train))
        asked[test] = larger.predict(labels.X[test]) == policy.n_experts
    before = policy.predict(labels.X)
    paid = labels.known_costs[every, before]
    paid = np.where(np.isnan(paid), policy.expected_costs(labels.X)[every, before], paid)
    gains = asked * (paid - labels.costs)
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


def _labelled(table: OutcomeTable, known: OutcomeTable | None, names: list[str]) -> Any:
    """Rows with a score of the last expert, with the outcomes of the others; see ``add_expert``."""
    own = table.take(~np.isnan(table.outcomes_of(names[-1:])[0][:, 0]))
    if own.rows == 0:
        rule = (
            f"must have graded answers of {names[-1]}; it has none. Grade {FEW} to {MANY} of them."
        )
        raise InvalidInputError(f"the table {rule}", parameter="table", code="no_labels")
    outcomes = own.outcomes_of(names)
    if known is not None:
        where = {key: row for row, key in enumerate(query_hashes(known).tolist())}
        found = np.array([where.get(key, -1) for key in query_hashes(own).tolist()])
        for mine, theirs in zip(outcomes, known.outcomes_of(names), strict=True):
            lacking = np.isnan(mine) & (found >= 0)[:, None]
            mine[lacking] = theirs[found][lacking]
    scores, prices, latencies = outcomes
    return replace(own, expert_names=names, scores=scores, prices=prices, latencies=latencies)
