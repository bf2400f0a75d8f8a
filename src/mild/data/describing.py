"""Figures of a table of outcomes: the experts, the oracle, the best constant, the headroom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from mild.artifact.frames import as_frame, default_library, html_table
from mild.core.answers import KINDS, Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.costs import best_first, cheapest_of
from mild.data.cost_terms import CostTerms, KnownOutcomes
from mild.data.data_quality import Finding
from mild.errors import counted
from mild.metrics import (
    constant_losses,
    expert_shares,
    oracle_loss,
    share_entropy,
)
from mild.metrics.curves import prices_unused
from mild.metrics.outcomes import (
    TIES,
    Outcomes,
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
    """What a description is made from; an OutcomeTable has it."""

    @property
    def rows(self) -> int: ...
    @property
    def asked(self) -> BoolArray: ...
    @property
    def quality(self) -> FloatArray: ...
    @property
    def form(self) -> str: ...
    @property
    def explanation(self) -> str: ...
    @property
    def findings(self) -> tuple[Finding, ...]: ...
    @property
    def library(self) -> str | None: ...
    @property
    def answers(self) -> Answers | None: ...
    def fingerprint(self) -> str: ...


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """Figures of a table of outcomes under a cost; ``OutcomeTable.describe`` makes it.

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
        """JSON-ready fields."""
        return dict(self.content)

    def to_frame(self) -> Any:
        """One row per expert."""
        return as_frame(self.content["experts"], self.library or default_library())

    @property
    def quality(self) -> str:
        """What the mean of the scores is called."""
        return quality_name(self.content["soft_scores"])

    @property
    def sentences(self) -> list[str]:
        """What to know about the table, beside its figures."""
        sentences = [
            *self._right_and_wrong(),
            self._oracle_sentence(),
            *self._agreement(),
        ]
        for finding in self.content["findings"]:
            sentences.append(finding["sentence"])
        if self.content["prices_unused"]:
            sentences.append(self.content["prices_unused"])
        return sentences

    def _right_and_wrong(self) -> list[str]:
        """How often the experts are right together; nothing where there are no scores."""
        content = self.content
        if content["all_right"] is None:
            return []
        soft = ""
        if content["soft_scores"]:
            soft = " (a score of 0.5 or more)"
        all_right = f"{100 * content['all_right']:.1f} %"
        all_wrong = f"{100 * content['all_wrong']:.1f} %"
        some_right = f"{100 * content['some_right']:.1f} %"
        return [
            f"All experts that were asked are right on {all_right} of the queries{soft}, none on "
            f"{all_wrong}; on the other {some_right}, the choice of expert matters."
        ]

    def _oracle_sentence(self) -> str:
        shares = self.content["imbalance"]
        largest = f"{100 * shares['largest']:.1f} %"
        smallest = f"{100 * shares['smallest']:.1f} %"
        return (
            f"The oracle sends {largest} to one expert and {smallest} to the rarest (evenness "
            f"{shares['entropy']:.2f}, where 1 is even; {TIES})."
        )

    def _agreement(self) -> list[str]:
        """How often the first pair of experts agrees; nothing if they never do."""
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
        """Pairs of experts to show: of those that together cost less than the best expert, the first."""
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
        return "\n- ".join([self.content["explanation"], *self.sentences])

    def _repr_html_(self) -> str:
        return html_table(self.content["explanation"], self.content["experts"], self.sentences)


