"""Add an expert to a router from few graded answers, without refitting it."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact import Router, load
from mild.artifact.info import CostInfo, RouterInfo, SharesInfo
from mild.artifact.novelty import Novelty
from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python, check_strength, invalid
from mild.core.costs import cheapest_expected
from mild.data import Outcomes, read_outcomes
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
from mild.policies import MixPolicy, Policy
from mild.policies.adding import Labels, add_to_policy
from mild.tuning.fitting import feature_inputs
from mild.tuning.training_rows import TrainingQueryIndex, query_hashes, terms_of

#: With fewer labels than FEW a warning is given; with more than MANY, a refit is as good.
FEW = 30
MANY = 300
# Parts of the labelled rows, each held out once, by which the gain is judged.
FOLDS = 5
# Standard errors to each side in an interval of 95 %.
Z = 1.96


@dataclass(frozen=True, repr=False)
class AddedExpert:
    """A router with one more expert, and how far the new expert can be trusted.

    The gain is what the router with the new expert costs less than the one without it, per query, on
    labelled rows that were held out. It is trusted when its interval is above 0.

    Attributes
    ----------
    router : the router with the new expert
    name : name of the new expert
    n_labels : number of its graded answers
    share : share of the queries that the router sends to it
    cost : its mean cost per query: estimate, 95 % interval
    gain : what the router gains per query: estimate, 95 % interval
    trusted_at : number of labels at which the gain would be certain, if it stays the same; None
        without a gain
    by_scores : whether the router decided by scores before

    Examples
    --------
    >>> import mild
    >>> known = table.select(["large"])
    >>> router = mild.fit(known, router="ridge")
    >>> added = mild.add_expert(router, table)
    >>> added.name, added.router.experts
    ('small', ['large', 'small'])
    """

    router: Router
    name: str
    n_labels: int
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
    def shows_gain(self) -> bool:
        """Whether the router costs less with the new expert on the labelled rows, certain or not."""
        return self.gain[0] > 0

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        cost, lowest_cost, highest_cost = self.cost
        gain, lowest_gain, highest_gain = self.gain
        sentences = [
            f"{self.name}: {self.n_labels:,} labels, mean cost {decimals(cost, 3)} "
            f"({decimals(lowest_cost, 3)} to {decimals(highest_cost, 3)}); the router sends it "
            f"{100 * self.share:.0f} % of the queries.",
            f"Gain over the router without it: {decimals(gain)} per query ({decimals(lowest_gain)} to "
            f"{decimals(highest_gain)}, 95 %).",
            self._trust_sentence,
        ]
        if self.by_scores:
            sentences.append("It decided by scores; it now decides by expected errors and prices.")
        dropped_mix = self.router.info.dropped_mix
        if dropped_mix is not None:
            sentences.append(
                f"It mixed two settings ({dropped_mix}); it now decides by expected errors and prices."
            )
        if self.n_labels > MANY:
            sentences.append("With so many labels, tune a router on all outcomes (mild tune).")
        return sentences

    @property
    def _trust_sentence(self) -> str:
        """Whether the gain can be trusted, or when it could."""
        if self.trusted:
            return "The gain is certain."
        if self.trusted_at is None:
            return "These labels show no gain."
        return f"The gain is not certain; it would be at about {self.trusted_at:,} labels."

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        document = {
            "name": self.name,
            "labels": self.n_labels,
            "share": self.share,
            "cost": self.cost,
            "gain": self.gain,
            "trusted_at": self.trusted_at,
            "by_scores": self.by_scores,
            "trusted": self.trusted,
            "sentences": self.sentences,
            "experts": self.router.experts,
        }
        return as_python(document, finite=True)

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

    The expected cost of the new expert is a mixture of the expected costs of the router's experts, plus a
    constant (``mild.policies.adding``). The gain is how much less the router costs with it, estimated by
    cross-validation over the graded answers.

    Parameters
    ----------
    router : a Router with text features that predicts expected costs, or has separate heads for error and
        price; or the folder that it was saved in
    table : Outcomes, or anything that ``mild.read_outcomes`` accepts, with scores of the new expert
    name : name of the new expert; by default the only expert of the table that the router does not know
    known : the table that the router was fitted on. It fills in outcomes of the router's experts that are
        missing in ``table``, matched by query, and means are taken over its rows
    price : dollars per answer; by default the prices in the table
    beta : cost of asking the new expert, in units of one wrong answer, in addition to dollars and seconds

    Returns
    -------
    AddedExpert, whose ``router`` has the new expert last. The old router's target, trade-offs and verdict
    do not apply to it and are left out.

    Examples
    --------
    >>> import mild
    >>> from mild.datasets import load_outcomes
    >>> table = load_outcomes()
    >>> known = table.select(["gemma3", "smollm2"])
    >>> router = mild.fit(known, router="ridge", alpha=100.0)
    >>> added = mild.add_expert(router, table[:100], known=table)
    >>> added.name, added.n_labels, added.router.experts
    ('rules', 100, ['gemma3', 'smollm2', 'rules'])
    """
    router = _checked_router(router)
    table = read_outcomes(table)
    if known is not None:
        known = read_outcomes(known)
    require_scores(table, "table")
    new_expert = _new_name(router, table, name)
    terms = _terms_with(router, new_expert, beta)
    # Rows with a grade of the new expert, which is the last column of every array.
    rows = _labelled_rows(table, known, [*router.experts, new_expert], price)
    prices_are_dollars = _is_in_dollars(router, terms)
    rows, costs = _rows_with_costs(rows, terms, prices_are_dollars)
    if rows.n_rows < FEW:
        message = f"{rows.n_rows} labels of {new_expert} say little; {FEW} to {MANY} are usual."
        warnings.warn(message, DegenerateDataWarning, stacklevel=3)
    # In the unit of the router's price heads: dollars, or else wrong answers (the cost minus the error).
    if prices_are_dollars:
        mean_price = _mean_dollars(rows, beta, terms.price_weight)
    else:
        mean_price = float((costs - rows.errors)[:, -1].mean())
    labels = _make_labels(router, rows, costs, mean_price, reference_table=known)
    # A policy that decides by scores returns no expected costs. To add an expert, it decides by expected
    # errors and prices instead.
    by_scores = router.policy.decide(labels.X[:1]).costs is None
    router_with_costs = router
    if by_scores:
        router_with_costs = _deciding_by_prices(router, terms)
    extension = _extend(router_with_costs.policy, labels)
    info = _info_with(router.info, rows, terms, labels, extension)
    gain, gain_error = _gain(router_with_costs.policy, labels, query_hashes(rows.table))
    trusted_at = None
    if gain > 0:
        # The standard error falls with the square root of the number of labels: with this many, the
        # interval of the same gain would just exclude 0.
        trusted_at = math.ceil(rows.n_rows * (Z * gain_error / gain) ** 2)
    return AddedExpert(
        router=_router_with(router_with_costs, rows, labels, extension, info),
        name=new_expert,
        n_labels=rows.n_rows,
        share=extension.shares[-1],
        cost=_normal_interval(extension.mean_costs[-1], extension.standard_error),
        gain=_normal_interval(gain, gain_error),
        trusted_at=trusted_at,
        by_scores=by_scores,
    )


