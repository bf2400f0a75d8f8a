"""What a routing was worth on data, as a report that can be printed or read by a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mild.arrays import FloatArray, IntArray
from mild.cli.console import note, number, print_table
from mild.metrics import (
    chosen_costs,
    constant_losses,
    linearised_rows,
    paired_interval,
    summary,
)

__all__ = ["judge", "print_judgement", "verdict"]


def judge(
    costs: FloatArray, chosen: IntArray, expert_names: Sequence[str], confidence: float, seed: int
) -> dict[str, Any]:
    """Summary of the choices, and whether they beat the constant that is best on these very rows."""
    result = summary(costs, chosen, missing="skip")
    paid = chosen_costs(costs, chosen)
    constant = costs[:, result.constant_expert]
    both = np.column_stack([paid, constant])
    known = int((~np.isnan(both)).sum(axis=0).min())
    found: dict[str, Any] = {"estimate": None, "low": None, "high": None}
    pays = None
    if known >= 2:
        rows = linearised_rows(both)
        interval = paired_interval(rows[:, 0], rows[:, 1], confidence, random_state=seed)
        found = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
        if interval.high < 0 or interval.low >= 0:
            pays = interval.high < 0
    name = expert_names[result.constant_expert]
    found |= {"rows": known, "confidence": confidence}
    return {
        "rows": result.n_samples,
        "experts": list(expert_names),
        "summary": result.as_dict(),
        "constant_losses": constant_losses(costs),
        "verdict": verdict(pays, name, found),
    }


def verdict(pays: bool | None, constant: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The judgement with its sentence.

    Parameters
    ----------
    pays : True, False, or None if it cannot be told
    constant : name of the expert that is the yardstick
    found : estimate, low and high of router minus constant, rows, confidence, and n_candidates if the
        interval holds for several at once; estimate is None if there are too few rows

    Examples
    --------
    >>> found = {"estimate": -0.2, "low": -0.3, "high": -0.1, "rows": 50, "confidence": 0.95}
    >>> verdict(True, "large", found)["sentence"][:70]
    "Routing pays: per input it costs 0.2000 less than always asking 'large"
    """
    gap = found["estimate"]
    if gap is None:
        reason = (
            f": too few rows ({found['rows']}) have a known cost for the router's choice or for "
            f"{constant!r}."
        )
    else:
        words = (
            "the same as" if gap == 0 else f"{abs(gap):.4f} {'more' if gap > 0 else 'less'} than"
        )
        among = f", {found['n_candidates']} candidates" if "n_candidates" in found else ""
        reason = (
            f": per input it costs {words} always asking {constant!r}"
            f"{'' if pays is not None else ', which is within the noise'} "
            f"({found['confidence'] * 100:g} % interval of the difference {found['low']:.4f} to "
            f"{found['high']:.4f}, {found['rows']} rows{among})."
        )
    start = {
        True: "Routing pays",
        False: "Routing does not pay",
        None: "It cannot be told whether routing pays",
    }
    keys = ("estimate", "low", "high", "rows", "confidence")
    return {
        "pays": pays,
        "sentence": start[pays] + reason,
        "constant": constant,
        **{key: found[key] for key in keys},
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