def describe(table: DescribedOutcomes, terms: CostTerms) -> Description:
    """Describe a table under a cost; what is unknown is None.

    The content has the table's fingerprint, the cost, rows, form, explanation, findings and

    - experts, the best mean score first: for each its name, rows ``asked``, ``accuracy`` (mean score),
      ``mean_price`` in dollars, ``mean_latency`` in seconds, ``mean_cost``, ``cheapest_and_right`` (share
      of the rows on which it is right and costs least to ask among the right ones; None where asking costs
      nothing and no price is known), ``only_right`` (share of the rows on which it alone is right) and
      ``oracle_share``. Ties go to the lower price, if known, then to the higher mean score, then by name
    - compared: ``rows`` in which every expert was asked, and the ``rule`` in words
    - oracle, best_constant, headroom: mean costs and accuracies over these rows, for means over different
      rows cannot be compared; None, but for the expert of the lowest mean cost, where cells are missing
      and fewer than ``MIN_COMPLETE_ROWS`` rows have all
    - all_right, all_wrong: share of the rows in which the experts asked all are; some_right: the rest,
      where routing can tell. Like all accuracies, they are None for a table of numbers
    - imbalance: largest and smallest of the oracle's shares, and their entropy (1 is even)
    - answers: None without answers; else their ``kind`` and, for pairs of ``experts``, the ``rows`` that
      asked both, the share of them in which the answers ``agree``, the mean score of the two there
      (``accuracy_agree``), and that of the better one elsewhere (``accuracy_disagree``); first the pairs
      that are right together most often, at most ``MAX_PAIRS``
    - soft_scores: whether some scores lie between 0 and 1
    - prices_unused: sentences about prices that the table has and the cost leaves out
    """
    cost = _describe_cost(table, terms)
    costs = terms.costs(table)
    ranks = ranks_in(table.quality, table.prices)
    comparison = _compare_experts(table, costs, ranks)
    shares = comparison.oracle_shares
    right = table.asked & (table.scores >= RIGHT)
    prices_unused_words = None
    if has_unused_prices(table, terms):
        hint = " What a router could save is measured by tune."
        prices_unused_words = prices_unused(describe_prices(table, hint))
    findings = [*table.findings, *_unknown_losses(table, terms, costs)]
    findings += _finding_about_rows(comparison.n_complete, table.rows)
    content = {
        "fingerprint": table.fingerprint(),
        "cost": cost,
        "rows": table.rows,
        "form": table.form,
        "explanation": table.explanation,
        "experts": _describe_experts(table, costs, right, shares, ranks),
        "compared": {
            "rows": comparison.n_complete,
            "rule": "rows in which every expert was asked",
        },
        "oracle": comparison.oracle,
        "best_constant": comparison.best_constant,
        "headroom": comparison.headroom,
        **_shares_right(table, right),
        "imbalance": {
            "largest": float(shares.max()),
            "smallest": float(shares.min()),
            "entropy": share_entropy(shares),
        },
        "answers": _describe_answers(table),
        "soft_scores": is_graded(table.scores),
        "findings": [finding.as_dict() for finding in findings],
        "prices_unused": prices_unused_words,
    }
    return Description(content, table.library)


def _has_scores(table: DescribedOutcomes) -> bool:
    """Whether the table has scores, and not the whole cost of each expert."""
    return table.given_costs is None


def _describe_cost(table: DescribedOutcomes, terms: CostTerms) -> dict[str, Any]:
    """The terms of the cost, by expert and in words."""
    beta = dict(zip(table.expert_names, terms.betas(table), strict=True))
    return {**terms.spelled(table).as_dict(), "words": terms.formula(table), "beta": beta}


@dataclass(frozen=True, eq=False)
class _Comparison:
    """The experts over the rows in which all were asked, where there are enough of them."""

    n_complete: int  # rows in which every expert was asked
    oracle_shares: FloatArray  # (n_experts,)
    oracle: dict[
        str, Any
    ]  # mean "cost" and "accuracy" of the oracle, None if they cannot be compared
    best_constant: dict[
        str, Any
    ]  # the same of the expert of least mean cost, and its name as "expert"
    headroom: float | None  # what the oracle costs less than that expert


def _compare_experts(table: DescribedOutcomes, costs: FloatArray, ranks: IntArray) -> _Comparison:
    """The oracle and the best constant, over the same rows.

    With fewer than MIN_COMPLETE_ROWS complete rows, only the best expert and the shares are known: they are
    taken over all rows with a known cost.
    """
    is_complete = np.asarray(~np.isnan(costs).any(axis=1))
    n_complete = int(is_complete.sum())
    is_comparable = n_complete == len(costs) or n_complete >= MIN_COMPLETE_ROWS
    rows = is_complete
    if not is_comparable:
        rows = np.asarray(~np.isnan(costs).all(axis=1))
    prices = table.prices
    if prices is not None:
        prices = prices[rows]
    outcomes = Outcomes(costs[rows], table.scores[rows], prices, ranks=ranks)
    oracle_choices = outcomes.oracle()
    shares = expert_shares(oracle_choices, len(table.expert_names))
    best_expert = outcomes.best_constant()
    best_name = table.expert_names[best_expert]
    if not is_comparable:
        return _Comparison(
            n_complete,
            shares,
            oracle={"cost": None, "accuracy": None},
            best_constant={"expert": best_name, "cost": None, "accuracy": None},
            headroom=None,
        )
    oracle_cost = oracle_loss(costs[rows])
    best_cost = float(constant_losses(costs[rows])[best_expert])
    oracle_accuracy = None
    best_accuracy = None
    if _has_scores(table):
        scores = table.scores[rows]
        oracle_accuracy = float(scores[np.arange(len(scores)), oracle_choices].mean())
        best_accuracy = float(scores[:, best_expert].mean())
    return _Comparison(
        n_complete,
        shares,
        oracle={"cost": oracle_cost, "accuracy": oracle_accuracy},
        best_constant={"expert": best_name, "cost": best_cost, "accuracy": best_accuracy},
        headroom=best_cost - oracle_cost,
    )


