"""Figures of a table of outcomes: the experts, the oracle, the best constant, the headroom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from mild.artifact.frames import as_frame, default_library, html_table
from mild.core.answers import KINDS, Answers
from mild.core.arrays import BoolArray, FloatArray
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
#: Pairs of experts that are told apart in a description, and in the text of one.
MOST_PAIRS, SHOWN_PAIRS = 1_000, 10
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
    """Figures of a table of outcomes under a cost."""

    content: Mapping[str, Any]  # as ``describe`` says
    library: str | None = None  # of the frame that ``to_frame`` gives

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
        report, shares = self.content, self.content["imbalance"]
        largest = f"{100 * shares['largest']:.1f} %"
        smallest = f"{100 * shares['smallest']:.1f} %"
        return [
            *self._right_and_wrong(),
            f"The oracle sends {largest} to one expert and {smallest} to the rarest (evenness "
            f"{shares['entropy']:.2f}, where 1 is even; {TIES}).",
            *(
                f"Answers, compared {KINDS[report['answers']['kind']]}: {' and '.join(pair['experts'])} "
                f"agree on {100 * pair['agree']:.1f} % of the queries, with a mean score of "
                f"{pair['accuracy_agree']:.3f} there. tune considers cascades, which read answers, with "
                "cascade=True."
                for pair in self.pairs[:1]
                if pair["agree"]
            ),
            *(finding["sentence"] for finding in report["findings"]),
            *filter(None, [report["prices_unused"]]),
        ]

    def _right_and_wrong(self) -> list[str]:
        """How often the experts are right together; nothing where there are no scores."""
        report = self.content
        if report["all_right"] is None:
            return []
        soft = " (a score of 0.5 or more)" if report["soft_scores"] else ""
        right, wrong, some = (
            f"{100 * report[name]:.1f} %" for name in ("all_right", "all_wrong", "some_right")
        )
        return [
            f"All experts that were asked are right on {right} of the queries{soft}, none on {wrong}; on "
            f"the other {some}, the choice of expert matters."
        ]

    @property
    def pairs(self) -> list[dict[str, Any]]:
        """Pairs of experts to show: of those that together cost less than the best expert, the first."""
        if self.content["answers"] is None:
            return []
        prices = {one["name"]: one["mean_price"] for one in self.content["experts"]}
        best = max(self.content["experts"], key=lambda one: one["accuracy"])["mean_price"]
        pairs: list[dict[str, Any]] = self.content["answers"]["pairs"]
        if None not in prices.values():
            cheap = [one for one in pairs if sum(prices[name] for name in one["experts"]) < best]
            pairs = cheap or pairs
        return pairs[:SHOWN_PAIRS]

    def __repr__(self) -> str:
        lines = [self.content["explanation"], *(f"- {line}" for line in self.sentences)]
        return "\n".join(lines)

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
      that are right together most often, at most ``MOST_PAIRS``
    - soft_scores: whether some scores lie between 0 and 1
    - prices_unused: sentences about prices that the table has and the cost leaves out
    """
    cost = {**terms.spelled(table).as_dict(), "words": terms.formula(table)}
    cost["beta"] = dict(zip(table.expert_names, terms.betas(table), strict=True))
    costs, scores = terms.costs(table), table.scores
    has_scores = table.given_costs is None
    asked = table.asked
    right = asked & (scores >= RIGHT)
    first = _cheapest_and_right(table, costs, right)
    alone = right & (right.sum(axis=1) == 1)[:, None] & (asked.sum(axis=1) > 1)[:, None]
    known_rows = ~np.isnan(costs).all(axis=1)
    losses = constant_losses(costs[known_rows])
    complete = np.asarray(~np.isnan(costs).any(axis=1))
    enough = bool(complete.all()) or int(complete.sum()) >= MIN_COMPLETE_ROWS
    rows = complete if enough else known_rows
    prices = None if table.prices is None else table.prices[rows]
    ranks = ranks_in(table.quality, table.prices)
    outcomes = Outcomes(costs[rows], scores[rows], prices, ranks=ranks)
    perfect = outcomes.oracle()
    shares = expert_shares(perfect, len(table.expert_names))
    oracle: dict[str, Any] = {"cost": None, "accuracy": None}
    best_expert = outcomes.best_constant()
    best = {"expert": table.expert_names[best_expert], **oracle}
    headroom = None
    if enough:
        known, known_costs = scores[complete], costs[complete]
        constant = float(constant_losses(known_costs)[best_expert])
        oracle["cost"] = oracle_loss(known_costs)
        best["cost"] = constant
        if has_scores:
            oracle["accuracy"] = float(known[np.arange(len(known)), perfect].mean())
            best["accuracy"] = float(known[:, best_expert].mean())
        headroom = constant - oracle["cost"]
    accuracy, mean_prices, latencies = (
        _means(values, asked) for values in (scores, table.prices, table.latencies)
    )
    lacking = terms.unknown(costs, scores)
    count = int((np.isnan(costs) & asked).sum())
    unknown = [] if lacking is None else [Finding("unknown_losses", count, lacking)]
    all_right = all_wrong = some_right = None
    if has_scores:
        all_right = float((right.sum(axis=1) == asked.sum(axis=1)).mean())
        all_wrong = float((~right.any(axis=1)).mean())
        some_right = 1 - all_right - all_wrong
    unused = None
    if has_unused_prices(table, terms):
        hint = " What a router could save is measured by tune."
        unused = prices_unused(describe_prices(table, hint))
    content = {
        "fingerprint": table.fingerprint(),
        "cost": cost,
        "rows": table.rows,
        "form": table.form,
        "explanation": table.explanation,
        "experts": [
            {
                "name": table.expert_names[k],
                "asked": int(asked[:, k].sum()),
                "accuracy": accuracy[k],
                "mean_price": mean_prices[k],
                "mean_latency": latencies[k],
                "mean_cost": float(losses[k]),
                "cheapest_and_right": None if first is None else float(first[:, k].mean()),
                "only_right": float(alone[:, k].mean()) if has_scores else None,
                "oracle_share": float(shares[k]),
            }
            for k in best_first(ranks)
        ],
        "compared": {"rows": int(complete.sum()), "rule": "rows in which every expert was asked"},
        "oracle": oracle,
        "best_constant": best,
        "headroom": headroom,
        "all_right": all_right,
        "all_wrong": all_wrong,
        "some_right": some_right,
        "imbalance": {
            "largest": float(shares.max()),
            "smallest": float(shares.min()),
            "entropy": share_entropy(shares),
        },
        "answers": _describe_answers(table, table.answers) if has_scores else None,
        "soft_scores": is_graded(scores),
        "findings": [
            finding.as_dict() for finding in (*table.findings, *unknown, *_over(complete))
        ],
        "prices_unused": unused,
    }
    return Description(content, table.library)