def _rows_with_costs(
    rows: _LabelledRows, terms: CostTerms, in_dollars: bool
) -> tuple[_LabelledRows, FloatArray]:
    """Return the rows in which the cost of the new expert is known, and their costs (n, n_experts)."""
    costs = terms.costs(rows.table, piece=True)[:, rows.columns]
    _check_price(rows, costs, terms, in_dollars)
    is_known = ~np.isnan(costs[:, -1])
    return rows.take(is_known), costs[is_known]


def _checked_router(router: Router | str | os.PathLike[str]) -> Router:
    """Return a router to which an expert can be added, loaded if its folder is given.

    A mix of two settings is replaced by one policy, because a mix has no expected costs.
    """
    if isinstance(router, (str, os.PathLike)):
        router = load(router)
    elif not isinstance(router, Router):
        rule = f"must be a Router, or its folder; got {type(router).__name__}."
        raise invalid("router", rule)
    if router.text is None:
        raise UnsupportedError("a router of columns of numbers takes no new expert; fit it again.")
    if router.cascade is not None:
        raise UnsupportedError(
            "a cascade takes no new expert; add it to router.direct, or tune again."
        )
    if router.mix is not None:
        return router.with_prices(price_weight=_price_weight_of_mix(router.mix))
    return router


def _price_weight_of_mix(mix: MixPolicy) -> float:
    """Return the price weight of the better setting of a mix; 0 if both are single experts."""
    for part in (mix.second, mix.first):
        policy: Any = part
        while hasattr(policy, "inner"):
            policy = policy.inner
        if hasattr(policy, "price_weight"):
            return float(policy.price_weight)
    return 0.0


