"""Figures of a table of outcomes: its experts, and what the best possible choice among them would gain.

The *oracle* sends each row to the expert that costs least there; it needs outcomes that no router knows.
The *best constant* sends all rows to the expert of lowest mean cost. The difference of their mean costs is
the *headroom*, the most that a router could gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from mild.artifact.frames import as_frame, default_library, html_table
from mild.core.answers import KINDS, Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import best_first, cheapest_known
from mild.data.cost_terms import CostTerms, KnownOutcomes
from mild.data.data_quality import Finding
from mild.errors import count_noun
from mild.metrics import (
    constant_losses,
    expert_shares,
    oracle_loss,
)
from mild.metrics.curves import prices_unused
from mild.metrics.results import (
    TIES,
    Results,
    is_graded,
    quality_name,
    ranks_in,
)
from mild.money import amount

#: A soft score from here on counts as a right answer.
RIGHT = 0.5
#: A description holds at most this many pairs of experts.
MAX_PAIRS = 1_000
#: Its text shows at most this many of them.
SHOWN_PAIRS = 10
#: The headroom is not given over fewer rows in which every expert was asked.
MIN_COMPLETE_ROWS = 5


class DescribedOutcomes(KnownOutcomes, Protocol):
    """What a description is made from; an Outcomes has it."""

    def __len__(self) -> int: ...
    @property
    def asked(self) -> BoolArray: ...
    @property
    def quality(self) -> FloatArray: ...
    @property
    def form(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def library(self) -> str | None: ...
    @property
    def answers(self) -> Answers | None: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """Figures of a table of outcomes under a cost; ``Outcomes.describe`` makes it.

    Attributes
    ----------
    content : dict
        The figures by name, as ``mild.data.describing.describe`` lists them.
    library : {"pandas", "polars", "pyarrow"} or None, default=None
        Library of the frame that ``to_frame`` gives.
    """

    content: Mapping[str, Any]
    library: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name, ready for JSON."""
        return dict(self.content)

    def to_frame(self) -> Any:
        """Return the figures of the experts as a frame with one row per expert."""
        return as_frame(self.content["experts"], self.library or default_library())

    @property
    def quality(self) -> str:
        """What the mean of the scores is called."""
        return quality_name(self.content["soft_scores"])

    @property
    def sentences(self) -> list[str]:
        """What to know about the table, besides its figures."""
        sentences = [
            *self._right_and_wrong(),
            self._oracle_sentence(),
            *self._agreement(),
        ]
        sentences.extend(finding["sentence"] for finding in self.content["findings"])
        if self.content["prices_unused"]:
            sentences.append(self.content["prices_unused"])
        return sentences

    def _right_and_wrong(self) -> list[str]:
        """Say how often the experts are right together; an empty list if there are no scores."""
        content = self.content
        if content["all_right"] is None:
            return []
        definition = ""
        if content["soft_scores"]:
            definition = " (a score of 0.5 or more)"
        all_right = f"{100 * content['all_right']:.1f} %"
        all_wrong = f"{100 * content['all_wrong']:.1f} %"
        some_right = f"{100 * content['some_right']:.1f} %"
        return [
            f"All experts that were asked are right on {all_right} of the queries{definition}, none on "
            f"{all_wrong}; on the other {some_right}, the choice of expert matters."
        ]

    def _oracle_sentence(self) -> str:
        shares = self.content["imbalance"]
        largest = f"{100 * shares['largest']:.1f} %"
        smallest = f"{100 * shares['smallest']:.1f} %"
        return f"The oracle sends {largest} to one expert and {smallest} to the rarest ({TIES})."

    def _agreement(self) -> list[str]:
        """Say how often the first pair of experts agrees; an empty list if they never do."""
        pairs = self.pairs
        if not pairs or not pairs[0]["agree"]:
            return []
        pair = pairs[0]
        kind = KINDS[self.content["answers"]["kind"]]
        return [
            f"Answers, compared {kind}: {' and '.join(pair['experts'])} "
            f"agree on {100 * pair['agree']:.1f} % of the queries, with a mean score of "
            f"{pair['accuracy_agree']:.3f} there. tune considers cascades, which read answers, with "
            "cascade=True."
        ]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """The pairs of experts to show: those that together cost less than the best expert, if any do."""
        if self.content["answers"] is None:
            return []
        pairs: list[dict[str, Any]] = self.content["answers"]["pairs"]
        experts = self.content["experts"]
        prices = {expert["name"]: expert["mean_price"] for expert in experts}
        if None not in prices.values():
            best_price = max(experts, key=lambda expert: expert["accuracy"])["mean_price"]
            cheaper = []
            for pair in pairs:
                first, second = pair["experts"]
                if prices[first] + prices[second] < best_price:
                    cheaper.append(pair)
            pairs = cheaper or pairs
        return pairs[:SHOWN_PAIRS]

    def __repr__(self) -> str:
        return "\n- ".join([self.content["layout"], *self.sentences])

    def _repr_html_(self) -> str:
        return html_table(self.content["layout"], self.content["experts"], self.sentences)


