"""A table of outcomes on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mild.cli.console import number, print_table, say
from mild.data.data_quality import counted
from mild.metrics.money import amount

__all__ = ["print_outcomes"]

#: A figure as the text of its cell.
Cell: TypeAlias = Callable[[Any], str]


def print_outcomes(report: Mapping[str, Any]) -> None:
    """Tables and sentences of ``mild data describe``."""
    say(f"{report['file']}: {report['explanation']}")
    say(f"cost = {report['cost']['words']}")
    experts = report["experts"]
    quality = "mean score" if report["soft_scores"] else "accuracy"
    shown: list[tuple[str, str, Cell]] = [
        (quality, "accuracy", lambda value: number(value, 3)),
        ("mean cost", "mean_cost", number),
        ("oracle's share", "oracle_share", _percent),
        ("only right", "only_right", _percent),
    ]
    if any(expert["asked"] < report["rows"] for expert in experts):
        shown.insert(0, ("asked", "asked", lambda value: f"{value:,}"))
    _print_experts(f"{counted(len(experts), 'expert')}", experts, shown)
    known: list[tuple[str, str, Cell]] = [
        (header, key, cell)
        for header, key, cell in (
            ("$ per 1,000 queries", "mean_price", _dollars),
            ("seconds", "mean_latency", lambda value: number(value, 2)),
            ("cheapest that is right", "cheapest_and_right", _percent),
        )
        if any(expert[key] is not None for expert in experts)
    ]
    if known:
        # A table of its own: beside the others it leaves no room for names on a narrow terminal.
        _print_experts("what asking costs", experts, known)
    constant, oracle = report["best_constant"], report["oracle"]
    print_table(
        "what routing could gain",
        ["", "mean cost", quality],
        [
            [f"always {constant['expert']}", *_figures(constant)],
            ["oracle", *_figures(oracle)],
            ["difference", number(report["headroom"]), ""],
        ],
    )
    for sentence in (*_summary(report), *(entry["sentence"] for entry in report["findings"])):
        say(f"- {sentence}")


def _print_experts(
    title: str, experts: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str, Cell]]
) -> None:
    print_table(
        title,
        ["expert", *(header for header, _, _ in columns)],
        [[expert["name"], *(cell(expert[key]) for _, key, cell in columns)] for expert in experts],
    )


def _figures(row: Mapping[str, Any]) -> list[str]:
    return [number(row["cost"]), number(row["accuracy"], 3)]


def _summary(report: Mapping[str, Any]) -> list[str]:
    soft = " (a score of 0.5 or more)" if report["soft_scores"] else ""
    shares = report["imbalance"]
    return [
        f"All that were asked are right on {_percent(report['all_right'])} of the queries{soft}, none on "
        f"{_percent(report['all_wrong'])}; on the other {_percent(report['some_right'])} it matters who "
        f"is asked.",
        f"The oracle sends {_percent(shares['largest'])} to one expert and "
        f"{_percent(shares['smallest'])} to the rarest (evenness {shares['entropy']:.2f}, where 1 is "
        f"even; ties go to the expert that comes first).",
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _dollars(per_query: float | None) -> str:
    """Dollars of 1,000 queries, with as many digits as are of use."""
    if per_query is None:
        return "–"
    return amount(1000 * per_query)