def _new_name(router: Router, table: Outcomes, name: str | None) -> str:
    """Return the name of the new expert, which the table must have and the router must not."""
    others = [expert for expert in table.experts if expert not in router.experts]
    if name is None and len(others) == 1:
        return others[0]
    if name in router.experts:
        raise invalid("name", f"must be new; {name!r} is an expert of the router already.")
    if name not in others:
        rule = f"must be an expert of the table that the router does not know: {listed(others) or 'none'}"
        raise invalid("name", f"{rule}; got {name!r}.")
    return name


def _terms_with(router: Router, new_expert: str, beta: float) -> CostTerms:
    """Return the terms of the router's cost, with the beta of the new expert."""
    terms = terms_of(router) or CostTerms()
    known_betas = terms.beta or {}
    betas = {expert: known_betas.get(expert, 0.0) for expert in router.experts}
    betas[new_expert] = beta
    if not any(betas.values()):
        return replace(terms, beta=None, price_weight=router.info.price_weight)
    return replace(terms, beta=betas, price_weight=router.info.price_weight)


def _is_in_dollars(router: Router, terms: CostTerms) -> bool:
    """Whether the price of an expert is in dollars; otherwise it is in wrong answers."""
    if router.info.price_head == "dollars":
        return True
    if not terms.price_weight:
        return False
    cost = router.info.cost
    return cost is None or not cost.has_other_prices


@dataclass(frozen=True, eq=False)
class _LabelledRows:
    """Rows in which the new expert has a score; it is the last column of each array."""

    table: Outcomes  # the rows; its experts are sorted by name
    expert_names: list[str]  # in the order of the router
    errors: FloatArray  # (n, n_experts)
    prices: FloatArray  # (n, n_experts) dollars

    @property
    def n_rows(self) -> int:
        """Number of labels."""
        return len(self.table)

    @property
    def columns(self) -> list[int]:
        """For each expert, the index of its column in the table."""
        return [self.table.experts.index(name) for name in self.expert_names]

    def take(self, rows: BoolArray) -> _LabelledRows:
        """Return the rows of a mask (n,)."""
        return replace(
            self,
            table=self.table[rows],
            errors=self.errors[rows],
            prices=self.prices[rows],
        )


def _labelled_rows(
    table: Outcomes,
    reference_table: Outcomes | None,
    expert_names: list[str],
    price: float | None,
) -> _LabelledRows:
    """Return the rows of a table in which the last of the experts, the new one, has a score.

    Parameters
    ----------
    table : the table with graded answers of the new expert
    reference_table : the table that the router was fitted on, or None; outcomes of the other experts that
        ``table`` lacks are taken from it, by query
    expert_names : the experts of the router, and the new one
    price : dollars per answer of the new expert; None for those of the table
    """
    new_expert = expert_names[-1]
    new_scores = table.outcomes_of([new_expert])[0][:, 0]
    labelled = table[~np.isnan(new_scores)]
    if len(labelled) == 0:
        rule = (
            f"must have graded answers of {new_expert}; it has none. Grade {FEW} to {MANY} of them."
        )
        raise InvalidInputError(f"the table {rule}", parameter="table", code="no_labels")
    scores, prices, latencies = labelled.outcomes_of(expert_names)
    if reference_table is not None:
        source_row = _row_of_query(labelled, reference_table)
        source_scores, source_prices, source_latencies = reference_table.outcomes_of(expert_names)
        scores = _filled(scores, source_scores, source_row)
        prices = _filled(prices, source_prices, source_row)
        latencies = _filled(latencies, source_latencies, source_row)
    if price is not None:
        prices[:, -1] = check_strength("price", price)
    complete = replace(
        labelled, experts=expert_names, scores=scores, prices=prices, latencies=latencies
    )
    return _LabelledRows(complete, expert_names, 1 - scores, prices)