def describe(table: DescribedOutcomes, terms: CostTerms) -> Description:
    """Describe the experts of a table, and what the best possible choice among them would gain.

    Costs are those of ``terms``. "Accuracy" is a mean score; all accuracies are None for a table of
    numbers, which has no scores. Any other unknown figure is None as well.

    Parameters
    ----------
    table : Outcomes
        The outcomes.
    terms : CostTerms
        What asking an expert costs, and what dollars and seconds are worth.

    Returns
    -------
    Description
        With these entries:

        - ``fingerprint``, ``rows``, ``form``, ``layout``, ``findings``: those of the table, and
          ``cost``: the terms of the cost, and a sentence about them
        - ``experts``: a list with an entry per expert, see ``_describe_experts``; the best mean score
          comes first
        - ``oracle`` (the cheapest expert of each row), ``best_constant`` (the expert of lowest mean cost)
          and ``headroom`` (how much less the oracle costs than that expert), over the rows that
          ``compared`` counts and describes in words, see ``_compare_experts``
        - ``all_right``, ``all_wrong``: shares of the rows in which all, or none, of the experts that were
          asked are right; ``some_right``: the rest, where routing can make a difference
        - ``imbalance``: largest and smallest share of the rows that the oracle sends to an expert
        - ``answers``: how often pairs of experts agree, see ``_describe_answers``; None without answers
        - ``soft_scores``: whether some scores lie between 0 and 1
        - ``prices_unused``: a sentence about prices that the table has and the cost leaves out; None
          if there are none
    """
    costs = terms.costs(table)
    ranks = ranks_in(table.quality, table.prices)
    comparison = _compare_experts(table, costs, ranks)
    is_right = table.asked & (table.scores >= RIGHT)
    findings = [*table.findings, *_unknown_losses(table, terms, costs)]
    findings += _finding_about_rows(comparison.n_complete, len(table))
    content = {
        "fingerprint": table.fingerprint(),
        "cost": _describe_cost(table, terms),
        "rows": len(table),
        "form": table.form,
        "layout": table.layout,
        "experts": _describe_experts(table, costs, is_right, comparison.oracle_shares, ranks),
        "compared": {
            "rows": comparison.n_complete,
            "rule": "rows in which every expert was asked",
        },
        "oracle": comparison.oracle,
        "best_constant": comparison.best_constant,
        "headroom": comparison.headroom,
        **_shares_right(table, is_right),
        "imbalance": {
            "largest": float(comparison.oracle_shares.max()),
            "smallest": float(comparison.oracle_shares.min()),
        },
        "answers": _describe_answers(table),
        "soft_scores": is_graded(table.scores),
        "findings": [finding.as_dict() for finding in findings],
        "prices_unused": _unused_prices_sentence(table, terms),
    }
    return Description(content, table.library)


