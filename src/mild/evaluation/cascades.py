"""Figures of a cascade on rows whose answers are known: its steps, and what answers add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, IntArray, as_python
from mild.data import CostTerms, Outcomes
from mild.data.cascades import cascade_costs, cascade_scores
from mild.errors import InvalidInputError, listed
from mild.metrics import Verdict
from mild.metrics.results import Results, mean_known
from mild.metrics.verdict import STARTS
from mild.policies import CascadePolicy, CascadeRun, MixPolicy
from mild.tuning.cascades import verdict_against_choices
from mild.tuning.tasks import Task

DIRECT = "the router without answers"
_STARTS = {
    True: "The cascade pays",
    False: "The cascade does not pay",
    None: "It is not clear whether the cascade pays",
}


def known_answers(table: Outcomes, policy: CascadePolicy | MixPolicy) -> Answers:
    """Return the answers of a table, compared as the cascade does; refuse a table that lacks some."""
    answers = replace(table, answer_kind=policy.answer_kind).answers
    silent_experts = [
        repr(table.experts[expert])
        for expert in policy.order
        if answers is None or (answers.codes[:, expert] < 0).all()
    ]
    if answers is None or silent_experts:
        names = listed(silent_experts, 6)
        raise InvalidInputError(
            f"the table must hold the answers of the experts that the cascade asks; there are none of "
            f"{names}. Add columns answer__<expert>, as mild collect writes them, or judge router.direct.",
            parameter="data",
        )
    return answers


def cascade_outcomes(known: Results, table: Outcomes, terms: CostTerms, run: CascadeRun) -> Results:
    """Return the outcomes of the experts of a table with one more column for the run of a cascade."""
    prices = table.prices
    if prices is not None:
        prices = np.column_stack([prices, run.total_prices(prices)])
    latencies = table.latencies
    if latencies is not None:
        latencies = np.column_stack([latencies, run.seconds(latencies)])
    return replace(
        known,
        costs=np.column_stack([known.costs, cascade_costs(table, terms, run)]),
        scores=np.column_stack([table.scores, cascade_scores(table.scores, run)]),
        prices=prices,
        latencies=latencies,
        answering_expert=run.expert,
        asked=run.asked,
    )


@dataclass(frozen=True, eq=False)
class CascadeComparison:
    """A cascade beside the same router without answers, on the n rows that are compared.

    The last column of the outcomes is the cascade.
    """

    run: CascadeRun  # on all rows
    rows: BoolArray  # mask of the rows that are compared, n of them
    outcomes: Results  # of these rows
    direct: IntArray  # (n,) choices of the router without answers
    groups: IntArray  # (n,) rows of one group count once in the interval
    task: Task

    @classmethod
    def of(
        cls,
        run: CascadeRun,
        rows: BoolArray,
        outcomes: Results,
        direct: IntArray,
        task: Task,
    ) -> CascadeComparison:
        """Make the comparison from the run, the outcomes and the choices on all rows of a task."""
        return cls(run, rows, outcomes.take(rows), direct[rows], task.groups[rows], task)

    @property
    def expert_names(self) -> Sequence[str]:
        """Names of the experts."""
        return self.task.table.experts

    @property
    def direct_means(self) -> dict[str, float | None]:
        """Mean loss, accuracy, dollars and seconds of the router without answers."""
        return self.outcomes.means(self.direct)

    @property
    def cascade_means(self) -> dict[str, float | None]:
        """The same of the cascade."""
        return _cascade_means(self.outcomes, len(self.expert_names))

    def verdict(self, confidence: float, seed: int) -> Verdict:
        """Whether the cascade has a lower loss than the router without answers."""
        costs = self.outcomes.costs
        unit = self.task.unit
        verdict = verdict_against_choices(
            costs[:, -1], costs, self.direct, self.groups, unit, confidence, seed
        )
        paid = self.cascade_means["dollars_per_1000"]
        paid_without = self.direct_means["dollars_per_1000"]
        dollars = None
        if paid is not None and paid_without is not None:
            dollars = paid - paid_without
        return replace(verdict, router="the cascade", constant=DIRECT, dollars_per_1000=dollars)

    def figures(self, confidence: float, seed: int, has_target: bool) -> dict[str, Any]:
        """Figures of the cascade, JSON-ready.

        ``steps`` has the name of each and the rows that end in it, ``asked`` (n_experts,) the share of the
        rows in which each expert is asked, ``calls`` the experts per query, and ``direct`` the verdict
        against the choices without answers. Where the router has a target, that decides, and the losses
        are only compared.
        """
        asked = self.run.asked[self.rows]
        verdict = self.verdict(confidence, seed)
        headline = "For comparison"
        if not has_target:
            headline = _STARTS[verdict.pays]
        words = verdict.sentence.removeprefix(STARTS[verdict.pays])
        sentence = headline + words.replace("that of always", "that of", 1)
        figures = {
            "steps": self._steps(),
            "asked": asked.mean(axis=0),
            "calls": asked.sum(axis=1).mean(),
            "direct": {**verdict.as_dict(), "headline": headline, "sentence": sentence},
        }
        return as_python(figures, finite=True)

    def _steps(self) -> list[dict[str, Any]]:
        """Return a row for each step: its experts, the share of rows that end in it, and their means."""
        step_of_row = self.run.accepted_step[self.rows]
        probability = self.run.probability[self.rows]
        lines = []
        for number, experts in enumerate(self.run.steps):
            ends_here = step_of_row == number
            estimated = None
            # The answer of the last step is given whatever the gate says.
            if not self.run.is_last(number):
                estimated = mean_known(probability[ends_here])
            lines.append(
                {
                    "name": self._step_name(number),
                    "experts": [self.expert_names[expert] for expert in experts],
                    "rows": int(ends_here.sum()),
                    "share": float(ends_here.mean()),
                    **_cascade_means(self.outcomes.take(ends_here), len(self.expert_names)),
                    "estimated": estimated,
                }
            )
        return lines

    def _step_name(self, number: int) -> str:
        """Number and experts of a step; of a mix of two cascades, also which of them it belongs to."""
        experts = " + ".join(self.expert_names[expert] for expert in self.run.steps[number])
        if self.run.is_second is None:
            return f"{number + 1}. {experts}"
        if number < self.run.n_first:
            return f"first cascade, step {number + 1}: {experts}"
        return f"second cascade, step {number - self.run.n_first + 1}: {experts}"


def _cascade_means(outcomes: Results, n_experts: int) -> dict[str, float | None]:
    """Return the means of the cascade, whose column comes after those of the experts."""
    return outcomes.means(np.full(len(outcomes.costs), n_experts))