def _row_of_query(table: Outcomes, reference_table: Outcomes) -> IntArray:
    """Return, for each row of a table, the row (n,) of another one with its query; -1 if there is none."""
    row_of_hash = {query: row for row, query in enumerate(query_hashes(reference_table).tolist())}
    rows = [row_of_hash.get(query, -1) for query in query_hashes(table).tolist()]
    return np.array(rows)


def _filled(outcomes: FloatArray, source: FloatArray, source_row: IntArray) -> FloatArray:
    """Return outcomes (n, n_experts) with missing values taken from another array.

    ``source_row`` (n,) is the row of ``source`` with the same query; -1 if there is none.
    """
    has_source = (source_row >= 0)[:, None]
    return np.where(np.isnan(outcomes) & has_source, source[source_row], outcomes)


def _check_price(
    rows: _LabelledRows, costs: FloatArray, terms: CostTerms, in_dollars: bool
) -> None:
    """Refuse rows none of which has a cost of the new expert."""
    has_cost = not np.isnan(costs[:, -1]).all()
    has_dollars = not np.isnan(rows.prices[:, -1]).all()
    if has_cost and (has_dollars or not in_dollars):
        return
    new_expert = rows.expert_names[-1]
    lacking = (
        f"the table has no {terms.measured or 'price'} of {new_expert}, which the router weighs"
    )
    remedy = f"add cost__{new_expert} or latency_ms__{new_expert}, or give price"
    raise invalid("price", f"must be known: {lacking}; {remedy}.")


def _mean_dollars(rows: _LabelledRows, beta: float, price_weight: float | None) -> float:
    """Return the mean dollars of the new expert, plus its beta in dollars."""
    mean_dollars = float(np.nanmean(rows.prices[:, -1]))
    if not price_weight:
        return mean_dollars
    return mean_dollars + beta / price_weight


def _make_labels(
    router: Router,
    rows: _LabelledRows,
    costs: FloatArray,
    mean_price: float,
    reference_table: Outcomes | None,
) -> Labels:
    """Return the graded answers with features, as a policy learns a new expert from them.

    Expected means are taken over the reference table; over the graded rows if there is none.
    """
    assert router.text is not None
    if reference_table is None:
        reference_table = rows.table
    return Labels(
        X=router.text.vectorize(feature_inputs(rows.table, router.text)),
        reference=router.text.vectorize(feature_inputs(reference_table, router.text)),
        expert_errors=rows.errors[:, :-1],
        known_costs=costs[:, :-1],
        errors=rows.errors[:, -1],
        costs=costs[:, -1],
        price=mean_price,
    )


def _deciding_by_prices(router: Router, terms: CostTerms) -> Router:
    """Let a router that decides by scores decide by its expected errors and prices instead."""
    if not router.has_prices:
        rule = "this router learned which expert is best, not what each costs; fit one that does,"
        raise UnsupportedError(
            f"{rule} as mild.fit(TABLE, router='priced'), and add the expert to it."
        )
    return router.with_prices(price_weight=terms.price_weight or 0.0)


@dataclass(frozen=True, eq=False)
class _Extension:
    """A policy with the new expert, and what it is expected to do on the reference rows."""

    policy: Policy
    standard_error: float  # of the new expert's mean cost
    mean_costs: list[float]  # expected mean cost of each expert
    shares: list[float]  # share of the rows that each expert gets
    constant: int  # the expert of least mean cost