def _describe_answers(table: DescribedOutcomes, answers: Answers | None) -> dict[str, Any] | None:
    if answers is None:
        return None
    codes, known = answers.codes, ~np.isnan(table.scores)
    scores = np.where(known, table.scores, 0.0)
    # Of pairs: rows that asked both, and sums of the first one's scores there and where they agree.
    rows, total = known.T.astype(float) @ known, scores.T @ known
    agree, right = np.zeros(rows.shape), np.zeros(rows.shape)
    for k, own in enumerate(codes.T):
        same = known & ((own >= 0) & known[:, k])[:, None] & (codes == own[:, None])
        agree[k], right[k] = same.sum(axis=0), scores[:, k] @ same
    pairs: list[dict[str, Any]] = []
    said = np.flatnonzero((codes >= 0).any(axis=0)).tolist()
    for pair in combinations(said, 2):
        count, equal = rows[pair], agree[pair]
        if not count:
            continue
        both = right[pair] + right[pair[::-1]]
        best = max(total[pair] - right[pair], total[pair[::-1]] - right[pair[::-1]])
        pairs.append(
            {
                "experts": [table.expert_names[k] for k in pair],
                "rows": int(count),
                "agree": float(equal / count),
                "accuracy_agree": float(both / equal / 2) if equal else None,
                "accuracy_disagree": float(best / (count - equal)) if count > equal else None,
            }
        )
    pairs.sort(key=lambda pair: -pair["agree"] * (pair["accuracy_agree"] or 0.0))
    return {"kind": answers.kind, "pairs": pairs[:MOST_PAIRS]}


