"""Where routing helps, which queries it regrets, and how other methods did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.evaluation.report.charts.rows import Span, interval_scale, intervals, line, scale_line
from mild.evaluation.report.markup import Markup, breakable, join, tag
from mild.evaluation.report.parts.card import card, folded, folded_after, named, numbers_table
from mild.evaluation.report.words import cost, dollars, percent, share_words, shortened, signed

__all__ = ["groups_part", "methods_part", "regrets_part"]

# So many of the most regretted are open to see.
SHOWN = 8
SIDES = {"better": "router cheaper", "worse": "constant cheaper", "level": "within the noise"}


def groups_part(document: Mapping[str, Any]) -> Markup | None:
    """Router minus best constant in every group."""
    groups = document.get("groups")
    if not groups or not groups["rows"]:
        return None
    rows = groups["rows"]
    spans = [Span(row["estimate"], row["low"], row["high"]) for row in rows]
    scale = interval_scale(spans, 4)
    constant = document["verdict"]["constant"]
    lines = [
        line(
            row["name"],
            f"{row['rows']:,} rows",
            intervals(span, scale, _group_words(row, span, groups["column"], constant)),
            signed(row["estimate"]),
            span.side,
        )
        for row, span in zip(rows, spans, strict=True)
    ]
    merged = " Small groups are taken together." if groups["merged"] else ""
    header = tag(
        "div",
        tag("span", "← router cheaper"),
        tag("span", "constant cheaper →"),
        class_="sides",
    )
    return card(
        "groups",
        f"Where routing helps, by {shortened(str(groups['column']), 40)}",
        f"Mean cost of the router minus that of always asking {constant}, with intervals that hold for "
        f"all groups at once ({percent(groups['confidence'], 0)}).{merged}",
        header,
        tag(
            "ol",
            lines,
            line("", None, scale_line(scale), "", "scale"),
            class_="lines forest",
        ),
    )


def _group_words(row: Mapping[str, Any], span: Span, column: str, constant: str) -> str:
    return (
        f"{row['name']}: {SIDES[span.side]}\n"
        f"{signed(span.estimate)} ({signed(span.low)} to {signed(span.high)}), {row['rows']:,} rows\n"
        f"router {cost(row['router'])}, always {constant} {cost(row['constant'])}\n"
        f"asks {row['asked']} most ({percent(row['share'], 0)}); best single expert here: {row['expert']}"
    )


def regrets_part(document: Mapping[str, Any]) -> Markup | None:
    """The worst choices, worst first."""
    regrets = document.get("regrets")
    if not regrets:
        return None
    short = named(document)
    items = [_regret(row, short) for row in regrets["rows"]]
    return card(
        "regrets",
        "What it regrets most",
        f"Regret is what the router's choice cost more than the cheapest one. It is positive on "
        f"{percent(regrets['regretted'])} of the rows, {cost(regrets['mean'])} per row on average.",
        _pairs(regrets["pairs"], short),
        folded_after(items, SHOWN, "ol", "regrets") if items else None,
    )


def _pairs(pairs: Sequence[Mapping[str, Any]], short: Mapping[str, str]) -> Markup | None:
    if not pairs:
        return None
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("strong", percent(pair["share"], 0)),
                " of all regret: asked ",
                tag("bdi", short[pair["chosen"]], class_="who"),
                " where ",
                tag("bdi", short[pair["best"]], class_="who"),
                f" was cheapest ({pair['rows']:,} rows)",
            )
            for pair in pairs
        ),
        class_="pairs",
    )


def _regret(row: Mapping[str, Any], short: Mapping[str, str]) -> Markup:
    text = row["text"] or f"row {row['row']:,}"
    shown = tag("p", text, class_="query")
    if row["more"]:
        shown = tag(
            "details",
            tag("summary", text, class_="query"),
            tag("div", row["more"], class_="whole"),
        )
    gave = ""
    if row["gave"] is not None:
        gave = f", given {percent(row['gave'][0])} against {percent(row['gave'][1])}"
    return tag(
        "li",
        shown,
        tag(
            "p",
            "asked ",
            tag("bdi", short[row["chosen"]], class_="who"),
            f" ({cost(row['paid'])}), cheapest was ",
            tag("bdi", short[row["best"]], class_="who"),
            f" ({cost(row['least'])}){gave}",
            class_="facts",
        ),
        tag(
            "p",
            tag("strong", signed(row["regret"])),
            tag("small", breakable(row["group"] or f"row {row['row']:,}")),
            class_="cost",
        ),
    )


def methods_part(document: Mapping[str, Any]) -> Markup | None:
    """Every method of the comparison against the best constant."""
    comparison = document.get("comparison")
    if not comparison:
        return None
    methods = comparison["methods"]
    spans = {
        method["method"]: Span(*method["minus_constant"])
        for method in methods
        if method["minus_constant"] is not None
    }
    scale = interval_scale(list(spans.values()), 4)
    lines = [
        line(
            method["label"],
            method["what"],
            intervals(spans[method["method"]], scale, _method_words(method, comparison["experts"])),
            signed(spans[method["method"]].estimate),
            spans[method["method"]].side
            + (" chosen" if method["method"] == comparison["chosen"] else ""),
        )
        for method in methods
        if method["method"] in spans
    ]
    left = ""
    if comparison["left_out"]:
        left = f" Left out for want of a package: {', '.join(comparison['left_out'])}."
    # On top of a comparison's own page it stands already.
    said = "" if document["kind"] == "comparison" else f"{comparison['statement']['sentence']} "
    splits = "1 split" if comparison["splits"] == 1 else f"{comparison['splits']} splits"
    return card(
        "methods",
        "All methods on the same splits",
        f"{said}Mean cost minus the best constant's; the intervals hold for all methods at once "
        f"({splits}, {comparison['rows_to_test_on']:,.0f} rows to test on).{left}",
        tag(
            "ol",
            lines,
            line("", None, scale_line(scale), "", "scale"),
            class_="lines forest methods",
        ),
        folded("The numbers", _methods_table(methods)),
    )


def _method_words(method: Mapping[str, Any], experts: Sequence[str]) -> str:
    words = [f"{method['label']}: mean cost {cost(method['mean_cost'])}"]
    if method["price"] is not None:
        words.append(f"{dollars(1000 * method['price'])} per 1,000 queries")
    return "\n".join([*words, share_words(experts, method["shares"])])


def _methods_table(methods: Sequence[Mapping[str, Any]]) -> Markup:
    rows = []
    for method in methods:
        difference = method["minus_constant"]
        rows.append(
            [
                str(method["label"]),
                cost(method["mean_cost"]),
                "" if difference is None else signed(difference[0]),
                "" if difference is None else f"{signed(difference[1])} to {signed(difference[2])}",
                str(method["verdict"]),
                percent(method["headroom_captured"], 0),
                cost(method["shuffled_control"]),
                "" if method["price"] is None else dollars(1000 * method["price"]),
                f"{method['seconds']:.2f}\u00a0s",
            ]
        )
    header = [
        "method", "mean cost", "minus constant", "interval", "verdict", "of the possible gain",
        "shuffled", "per 1,000", "time",
    ]  # fmt: skip
    return join(numbers_table(header, rows, "Methods of the comparison"))
