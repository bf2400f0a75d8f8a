"""Whom the router asks, whom it should, and whether its probabilities hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.evaluation.report.charts.calibration import calibration_chart, common_range
from mild.evaluation.report.charts.rows import line, pair_of_bars, small_bar
from mild.evaluation.report.markup import Markup, join, tag
from mild.evaluation.report.parts.card import card, folded_after, named
from mild.evaluation.report.words import percent

__all__ = ["calibration_part", "shares_part"]

# Beyond, the rarely asked are folded away.
SHOWN = 12
CURVES = 8
# Beyond, they are in the document alone: a page stays a page.
MOST_CURVES = 16

FORM_WORDS = {
    "others": "the share of the reward that is an expert's when every other expert's cost counts for it",
    "complement": "the share of the reward that is an expert's when what it spares counts for it",
    "contrast": "the share of the reward that is an expert's when its gain over the worst counts for it",
    "baseline": "the share of the reward that is an expert's when its gain over a baseline counts for it",
    "cheapest": "how often an expert is the cheapest one",
}


def shares_part(document: Mapping[str, Any]) -> Markup:
    """Shares of the router beside the oracle's, and recall."""
    figures, names = document["figures"], document["experts"]
    shares, best, recall = figures["shares"], figures["oracle_shares"], figures["recall"]
    largest = max([*shares, *best])
    order = sorted(range(len(names)), key=lambda k: (-best[k], -shares[k], k))
    short = named(document)
    lines = [
        _share_line(names[k], short[names[k]], shares[k], best[k], recall[k], largest)
        for k in order
    ]
    legend = tag(
        "ul",
        tag("li", tag("span", class_="swatch router"), "router asks"),
        tag("li", tag("span", class_="swatch oracle"), "oracle asks"),
        tag("li", tag("span", class_="swatch recall"), "recall"),
        class_="legend",
    )
    return card(
        "shares",
        "Whom it asks, and whom it should",
        "The oracle asks the cheapest expert of every row (ties to the first expert). Recall: of the "
        "rows on which an expert is the cheapest, how many the router sent there. A router that has "
        "collapsed has one long bar and no recall elsewhere.",
        legend,
        folded_after(lines, SHOWN, "ol", "lines shares"),
    )


def _share_line(
    name: str, short: str, share: float, best: float, recall: float | None, largest: float
) -> Markup:
    found = "never the cheapest" if recall is None else f"recall {percent(recall, 0)}"
    tip = f"{name}\nrouter {percent(share)}, oracle {percent(best)}\n{found}"
    picture = join(pair_of_bars(share, best, largest, tip))
    value = join(
        tag("span", percent(share), class_="own"),
        tag("span", percent(best), class_="other"),
    )
    return line(short, join(small_bar(recall, tip), found), picture, value)


def calibration_part(document: Mapping[str, Any]) -> Markup | None:
    """One reliability curve per expert."""
    calibration = document.get("calibration")
    if not calibration:
        return None
    curves, names = calibration["experts"], document["experts"]
    shares = document["figures"]["shares"]
    best = document["figures"]["oracle_shares"]
    known = [k for k in range(len(names)) if curves[k]["bins"]]
    known.sort(key=lambda k: (-(shares[k] + best[k]), k))
    limits = common_range([curves[k] for k in known])
    short = named(document)
    pictures = [_curve(curves[k], limits, short[names[k]]) for k in known[:MOST_CURVES]]
    left = ""
    if len(known) > MOST_CURVES:
        left = f" Shown for the {MOST_CURVES} experts that are asked, or should be, most."
    return card(
        "calibration",
        "Do its probabilities hold?",
        f"The stationary probability of an expert estimates {FORM_WORDS[calibration['form']]}. Each dot "
        f"is a tenth of the rows, or fewer: what was predicted across, what came true up, with its "
        f"{percent(calibration['confidence'], 0)} interval. On the dashed line the two agree. The strip "
        f"below shows where the predictions lie.{left}",
        folded_after(pictures, CURVES, "div", "curves"),
    )


def _curve(curve: Mapping[str, Any], limits: tuple[float, float], name: str) -> Markup:
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("bdi", name, class_="who"),
            tag("small", f"off by {100 * curve['error']:.2g} points on average"),
        ),
        calibration_chart(curve, limits, name),
    )