def _describe_experts(
    table: DescribedOutcomes,
    costs: FloatArray,
    right: BoolArray,
    oracle_shares: FloatArray,
    ranks: IntArray,
) -> list[dict[str, Any]]:
    """Figures of each expert, the best one first."""
    asked = table.asked
    accuracies = _column_means(table.scores, asked)
    mean_prices = _column_means(table.prices, asked)
    mean_latencies = _column_means(table.latencies, asked)
    mean_costs = constant_losses(costs[~np.isnan(costs).all(axis=1)])
    is_cheapest_and_right = _cheapest_and_right(table, costs, right)
    several_asked = asked.sum(axis=1) > 1
    one_right = right.sum(axis=1) == 1
    is_only_right = right & one_right[:, None] & several_asked[:, None]
    entries = []
    for index in best_first(ranks):
        cheapest_and_right = None
        if is_cheapest_and_right is not None:
            cheapest_and_right = float(is_cheapest_and_right[:, index].mean())
        only_right = None
        if _has_scores(table):
            only_right = float(is_only_right[:, index].mean())
        entries.append(
            {
                "name": table.expert_names[index],
                "asked": int(asked[:, index].sum()),
                "accuracy": accuracies[index],
                "mean_price": mean_prices[index],
                "mean_latency": mean_latencies[index],
                "mean_cost": float(mean_costs[index]),
                "cheapest_and_right": cheapest_and_right,
                "only_right": only_right,
                "oracle_share": float(oracle_shares[index]),
            }
        )
    return entries


def _shares_right(table: DescribedOutcomes, right: BoolArray) -> dict[str, float | None]:
    """Shares of the rows in which all experts that were asked are right, none is, or some are."""
    if not _has_scores(table):
        return {"all_right": None, "all_wrong": None, "some_right": None}
    n_right = right.sum(axis=1)
    all_right = float((n_right == table.asked.sum(axis=1)).mean())
    all_wrong = float((n_right == 0).mean())
    return {
        "all_right": all_right,
        "all_wrong": all_wrong,
        "some_right": 1 - all_right - all_wrong,
    }


@dataclass(frozen=True, eq=False)
class _PairCounts:
    """Of every two experts i and j, over the rows in which both were asked; each (n_experts, n_experts).

    ``rows[i, j]`` counts these rows, and ``agreeing[i, j]`` those of them in which the answers are equal.
    ``scores[i, j]`` is the sum of i's scores in the former, ``agreeing_scores[i, j]`` in the latter.
    """

    rows: FloatArray
    scores: FloatArray
    agreeing: FloatArray
    agreeing_scores: FloatArray

    @classmethod
    def of(cls, scores: FloatArray, codes: IntArray) -> _PairCounts:
        """Counts over scores (n, p), NaN where not asked, and codes (n, p) of answers, -1 for none."""
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
        """Mean score of the two where they agree; None where they never do."""
        n_agreeing = self.agreeing[i, j]
        if not n_agreeing:
            return None
        total = self.agreeing_scores[i, j] + self.agreeing_scores[j, i]
        return float(total / n_agreeing / 2)

    def accuracy_disagree(self, i: int, j: int) -> float | None:
        """Mean score of the better one where they do not agree; None where they always do."""
        n_disagreeing = self.rows[i, j] - self.agreeing[i, j]
        if n_disagreeing <= 0:
            return None
        first_total = self.scores[i, j] - self.agreeing_scores[i, j]
        second_total = self.scores[j, i] - self.agreeing_scores[j, i]
        return float(max(first_total, second_total) / n_disagreeing)


