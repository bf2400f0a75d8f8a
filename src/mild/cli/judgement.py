"""What a routing was worth on data, as a report that can be printed or read by a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.arrays import FloatArray, IntArray
from mild.cli.console import note, number, print_table
from mild.metrics import constant_losses, state_choices, summary

__all__ = ["judge", "print_judgement"]


def judge(
    costs: FloatArray, chosen: IntArray, expert_names: Sequence[str], confidence: float, seed: int
) -> dict[str, Any]:
    """Summary of the choices, and whether they beat the constant that is best on these very rows."""
    result = summary(costs, chosen, missing="skip")
    statement = state_choices(
        costs, chosen, result.constant_expert, expert_names, confidence=confidence, seed=seed
    )
    return {
        "rows": result.n_samples,
        "experts": list(expert_names),
        "summary": result.as_dict(),
        "constant_losses": constant_losses(costs),
        "verdict": {
            **statement.as_dict(),
            "constant": expert_names[result.constant_expert],
            "confidence": confidence,
        },
    }


def print_judgement(report: Mapping[str, Any], title: str) -> None:
    """Tables of a report of ``judge``."""
    figures = report["summary"]
    if figures["n_known"] < figures["n_samples"]:
        note(
            f"{figures['n_samples'] - figures['n_known']} row(s) have no cost for the chosen expert "
            f"and are left out of the router's mean."
        )
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
        columns["$ per 1,000"] = [f"{value:,.3f}" for value in dollars["experts"]]
    print_table(
        "experts",
        ["expert", *columns],
        list(zip(report["experts"], *columns.values(), strict=True)),
    )
    if dollars is not None and dollars["router"] is not None:
        paid = [["router", f"{dollars['router']:,.3f}"], [constant, f"{dollars['constant']:,.3f}"]]
        print_table("dollars", ["$ per 1,000 queries", ""], paid)
