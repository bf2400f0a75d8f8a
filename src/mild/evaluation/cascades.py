"""Figures of a cascade on rows whose answers are known: its steps, and what answers add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python
from mild.data import CostTerms, OutcomeTable
from mild.data.cascades import cascade_costs, with_cascade
from mild.errors import InvalidInputError, listed
from mild.metrics import Verdict, expert_shares, verdict_of_choices
from mild.metrics.outcomes import Outcomes, mean_known
from mild.metrics.verdict import STARTS
from mild.policies.answers import AnswerCascadePolicy, CascadeRun

# The router of a cascade that asks one expert, and the column of its choices.
DIRECT = "the router without answers"
_STARTS = {
    True: "The cascade pays",
    False: "The cascade does not pay",
    None: "It is not clear whether the cascade pays",
}


def known_answers(table: OutcomeTable, policy: AnswerCascadePolicy) -> Answers:
    """The answers of a table, compared as the cascade does; refused if an expert of a step has none."""
    answers = replace(table, answer_kind=policy.answer_kind).answers
    silent = [k for k in policy.order if answers is None or (answers.codes[:, k] < 0).all()]
    if answers is None or silent:
        names = listed([repr(table.expert_names[k]) for k in silent], 6)
        raise InvalidInputError(
            f"the table must hold the answers of the experts that the cascade asks; there are none of "
            f"{names}. Add columns answer__<expert>, as mild collect writes them, or judge router.direct.",
            parameter="table",
        )
    return answers


def cascade_outcomes(
    known: Outcomes, table: OutcomeTable, terms: CostTerms, run: CascadeRun
) -> Outcomes:
    """Outcomes of the experts of a table with one more column, that of the run."""
    wide = with_cascade(table, run)
    return replace(
        known,
        costs=np.column_stack([known.costs, cascade_costs(table, terms, run)]),
        scores=wide.scores,
        prices=wide.prices,
        latencies=wide.latencies,
        given=run.expert,
        asked=run.asked,
    )


@dataclass(frozen=True, eq=False)
class CascadeFigures:
    """What a cascade did on known rows."""

    steps: list[dict[str, Any]]  # experts, rows that end there, and their figures, step by step
    asked: FloatArray  # (n_experts,) share of the rows in which each expert was asked
    given: FloatArray  # (n_experts,) share of the rows in which its answer was given
    calls: float  # experts asked per query, on average
    direct: Verdict  # against the same router without answers
    headline: str  # of that, in a few words
    direct_means: dict[str, float | None]  # loss, accuracy, dollars and seconds of that

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        about = {"steps": self.steps, "asked": self.asked, "given": self.given, "calls": self.calls}
        direct = {**self.direct.as_dict(), "headline": self.headline}
        return dict(as_python({**about, "direct": direct}, finite=True))


def cascade_figures(
    run: CascadeRun,
    outcomes: Outcomes,
    rows: BoolArray,
    direct: IntArray,
    names: Sequence[str],
    groups: IntArray,
    counted: str,
    confidence: float,
    seed: int,
    has_target: bool = False,
) -> CascadeFigures:
    """Figures of a run on a mask of rows, beside the choices ``direct`` (n_samples,) without answers.

    Where the router has a target, that decides, and the loss is only compared.
    """
    known, weight = outcomes.take(rows), outcomes.take(rows).weight
    own, other, asked = run.expert[rows], direct[rows], run.asked[rows]
    means = known.means(other)
    paid = known.means(np.full(len(own), known.costs.shape[1] - 1))
    dollars = None
    if paid["dollars_per_1000"] is not None and means["dollars_per_1000"] is not None:
        dollars = (paid["dollars_per_1000"] - means["dollars_per_1000"]) / 1000
    both = np.column_stack([known.costs[:, -1], known.costs[np.arange(len(own)), other]])
    verdict = verdict_of_choices(
        both,
        np.zeros(len(own), np.intp),
        1,
        ["cascade", DIRECT],
        groups=groups[rows],
        counted=counted,
        confidence=confidence,
        random_state=seed,
        dollars=dollars,
        strata=known.strata,
    )
    verdict = replace(verdict, router="the cascade", constant_expert=None)
    words = verdict.sentence.removeprefix(STARTS[verdict.pays])
    headline = "For comparison" if has_target else _STARTS[verdict.pays]
    told = headline + words.replace("that of always", "that of", 1)
    return CascadeFigures(
        _steps(run, known, rows, weight, names),
        np.average(asked, axis=0, weights=weight),
        expert_shares(own, len(names), weight),
        float(np.average(asked.sum(axis=1), weights=weight)),
        replace(verdict, told=told),
        headline,
        means,
    )


def _steps(
    run: CascadeRun,
    known: Outcomes,
    rows: BoolArray,
    weight: FloatArray | None,
    names: Sequence[str],
) -> list[dict[str, Any]]:
    step, probability, found = run.step[rows], run.probability[rows], []
    begins = np.argmax(np.column_stack([run.asked[rows, one[0]] for one in run.steps]), axis=1)
    columns = {
        "accuracy": known.scores,
        "dollars_per_1000": None if known.prices is None else 1000 * known.prices,
        "seconds": known.latencies,
    }
    last = len(run.steps) - 1
    for number, experts in enumerate(run.steps):
        ends = step == number
        own = None if weight is None else weight[ends]
        means = {
            name: None if values is None else mean_known(values[ends, -1], own)
            for name, values in columns.items()
        }
        found.append(
            {
                "experts": [names[k] for k in experts],
                "rows": int(ends.sum()),
                "begin": int((begins == number).sum()),
                "share": float(np.average(ends, weights=weight)),
                **means,
                # The answer of the last step is given whatever the gate says.
                "estimated": None if number == last else mean_known(probability[ends], own),
            }
        )
    return found