def _unused_prices_sentence(table: DescribedOutcomes, terms: CostTerms) -> str | None:
    """Say what the experts cost in dollars where a table has prices and the cost leaves them out."""
    if not has_unused_prices(table, terms):
        return None
    hint = " What a router could save is measured by tune."
    return prices_unused(describe_prices(table, hint))


def _has_scores(table: DescribedOutcomes) -> bool:
    """Return whether the table has scores; a table of numbers has the whole cost of each expert instead."""
    return table.given_costs is None


def _describe_cost(table: DescribedOutcomes, terms: CostTerms) -> dict[str, Any]:
    """Return the terms of the cost, by expert and in words."""
    beta = dict(zip(table.experts, terms.betas(table), strict=True))
    return {**terms.with_full_names(table).as_dict(), "words": terms.formula(table), "beta": beta}


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The best single expert and the oracle, which sends each row to its cheapest expert."""

    n_complete: int  # rows in which every expert was asked
    oracle_shares: (
        FloatArray  # (n_experts,) shares of the rows that the oracle sends to each expert
    )
    oracle: dict[str, Any]  # "cost" and "accuracy": means, None if they cannot be compared
    best_constant: dict[str, Any]  # "expert" of lowest mean cost, and its "cost" and "accuracy"
    headroom: float | None  # mean cost of that expert minus that of the oracle


def _compare_experts(table: DescribedOutcomes, costs: FloatArray, ranks: IntArray) -> _Comparison:
    """Compare the oracle with the best single expert, over the rows in which every expert was asked.

    Means over different rows cannot be compared. With fewer than MIN_COMPLETE_ROWS such rows, only the name
    of the best expert and the oracle's shares are returned, from all rows with a known cost.

    Parameters
    ----------
    table : Outcomes
    costs : ndarray of shape (n_rows, n_experts)
        NaN where an expert was not asked.
    ranks : ndarray of shape (n_experts,)
        Order of the experts in which ties are resolved; the lowest rank is preferred.

    Returns
    -------
    _Comparison
    """
    n_experts = len(table.experts)
    is_complete = np.asarray(~np.isnan(costs).any(axis=1))
    n_complete = int(is_complete.sum())
    if n_complete < len(costs) and n_complete < MIN_COMPLETE_ROWS:
        has_cost = np.asarray(~np.isnan(costs).all(axis=1))
        outcomes = _outcomes_in_rows(table, costs, ranks, has_cost)
        best_name = table.experts[outcomes.best_constant()]
        return _Comparison(
            n_complete,
            oracle_shares=expert_shares(outcomes.oracle(), n_experts),
            oracle={"cost": None, "accuracy": None},
            best_constant={"expert": best_name, "cost": None, "accuracy": None},
            headroom=None,
        )
    outcomes = _outcomes_in_rows(table, costs, ranks, is_complete)
    oracle_choices = outcomes.oracle()
    best_expert = outcomes.best_constant()
    oracle_cost = oracle_loss(costs[is_complete])
    best_cost = float(constant_losses(costs[is_complete])[best_expert])
    oracle_accuracy = None
    best_accuracy = None
    if _has_scores(table):
        scores = table.scores[is_complete]
        oracle_accuracy = float(scores[np.arange(len(scores)), oracle_choices].mean())
        best_accuracy = float(scores[:, best_expert].mean())
    best_name = table.experts[best_expert]
    return _Comparison(
        n_complete,
        oracle_shares=expert_shares(oracle_choices, n_experts),
        oracle={"cost": oracle_cost, "accuracy": oracle_accuracy},
        best_constant={"expert": best_name, "cost": best_cost, "accuracy": best_accuracy},
        headroom=best_cost - oracle_cost,
    )


def _outcomes_in_rows(
    table: DescribedOutcomes, costs: FloatArray, ranks: IntArray, mask: BoolArray
) -> Results:
    """Return costs, scores and prices of the rows that a mask (n_rows,) selects."""
    prices = table.prices
    if prices is not None:
        prices = prices[mask]
    return Results(costs[mask], table.scores[mask], prices, ranks=ranks)


def _describe_experts(
    table: DescribedOutcomes,
    costs: FloatArray,
    is_right: BoolArray,
    oracle_shares: FloatArray,
    ranks: IntArray,
) -> list[dict[str, Any]]:
    """Describe each expert in a dictionary, ordered by rank: the highest mean score first.

    The entries of a dictionary are ``name``, ``asked`` (number of rows), ``accuracy`` (mean score),
    ``mean_price`` in dollars, ``mean_latency`` in seconds, ``mean_cost``, and three shares. The first two
    are shares of all rows, ``oracle_share`` of the rows that the oracle was computed on
    (``_compare_experts``):

    - ``cheapest_and_right``: it is right and costs least to ask among those that are right. Ties go to the
      lower price, then to the higher mean score, then by name
    - ``only_right``: several experts were asked, and it alone is right
    - ``oracle_share``: it has the lowest cost

    ``costs`` and ``is_right`` are (n_rows, n_experts), ``oracle_shares`` and ``ranks`` (n_experts,).
    """
    asked = table.asked
    accuracies = _column_means(table.scores, asked)
    mean_prices = _column_means(table.prices, asked)
    mean_latencies = _column_means(table.latencies, asked)
    # ``constant_losses`` refuses rows in which no cost is known.
    mean_costs = constant_losses(costs[~np.isnan(costs).all(axis=1)])
    cheapest_and_right_shares = _cheapest_and_right_shares(table, costs, is_right)
    only_right_shares = _only_right_shares(table, is_right)
    entries = [
        {
            "name": table.experts[index],
            "asked": int(asked[:, index].sum()),
            "accuracy": accuracies[index],
            "mean_price": mean_prices[index],
            "mean_latency": mean_latencies[index],
            "mean_cost": float(mean_costs[index]),
            "cheapest_and_right": cheapest_and_right_shares[index],
            "only_right": only_right_shares[index],
            "oracle_share": float(oracle_shares[index]),
        }
        for index in best_first(ranks)
    ]
    return entries


def _only_right_shares(table: DescribedOutcomes, is_right: BoolArray) -> list[float | None]:
    """Return, for each expert, the share of rows in which it alone of several experts is right."""
    if not _has_scores(table):
        return [None] * len(table.experts)
    several_asked = table.asked.sum(axis=1) > 1
    one_right = is_right.sum(axis=1) == 1
    is_only_right = is_right & one_right[:, None] & several_asked[:, None]
    shares: list[float | None] = is_only_right.mean(axis=0).tolist()
    return shares


def _shares_right(table: DescribedOutcomes, is_right: BoolArray) -> dict[str, float | None]:
    """Return the shares of rows in which all experts that were asked are right, none is, or some are."""
    if not _has_scores(table):
        return {"all_right": None, "all_wrong": None, "some_right": None}
    n_right = is_right.sum(axis=1)
    all_right = float((n_right == table.asked.sum(axis=1)).mean())
    all_wrong = float((n_right == 0).mean())
    return {
        "all_right": all_right,
        "all_wrong": all_wrong,
        "some_right": 1 - all_right - all_wrong,
    }


@dataclass(frozen=True, eq=False)
class _PairCounts:
    """How often every two experts i and j agree, and how right they are; all arrays (n_experts, n_experts).

    ``rows[i, j]`` counts the rows in which both were asked, and ``agreeing[i, j]`` those of them in which
    their answers are equal. ``scores[i, j]`` is the sum of i's scores over the former rows, and
    ``agreeing_scores[i, j]`` over the latter.
    """

    rows: FloatArray
    scores: FloatArray
    agreeing: FloatArray
    agreeing_scores: FloatArray

    @classmethod
    def from_answers(cls, scores: FloatArray, codes: IntArray) -> _PairCounts:
        """Count over scores and codes of answers, both (n_rows, n_experts).

        A score is NaN where an expert was not asked. Equal answers have equal codes; no answer is -1.
        """
        is_known = ~np.isnan(scores)
        known_scores = np.where(is_known, scores, 0.0)
        n_experts = scores.shape[1]
        agreeing = np.zeros((n_experts, n_experts))
        agreeing_scores = np.zeros((n_experts, n_experts))
        for i in range(n_experts):
            has_answer = is_known[:, i] & (codes[:, i] >= 0)
            agrees = is_known & has_answer[:, None] & (codes == codes[:, [i]])
            agreeing[i] = agrees.sum(axis=0)
            agreeing_scores[i] = known_scores[:, i] @ agrees
        return cls(
            rows=is_known.T.astype(float) @ is_known,
            scores=known_scores.T @ is_known,
            agreeing=agreeing,
            agreeing_scores=agreeing_scores,
        )

    def accuracy_agree(self, i: int, j: int) -> float | None:
        """Return the mean score of both experts over rows in which they agree; None if they never do."""
        n_agreeing = self.agreeing[i, j]
        if not n_agreeing:
            return None
        total = self.agreeing_scores[i, j] + self.agreeing_scores[j, i]
        return float(total / n_agreeing / 2)

    def accuracy_disagree(self, i: int, j: int) -> float | None:
        """Return the mean score of the better one over the other rows; None if they always agree."""
        n_disagreeing = self.rows[i, j] - self.agreeing[i, j]
        if n_disagreeing <= 0:
            return None
        first_total = self.scores[i, j] - self.agreeing_scores[i, j]
        second_total = self.scores[j, i] - self.agreeing_scores[j, i]
        return float(max(first_total, second_total) / n_disagreeing)


def _describe_answers(table: DescribedOutcomes) -> dict[str, Any] | None:
    """Describe how often pairs of experts agree; pairs that are often right together come first.

    Returns
    -------
    dict or None
        ``kind``: how answers are compared; and ``pairs``, at most MAX_PAIRS, each with the names of two
        ``experts``, the number of ``rows`` in which both were asked, the share of these in which they
        ``agree``, the mean score of both there (``accuracy_agree``), and in the other rows the mean score
        of the better one (``accuracy_disagree``). None for a table without answers.
    """
    if not _has_scores(table):
        return None
    answers = table.answers
    if answers is None:
        return None
    counts = _PairCounts.from_answers(table.scores, answers.codes)
    answering_experts = np.flatnonzero((answers.codes >= 0).any(axis=0)).tolist()
    pairs: list[dict[str, Any]] = []
    for i, j in combinations(answering_experts, 2):
        n_rows = counts.rows[i, j]
        if not n_rows:
            continue
        pairs.append(
            {
                "experts": [table.experts[i], table.experts[j]],
                "rows": int(n_rows),
                "agree": float(counts.agreeing[i, j] / n_rows),
                "accuracy_agree": counts.accuracy_agree(i, j),
                "accuracy_disagree": counts.accuracy_disagree(i, j),
            }
        )
    pairs.sort(key=lambda pair: -pair["agree"] * (pair["accuracy_agree"] or 0.0))
    return {"kind": answers.kind, "pairs": pairs[:MAX_PAIRS]}


def _unknown_losses(table: DescribedOutcomes, terms: CostTerms, costs: FloatArray) -> list[Finding]:
    """Report answers that have no cost, because their price or latency is unknown."""
    sentence = terms.left_out_sentence(costs, table.scores)
    if sentence is None:
        return []
    n_unknown = int((np.isnan(costs) & table.asked).sum())
    return [Finding("unknown_losses", n_unknown, sentence)]


def _finding_about_rows(n_complete: int, n_rows: int) -> list[Finding]:
    """Report that the headroom is computed from only some of the rows, or not at all."""
    if n_complete == n_rows:
        return []
    rows = f"{count_noun(n_complete, 'row')} of {n_rows:,} in which every expert was asked"
    sentence = f"What routing could gain is taken over the {rows}."
    if n_complete < MIN_COMPLETE_ROWS:
        verb = "are"
        if n_complete == 1:
            verb = "is"
        sentence = f"What routing could gain is not shown: there {verb} only {rows}."
    return [Finding("compared", n_complete, sentence)]


def has_unused_prices(table: KnownOutcomes, terms: CostTerms) -> bool:
    """Return whether a table has prices that a cost leaves out."""
    if table.prices is None or terms.price_weight:
        return False
    return bool(np.nan_to_num(table.prices).any())


def describe_prices(table: KnownOutcomes, hint: str = "") -> str:
    """Say in a sentence what the best expert and the cheapest expert of known price cost.

    ``hint`` is appended if these are two experts.
    """
    asked = ~np.isnan(table.scores)
    mean_scores = _column_means(table.scores, asked)
    mean_prices = _column_means(table.prices, asked)
    priced_experts = []
    for score, price, name in zip(mean_scores, mean_prices, table.experts, strict=True):
        if score is not None and price is not None:
            priced_experts.append((score, price, name))
    best_score, best_price, best = max(priced_experts, key=lambda expert: (expert[0], -expert[1]))
    lower_score, lowest_price, cheapest = min(
        priced_experts, key=lambda expert: (expert[1], -expert[0])
    )
    quality = quality_name(is_graded(table.scores))
    best_dollars = amount(1000 * best_price)
    about_best = f"{best}, which has the highest {quality}, costs ${best_dollars} per 1,000 queries"
    if best == cheapest:
        return f"{about_best}; no other expert costs less."
    return (
        f"{about_best}; {cheapest}, the cheapest, costs ${amount(1000 * lowest_price)}, with a mean score "
        f"of {lower_score:.3f} in place of {best_score:.3f}.{hint}"
    )


def _cheapest_and_right_shares(
    table: DescribedOutcomes, costs: FloatArray, is_right: BoolArray
) -> list[float | None]:
    """Return, for each expert, the share of rows in which it costs least to ask among the right ones.

    At most one expert counts per row. All shares are None if asking costs nothing and no price is known.
    """
    # Rounded, so that 1.6 - 1 and 0.6 tie.
    asking_costs: FloatArray = np.round(costs - (1 - table.scores), 12)
    if not np.nan_to_num(asking_costs).any():
        if table.prices is None or not np.nan_to_num(table.prices).any():
            return [None] * len(table.experts)
        asking_costs = table.prices
    candidate_costs = np.where(is_right & ~np.isnan(asking_costs), asking_costs, np.inf)
    ranks = ranks_in(table.scores, table.prices)
    cheapest = cheapest_known(candidate_costs, ranks=ranks)
    is_cheapest = np.arange(candidate_costs.shape[1]) == cheapest[:, None]
    # In a row without a right expert all costs are infinite, and nobody is the cheapest.
    is_cheapest_and_right = np.isfinite(candidate_costs) & is_cheapest
    shares: list[float | None] = is_cheapest_and_right.mean(axis=0).tolist()
    return shares


def _column_means(values: FloatArray | None, asked: BoolArray) -> list[float | None]:
    """Average each column (n_rows, n_experts) over the rows that asked; None where nothing is known."""
    if values is None:
        return [None] * asked.shape[1]
    is_known = asked & ~np.isnan(values)
    totals = np.where(is_known, values, 0).sum(axis=0)
    counts = is_known.sum(axis=0)
    means: list[float | None] = []
    for total, count in zip(totals.tolist(), counts.tolist(), strict=True):
        if count == 0:
            means.append(None)
        else:
            # Rounded to twelve digits: equally good experts tie, in whatever order the rows were added.
            means.append(float(f"{total / count:.12g}"))
    return means