def _over(complete: BoolArray) -> list[Finding]:
    """The finding that the headroom is taken over some of the rows only."""
    count, rows = int(complete.sum()), len(complete)
    if count == rows:
        return []
    every = f"{counted(count, 'row')} of {rows:,} in which every expert was asked"
    words = f"What routing could gain is taken over the {every}."
    if count < MIN_COMPLETE_ROWS:
        verb = "is" if count == 1 else "are"
        words = f"What routing could gain is not shown: there {verb} only {every}."
    return [Finding("compared", count, words)]


def has_unused_prices(table: KnownOutcomes, terms: CostTerms) -> bool:
    """Whether a table has prices that a cost leaves out."""
    if table.prices is None or terms.price_weight:
        return False
    return bool(np.nan_to_num(table.prices).any())


def describe_prices(table: KnownOutcomes, hint: str = "") -> str:
    """What the best expert of known price costs, and the cheapest one, in a sentence.

    The ``hint`` follows where the cheapest expert is another one.
    """
    asked, names = ~np.isnan(table.scores), table.expert_names
    means = zip(_means(table.scores, asked), _means(table.prices, asked), names, strict=True)
    known = [
        (score, price, name)
        for score, price, name in means
        if score is not None and price is not None
    ]
    score, price, best = max(known, key=lambda one: (one[0], -one[1]))
    lower, least, cheapest = min(known, key=lambda one: (one[1], -one[0]))
    quality = quality_name(is_graded(table.scores))
    words = (
        f"{best}, which has the highest {quality}, costs ${amount(1000 * price)} per 1,000 queries"
    )
    if best == cheapest:
        return f"{words}; no other expert costs less."
    return (
        f"{words}; {cheapest}, the cheapest, costs ${amount(1000 * least)}, with a mean score of "
        f"{lower:.3f} in place of {score:.3f}.{hint}"
    )


def _cheapest_and_right(
    table: DescribedOutcomes, costs: FloatArray, right: BoolArray
) -> BoolArray | None:
    """The right expert that costs least to ask, at most one per row; None if no expert costs anything."""
    # The cost of asking; rounded, so that 1.6 - 1 and 0.6 tie.
    asking: FloatArray = np.round(costs - (1 - table.scores), 12)
    if not np.nan_to_num(asking).any():
        if table.prices is None or not np.nan_to_num(table.prices).any():
            return None
        asking = table.prices
    candidates = np.where(right & ~np.isnan(asking), asking, np.inf)
    ranks = ranks_in(table.scores, table.prices)
    lowest = cheapest_of(candidates, ranks=ranks)[:, None]
    return np.isfinite(candidates) & (np.arange(candidates.shape[1]) == lowest)


def _means(values: FloatArray | None, asked: BoolArray) -> list[float | None]:
    """Mean of each column over the rows that asked; None where nothing is known."""
    if values is None:
        return [None] * asked.shape[1]
    known = asked & ~np.isnan(values)
    totals = np.where(known, values, 0).sum(axis=0)
    pairs = zip(totals.tolist(), known.sum(axis=0).tolist(), strict=True)
    # Twelve digits: equal experts tie, in whatever order the rows were added up.
    return [float(f"{total / count:.12g}") if count else None for total, count in pairs]