def _describe_answers(table: DescribedOutcomes) -> dict[str, Any] | None:
    """How often pairs of experts agree, those first that are right together most often."""
    if not _has_scores(table):
        return None
    answers = table.answers
    if answers is None:
        return None
    counts = _PairCounts.of(table.scores, answers.codes)
    answering_experts = np.flatnonzero((answers.codes >= 0).any(axis=0)).tolist()
    pairs: list[dict[str, Any]] = []
    for i, j in combinations(answering_experts, 2):
        n_rows = counts.rows[i, j]
        if not n_rows:
            continue
        pairs.append(
            {
                "experts": [table.expert_names[i], table.expert_names[j]],
                "rows": int(n_rows),
                "agree": float(counts.agreeing[i, j] / n_rows),
                "accuracy_agree": counts.accuracy_agree(i, j),
                "accuracy_disagree": counts.accuracy_disagree(i, j),
            }
        )
    pairs.sort(key=lambda pair: -pair["agree"] * (pair["accuracy_agree"] or 0.0))
    return {"kind": answers.kind, "pairs": pairs[:MAX_PAIRS]}


def _unknown_losses(table: DescribedOutcomes, terms: CostTerms, costs: FloatArray) -> list[Finding]:
    """The finding that some answers have no cost, because their price or latency is unknown."""
    words = terms.unknown(costs, table.scores)
    if words is None:
        return []
    n_unknown = int((np.isnan(costs) & table.asked).sum())
    return [Finding("unknown_losses", n_unknown, words)]


def _finding_about_rows(n_complete: int, n_rows: int) -> list[Finding]:
    """The finding that the headroom is taken over some of the rows only."""
    if n_complete == n_rows:
        return []
    rows = f"{counted(n_complete, 'row')} of {n_rows:,} in which every expert was asked"
    words = f"What routing could gain is taken over the {rows}."
    if n_complete < MIN_COMPLETE_ROWS:
        verb = "are"
        if n_complete == 1:
            verb = "is"
        words = f"What routing could gain is not shown: there {verb} only {rows}."
    return [Finding("compared", n_complete, words)]


def has_unused_prices(table: KnownOutcomes, terms: CostTerms) -> bool:
    """Whether a table has prices that a cost leaves out."""
    if table.prices is None or terms.price_weight:
        return False
    return bool(np.nan_to_num(table.prices).any())


def describe_prices(table: KnownOutcomes, hint: str = "") -> str:
    """What the best expert of known price costs, and the cheapest one, in a sentence.

    The ``hint`` follows where the cheapest expert is another one.
    """
    asked = ~np.isnan(table.scores)
    mean_scores = _column_means(table.scores, asked)
    mean_prices = _column_means(table.prices, asked)
    known = []
    for score, price, name in zip(mean_scores, mean_prices, table.expert_names, strict=True):
        if score is not None and price is not None:
            known.append((score, price, name))
    best_score, best_price, best = max(known, key=lambda expert: (expert[0], -expert[1]))
    lower_score, lowest_price, cheapest = min(known, key=lambda expert: (expert[1], -expert[0]))
    quality = quality_name(is_graded(table.scores))
    words = f"{best}, which has the highest {quality}, costs ${amount(1000 * best_price)} per 1,000 queries"
    if best == cheapest:
        return f"{words}; no other expert costs less."
    return (
        f"{words}; {cheapest}, the cheapest, costs ${amount(1000 * lowest_price)}, with a mean score "
        f"of {lower_score:.3f} in place of {best_score:.3f}.{hint}"
    )


def _cheapest_and_right(
    table: DescribedOutcomes, costs: FloatArray, right: BoolArray
) -> BoolArray | None:
    """The right expert that costs least to ask, at most one per row; None if no expert costs anything."""
    # The cost of asking; rounded, so that 1.6 - 1 and 0.6 tie.
    asking_costs: FloatArray = np.round(costs - (1 - table.scores), 12)
    if not np.nan_to_num(asking_costs).any():
        if table.prices is None or not np.nan_to_num(table.prices).any():
            return None
        asking_costs = table.prices
    candidates = np.where(right & ~np.isnan(asking_costs), asking_costs, np.inf)
    ranks = ranks_in(table.scores, table.prices)
    cheapest = cheapest_of(candidates, ranks=ranks)[:, None]
    return np.isfinite(candidates) & (np.arange(candidates.shape[1]) == cheapest)


def _column_means(values: FloatArray | None, asked: BoolArray) -> list[float | None]:
    """Mean of each column over the rows that asked; None where nothing is known."""
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
            # Twelve digits: equal experts tie, in whatever order the rows were added up.
            means.append(float(f"{total / count:.12g}"))
    return means