def _extend(policy: Policy, labels: Labels) -> _Extension:
    """Add the new expert to a policy, and compute what the larger policy is expected to do."""
    larger, standard_error = add_to_policy(policy, labels)
    mean_costs = larger.expected_costs(labels.reference).mean(axis=0)
    shares = expert_shares(larger.predict(labels.reference), larger.n_experts)
    return _Extension(
        policy=larger,
        standard_error=standard_error,
        mean_costs=mean_costs.tolist(),
        shares=shares.tolist(),
        constant=int(cheapest_expected(mean_costs[None], larger.ranks)[0]),
    )


def _info_with(
    info: RouterInfo,
    rows: _LabelledRows,
    terms: CostTerms,
    labels: Labels,
    extension: _Extension,
) -> RouterInfo:
    """Return what is recorded about the router, with the new expert.

    Target, frontier and verdict are left out: they hold only for the other experts.
    """
    names = rows.expert_names
    new_expert = names[-1]
    new_score = float(1 - labels.errors.mean())
    cost = info.cost
    if cost is not None:
        cost = CostInfo(terms.formula(rows.table), **terms.as_dict())
    return replace(
        info,
        cost=cost,
        constant=names[extension.constant],
        mean_scores={**(info.mean_scores or {}), new_expert: new_score},
        shares=SharesInfo(len(labels.reference), dict(zip(names, extension.shares, strict=True))),
        standard_errors={**(info.standard_errors or {}), new_expert: extension.standard_error},
        target=None,
        frontier=None,
        verdict=None,
    )


def _router_with(
    router: Router,
    rows: _LabelledRows,
    labels: Labels,
    extension: _Extension,
    info: RouterInfo,
) -> Router:
    """Return the router with the new expert, and with the hashes of the graded queries."""
    index = TrainingQueryIndex.of(rows.table)
    index_before = TrainingQueryIndex.by(router)
    if index_before is not None:
        index = index + index_before
    novelty = router.novelty
    if novelty is not None:
        novelty = _novelty_with(novelty, labels, extension)
    return replace(
        router,
        policy=extension.policy,
        experts=rows.expert_names,
        query_hashes=index.hashes,
        novelty=novelty,
        info=replace(info, hashes_complete=index.complete),
    )


def _novelty_with(novelty: Novelty, labels: Labels, extension: _Extension) -> Novelty:
    """Return the novelty of inputs with the means of the new expert."""
    new_means = [labels.errors.mean(), labels.price]
    if len(novelty.means) == 1:
        new_means = [extension.mean_costs[-1]]
    return replace(novelty, means=np.column_stack([novelty.means, new_means]))


def _normal_interval(estimate: float, standard_error: float) -> tuple[float, float, float]:
    """Return an estimate with the low and the high end of its 95 % interval."""
    return estimate, estimate - Z * standard_error, estimate + Z * standard_error


def _gain(policy: Policy, labels: Labels, groups: NDArray[np.uint64]) -> tuple[float, float]:
    """Estimate by cross-validation what the policy costs less with the new expert, per query.

    A query gains only if it is sent to the new expert: by the cost of the expert that it went to before,
    expected where unknown, minus that of the new one. Groups are hashes of the queries, so that the folds
    do not depend on the order of the rows.

    Returns
    -------
    gain, standard_error : floats
    """
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        return 0.0, math.inf
    asks_new_expert = np.zeros(len(groups), bool)
    for train, test in folds(groups, min(FOLDS, n_groups)):
        larger, _ = add_to_policy(policy, labels.take(train))
        asks_new_expert[test] = larger.predict(labels.X[test]) == policy.n_experts
    rows = np.arange(len(groups))
    chosen_before = policy.predict(labels.X)
    known_costs = labels.known_costs[rows, chosen_before]
    expected_costs = policy.expected_costs(labels.X)[rows, chosen_before]
    costs_before = np.where(np.isnan(known_costs), expected_costs, known_costs)
    gains = asks_new_expert * (costs_before - labels.costs)
    return float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))
