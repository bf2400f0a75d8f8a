"""The rows on which the router's choice cost most more than the best one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from mild.evaluation.report.evidence import Evidence
from mild.metrics import chosen_costs

__all__ = ["common_start", "regrets"]

# What a person reads at a glance, and what one may unfold.
GLANCE = 140
WHOLE = 1200
PAIRS = 5
# What all texts begin with is left out from this length on.
INSTRUCTION = 16


def regrets(evidence: Evidence, most: int, labels: Sequence[Any] | None = None) -> dict[str, Any]:
    """The worst choices, and between which experts most is lost.

    The regret of a row is the cost of the router's choice minus the least cost in that row. Among equal
    regrets those come first on which the router was surest of its choice against the best one. A text
    that stands in several rows is shown once.

    Parameters
    ----------
    most : rows to show; 0 for none, so that no query is copied into the report
    labels : (n_samples,) group of each row, or None

    Returns
    -------
    dict with ``regretted`` (share of the rows with any regret), ``mean`` (regret per row), ``pairs``
    (chosen, best, rows, share of all regret) and ``rows`` (row, text, more, chosen, best, costs, regret,
    probabilities, group)
    """
    paid = chosen_costs(evidence.costs, evidence.chosen)
    best = np.nanargmin(evidence.costs, axis=1)
    regret = np.nan_to_num(paid - np.nanmin(evidence.costs, axis=1))
    # Costs are sums of decimals: less than this is rounding.
    regret[regret < 1e-9] = 0
    every = np.arange(evidence.rows)
    known = int((~np.isnan(paid)).sum())
    sure = np.zeros(evidence.rows)
    guess = evidence.probabilities
    if guess is not None:
        sure = guess[every, evidence.chosen] - guess[every, best]
    order = np.lexsort((-sure, -np.round(regret, 9)))
    start = common_start(evidence.queries or [])
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for i in order[: most * 20]:
        text = "" if evidence.queries is None else evidence.queries[i].strip()
        if len(rows) == most or regret[i] <= 0:
            break
        if text and text in seen:
            continue
        seen.add(text)
        rows.append(
            {
                "row": int(i),
                **_shortened(text, start),
                "chosen": evidence.expert_names[evidence.chosen[i]],
                "best": evidence.expert_names[best[i]],
                "paid": float(paid[i]),
                "least": float(evidence.costs[i, best[i]]),
                "regret": float(regret[i]),
                "gave": None
                if guess is None
                else [float(guess[i, evidence.chosen[i]]), float(guess[i, best[i]])],
                "group": None if labels is None or labels[i] is None else str(labels[i])[:GLANCE],
            }
        )
    return {
        "regretted": float((regret > 0).sum() / max(1, known)),
        "mean": float(regret.sum() / max(1, known)),
        "pairs": _pairs(evidence, best, regret),
        "rows": rows,
    }


def _pairs(evidence: Evidence, best: Any, regret: Any) -> list[dict[str, Any]]:
    p = len(evidence.expert_names)
    total = float(regret.sum())
    if total == 0:
        return []
    pair = evidence.chosen * p + best
    lost = np.bincount(pair, regret, minlength=p * p)
    count = np.bincount(pair[regret > 0], minlength=p * p)
    order = np.argsort(-lost, kind="stable")[:PAIRS]
    return [
        {
            "chosen": evidence.expert_names[int(which) // p],
            "best": evidence.expert_names[int(which) % p],
            "rows": int(count[which]),
            "share": float(lost[which] / total),
        }
        for which in order
        if lost[which] > 0
    ]


def common_start(texts: Sequence[str]) -> int:
    """Letters with which all texts begin, up to the end of a word: an instruction, said once.

    Examples
    --------
    >>> common_start(["Answer with one letter. What is a star?", "Answer with one letter. Why?"])
    24
    >>> common_start(["why?", "who?"])
    0
    """
    if len(texts) < 2:
        return 0
    # The first and the last in order differ soonest.
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(min(texts), max(texts), strict=False))
    end = max((place + 1 for place, (letter, _) in enumerate(pairs) if letter.isspace()), default=0)
    return end if end >= INSTRUCTION else 0


def _shortened(text: str, start: int) -> dict[str, str | None]:
    """A text on one line without what all begin with, and more of it where there is more."""
    own = text[start:] if len(text) > start else text
    line = " ".join(own[: 4 * GLANCE].split())
    if len(text) <= GLANCE and line == text:
        return {"text": line, "more": None}
    short = line if len(line) <= GLANCE else line[: GLANCE - 1].rstrip() + "…"
    more = text if len(text) <= WHOLE else text[:WHOLE] + f"… ({len(text):,} characters)"
    return {"text": short, "more": more}
