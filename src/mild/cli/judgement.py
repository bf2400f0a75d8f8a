"""What a routing was worth on data, as a report that can be printed or read by a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.cli.console import note, number, print_table
from mild.core.arrays import FloatArray, IntArray
from mild.metrics import common_rows, constant_losses, state_choices, summary
from mild.metrics.money import amount

__all__ = ["judge", "print_judgement"]


def judge(
    costs: FloatArray, chosen: IntArray, expert_names: Sequence[str], confidence: float, seed: int
) -> dict[str, Any]:
    """Summary of the choices, and whether they beat the constant that is best on these very rows."""
    result = summary(costs, chosen, missing="skip")
    common = common_rows(costs, chosen)
    constant = expert_names[result.constant_expert]
    kept = costs[common.rows]
    statement = state_choices(
        kept,
        chosen[common.rows],
        result.constant_expert,
        expert_names,
        confidence=confidence,
        seed=seed,
    )
    return {
        "rows": result.n_samples,
        "experts": list(expert_names),
        "summary": result.as_dict(),
        "constant_losses": constant_losses(kept),
        "left_out": common.sentence,
        "verdict": {**statement.as_dict(), "constant": constant, "confidence": confidence},
    }


def print_judgement(report: Mapping[str, Any], title: str) -> None:
    """Tables of a report of ``judge``."""
    figures = report["summary"]
    if report["left_out"] is not None:
        note(report["left_out"])
    constant = f"always {report['experts'][figures['constant_expert']]}"
    rows = [
        ["router", number(figures["loss"])],
        [constant, number(figures["constant_loss"])],
        ["oracle", number(figures["oracle_loss"])],
        ["same shares, dealt at random", number(figures["shuffled_control"])],
        ["possible gain: constant minus oracle", number(figures["headroom"])],
        ["share of the possible gain", number(figures["headroom_captured"], 3)],
    ]
    if "minority_recall" in report:
        rows.append(["recall of the rarer experts", number(report["minority_recall"], 3)])
    print_table(title, ["mean cost", ""], rows)
    columns = {
        "router's share": [number(value, 3) for value in figures["shares"]],
        "oracle's share": [number(value, 3) for value in figures["oracle_shares"]],
        "recall": [number(value, 3) for value in figures["recall"]],
        "mean cost": [number(value) for value in np.asarray(report["constant_losses"]).tolist()],
    }
    dollars = report.get("dollars_per_1000")
    if dollars is not None:
        columns["$ per 1,000"] = [amount(value) for value in dollars["experts"]]
    print_table(
        "experts",
        ["expert", *columns],
        list(zip(report["experts"], *columns.values(), strict=True)),
    )
    if dollars is not None and dollars["router"] is not None:
        paid = [["router", amount(dollars["router"])], [constant, amount(dollars["constant"])]]
        print_table("dollars", ["$ per 1,000 queries", ""], paid)
