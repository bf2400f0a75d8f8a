"""Figures of a cascade on rows whose answers are known: its steps, and what answers add."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, IntArray, as_python
from mild.data import CostTerms, OutcomeTable
from mild.data.cascades import cascade_costs, cascade_scores
from mild.errors import InvalidInputError, listed
from mild.metrics.outcomes import Outcomes, mean_known
from mild.metrics.verdict import STARTS
from mild.policies import CascadePolicy, CascadeRun, MixPolicy
from mild.tuning.cascades import minus_choices
from mild.tuning.tasks import Task

DIRECT = "the router without answers"
_STARTS = {
    True: "The cascade pays",
    False: "The cascade does not pay",
    None: "It is not clear whether the cascade pays",
}


def known_answers(table: OutcomeTable, policy: CascadePolicy | MixPolicy) -> Answers:
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
    prices, seconds = table.prices, table.latencies
    return replace(
        known,
        costs=np.column_stack([known.costs, cascade_costs(table, terms, run)]),
        scores=np.column_stack([table.scores, cascade_scores(table.scores, run)]),
        prices=None if prices is None else np.column_stack([prices, run.paid(prices)]),
        latencies=None if seconds is None else np.column_stack([seconds, run.seconds(seconds)]),
        given=run.expert,
        asked=run.asked,
    )


def cascade_figures(
    run: CascadeRun,
    task: Task,
    outcomes: Outcomes,
    rows: BoolArray,
    direct: IntArray,
    confidence: float,
    seed: int,
    has_target: bool,
) -> tuple[dict[str, Any], dict[str, float | None]]:
    """Figures of a run on a mask of rows, JSON-ready, and the means of the choices without answers.

    ``direct`` (n_samples,) are these choices. ``steps`` has the rows that end in each, ``asked``
    (n_experts,) the share of the rows in which each expert is asked, ``calls`` the experts per query, and
    ``direct`` the verdict against the choices without answers. Where the router has a target, that decides,
    and the losses are only compared.
    """
    known, other, asked = outcomes.take(rows), direct[rows], run.asked[rows]
    names = task.table.expert_names
    about = (task.groups[rows], task.counted, confidence, seed)
    verdict = minus_choices(known.costs[:, -1], known.costs, other, *about)
    means = known.means(other)
    paid = known.means(np.full(len(other), len(names)))["dollars_per_1000"]
    old = means["dollars_per_1000"]
    dollars = None if paid is None or old is None else paid - old
    verdict = replace(verdict, router="the cascade", constant=DIRECT, dollars_per_1000=dollars)
    headline = "For comparison" if has_target else _STARTS[verdict.pays]
    words = verdict.sentence.removeprefix(STARTS[verdict.pays])
    sentence = headline + words.replace("that of always", "that of", 1)
    figures = {
        "steps": _steps(run, known, rows, names),
        "asked": asked.mean(axis=0),
        "calls": asked.sum(axis=1).mean(),
        "direct": {**verdict.as_dict(), "headline": headline, "sentence": sentence},
    }
    return as_python(figures, finite=True), means


def _steps(
    run: CascadeRun, known: Outcomes, rows: BoolArray, names: Sequence[str]
) -> list[dict[str, Any]]:
    step, probability = run.step[rows], run.probability[rows]
    found = []
    for number, experts in enumerate(run.steps):
        ends = step == number
        part = known.take(ends)
        # The answer of the last step is given whatever the gate says.
        judged = not run.is_last(number)
        found.append(
            {
                "experts": [names[k] for k in experts],
                "rows": int(ends.sum()),
                "share": float(ends.mean()),
                **part.means(np.full(len(part.costs), len(names))),
                "estimated": mean_known(probability[ends]) if judged else None,
            }
        )
    return found
