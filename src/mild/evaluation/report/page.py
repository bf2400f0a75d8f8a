"""Render a document as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from mild.errors import InvalidInputError
from mild.evaluation.report.charts import (
    calibration_chart,
    common_range,
    forest,
    frontier_charts,
    polygon,
    scale_for,
)
from mild.evaluation.report.frontier import AXES
from mild.evaluation.report.words import (
    cost,
    dollars,
    duration,
    percent,
    share_words,
    short_names,
    shortened,
    signed,
    signed_percent,
)

__all__ = ["clean", "optimism", "render"]

#: Schema of the documents that this page can show.
SCHEMA = 1
LINKS = {
    "frontier": "Quality and price",
    "shares": "Experts",
    "groups": "Where it helps",
    "calibration": "Probabilities",
    "regrets": "Regrets",
    "methods": "Methods",
    "settings": "Settings",
}
HEADLINES = {
    True: ("pays", "Routing pays"),
    False: ("no", "Routing does not pay"),
    None: ("open", "It cannot be told whether routing pays"),
}
LEGEND = {
    "router": "this router",
    "operating": "the router at other price weights",
    "method": "other methods, over splits",
    "constant": "always the same expert",
    "oracle": "oracle: the cheapest of every row, which nobody knows beforehand",
}
SIDES = {"better": "router cheaper", "worse": "constant cheaper", "level": "within the noise"}
FORM_WORDS = {
    "others": "the share of the reward that is an expert's when every other expert's cost counts for it",
    "complement": "the share of the reward that is an expert's when what it spares counts for it",
    "contrast": "the share of the reward that is an expert's when its gain over the worst counts for it",
    "baseline": "the share of the reward that is an expert's when its gain over a baseline counts for it",
    "cheapest": "how often an expert is the cheapest one",
}
# Lines of the list of qualities that are shown before the rest is folded.
LADDER_ROWS = 14
# Reliability curves on the page; the others are in the document alone.
MOST_CURVES = 16
# Characters that HTML forbids, and marks that turn the reading direction of what follows.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
# A hyphen that stands for minus.
HYPHEN = re.compile(r"(?<=[ (])-(?=\d)")
# Line breaks of the template between elements. Document texts have no bare > or <.
BETWEEN_TAGS = re.compile(r">\s*\n\s*<")


def render(document: Mapping[str, Any]) -> str:
    """Render a document as an HTML page, complete in itself.

    Nothing is fetched, and the content security policy allows only the page's own style and script, by
    their checksums. Every text of the document is escaped.

    Parameters
    ----------
    document : as ``build_document`` makes it

    Raises
    ------
    InvalidInputError
        The document is of another schema, or lacks something.
    """
    if document.get("schema") != SCHEMA:
        raise InvalidInputError(
            f"document must be an evaluation of schema {SCHEMA}; got {document.get('schema')!r}. "
            f"Render a newer document with the newer mild.",
            parameter="document",
        )
    try:
        return _page(clean(document))
    except (
        *(KeyError, TypeError, ValueError, IndexError, AttributeError),
        jinja2.UndefinedError,
    ) as error:
        raise InvalidInputError(
            f"document must be what build_document makes; something is missing or odd "
            f"({type(error).__name__}: {error}).",
            parameter="document",
        ) from error


def clean(value: Any) -> Any:
    """The value with what HTML forbids replaced in every text, keys included.

    Examples
    --------
    >>> clean({"a\\x00": ["b\\u202ec", 1]})
    {'a�': ['bc', 1]}
    """
    if isinstance(value, str):
        return TURNING.sub("", FORBIDDEN.sub("�", value))
    if isinstance(value, Mapping):
        return {clean(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    return value


def optimism(document: Mapping[str, Any]) -> str | None:
    """Why the figures are too good, in a sentence; None if nothing says that they are.

    Examples
    --------
    >>> optimism({"seen_in_fit": {"queries": 3, "checked": 50}})
    '3 of 50 queries were in the training data, too: the figures are optimistic.'
    """
    if document.get("same_data_as_fit"):
        return "the router was fitted on this very data: the figures are optimistic."
    seen = document.get("seen_in_fit")
    if not seen or not seen["queries"]:
        return None
    return (
        f"{seen['queries']:,} of {seen['checked']:,} queries were in the training data, too: the "
        f"figures are optimistic."
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mild.evaluation.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": lambda value: f"{value:.2f}%",
        "breakable": _breakable,
        "cost": cost,
        "percent": percent,
        "px": _pixels,
        "signed": signed,
        "thousands": lambda value: f"{value:,.0f}",
    }
    environment.globals |= {"axes": AXES, "polygon": polygon}
    return environment


def _pixels(value: float) -> str:
    """A length with at most two decimals: a hundredth is finer than any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != 0 else "0"


def _breakable(name: str) -> Markup:
    """A name that may be broken behind its underscores."""
    return Markup("_<wbr>").join(name.split("_"))


def _page(document: dict[str, Any]) -> str:
    experts = [str(name) for name in document["experts"]]
    short = dict(zip(experts, short_names(experts, 32), strict=True))
    style, script = _asset("style.css"), _asset("script.js")
    parts = {
        "frontier": _frontier(document) if document.get("frontier") else None,
        "shares": _shares(document, short),
        "groups": _groups(document),
        "calibration": _calibration(document, short) if document.get("calibration") else None,
        "regrets": document.get("regrets"),
        "methods": _methods(document) if document.get("comparison") else None,
        "settings": _settings(document),
    }
    names = short_names(experts, 24)
    page = (
        _environment()
        .get_template("page.html")
        .render(
            document=document,
            short=short,
            point_tip=lambda point: _point_tip(point, names),
            verdict=_verdict(document, short),
            links=[(name, words) for name, words in LINKS.items() if parts[name]],
            policy=(
                f"default-src 'none'; style-src {_checksum(style)}; script-src {_checksum(script)}; "
                f"base-uri 'none'; form-action 'none'"
            ),
            style=style,
            script=script,
            **parts,
        )
    )
    return BETWEEN_TAGS.sub("><", page).strip() + "\n"


def _verdict(document: Mapping[str, Any], short: Mapping[str, str]) -> dict[str, Any]:
    """Headline, sentence, the interval around zero, the figures behind."""
    verdict = document["verdict"]
    css, headline = HEADLINES[verdict["pays"]]
    sentence = str(verdict["sentence"])
    lead = HYPHEN.sub("−", (sentence.partition(": ")[2] or sentence).replace(" %", "\u00a0%"))
    warning, left_out = optimism(document), document.get("left_out")
    span = [verdict[key] for key in ("estimate", "low", "high")]
    known = None not in span
    return {
        "css": css,
        "headline": headline,
        "lead": _capitalised(lead),
        "warning": None if warning is None else _capitalised(warning),
        "left_out": None if left_out is None else _capitalised(str(left_out)),
        "bar": forest([span], 20) if known else None,
        "label": f"difference {signed(span[0])}, interval {signed(span[1])} to {signed(span[2])}",
        "tiles": _tiles(document, f"always {short[str(verdict['constant'])]}"),
    }


def _capitalised(sentence: str) -> str:
    """A sentence with a capital, unless it begins with a name such as kNN."""
    word = sentence.partition(" ")[0]
    return sentence[:1].upper() + sentence[1:] if word == word.lower() else sentence


def _tiles(document: Mapping[str, Any], always: str) -> list[tuple[str | None, ...]]:
    """Label, value and one or two notes of each tile."""
    figures = document["figures"]
    means = figures.get("means") or {}
    router, constant = means.get("router") or {}, means.get("constant") or {}
    oracle = means.get("oracle") or {}
    tiles: list[tuple[str | None, ...]] = [
        (
            "mean cost",
            cost(figures["loss"]),
            f"{always} {cost(figures['constant_loss'])}",
            f"oracle {cost(figures['oracle_loss'])}",
        )
    ]
    if router.get("quality") is not None:
        tiles.append(
            (
                "quality",
                percent(router["quality"]),
                f"{always} {percent(constant.get('quality'))}",
                f"oracle {percent(oracle.get('quality'))}",
            )
        )
    if router.get("dollars") is not None:
        saved = None
        if constant.get("dollars"):
            saved = f"{signed_percent(router['dollars'] / constant['dollars'] - 1)} in dollars"
        paid = f"{always} {dollars(constant.get('dollars'))}"
        tiles.append(("per 1,000 queries", dollars(router["dollars"]), paid, saved))
    if figures["headroom_captured"] is not None:
        captured = percent(figures["headroom_captured"], 0)
        possible = f"perfect routing would save {cost(figures['headroom'])}"
        tiles.append(("of the possible gain", captured, possible))
    control = figures["shuffled_control"]
    if control is not None:
        tiles.append(
            (
                "choices shuffled",
                cost(control),
                "mean cost of the same shares, dealt at random",
                f"the router: {signed(figures['loss'] - control)}",
            )
        )
    return tiles


def _frontier(document: Mapping[str, Any]) -> dict[str, Any]:
    """The charts, or a list of qualities where nothing but quality tells the experts apart."""
    frontier, experts = document["frontier"], document["experts"]
    points = frontier["points"]
    names = short_names(experts, 24)
    numbers = [
        [
            point["name"],
            percent(point["quality"]),
            dollars(point["dollars"]),
            duration(point["seconds"]),
            cost(point["cost"]),
            "yes" if point["efficient"] else "",
            ""
            if point["shares"] is None
            else share_words(names, point["shares"], 3).removeprefix("asks "),
        ]
        for point in points
    ]
    if frontier["axis"] is not None:
        kinds = {point["kind"] for point in points}
        legend = [(kind, words) for kind, words in LEGEND.items() if kind in kinds]
        charts = frontier_charts(frontier, experts)
        return {"charts": charts, "legend": legend, "numbers": numbers}
    by_quality = all(point["quality"] is not None for point in points)
    key, write = ("quality", percent) if by_quality else ("cost", cost)
    known = [point for point in points if point[key] is not None]
    known.sort(key=lambda point: point[key], reverse=by_quality)
    scale = scale_for([point[key] for point in known], 3, 97, pad=0.02)
    # The router itself is never folded away.
    place = [point["kind"] for point in known].index("router")
    return {
        "ladder": [{**p, "place": scale(p[key]), "value": write(p[key])} for p in known],
        "shown": max(LADDER_ROWS, place + 1),
        "numbers": numbers,
    }


def _point_tip(point: Mapping[str, Any], names: Sequence[str]) -> str:
    facts = [f"quality {percent(point['quality'])}"]
    if point["dollars"] is not None:
        facts.append(f"{dollars(point['dollars'])} per 1,000 queries")
    if point["seconds"] is not None:
        facts.append(duration(point["seconds"]))
    lines = [str(point["name"]), " · ".join(facts), f"mean cost {cost(point['cost'])}"]
    if point["shares"] is not None and point["kind"] != "constant":
        lines.append(share_words(names, point["shares"]))
    return "\n".join(lines)


def _shares(document: Mapping[str, Any], short: Mapping[str, str]) -> list[dict[str, Any]]:
    """Shares of the router beside the oracle's, and recall."""
    figures, names = document["figures"], document["experts"]
    shares, best, recall = figures["shares"], figures["oracle_shares"], figures["recall"]
    largest = max([*shares, *best])
    unit = 100 / largest if largest > 0 else 0
    rows = []
    for k in sorted(range(len(names)), key=lambda k: (-best[k], -shares[k], k)):
        found = "never the cheapest" if recall[k] is None else f"recall {percent(recall[k], 0)}"
        rows.append(
            {
                "name": short[names[k]],
                "share": shares[k],
                "best": best[k],
                "recall": recall[k],
                "found": found,
                "router_bar": shares[k] * unit,
                "oracle_bar": best[k] * unit,
                "tip": f"{names[k]}\nrouter {percent(shares[k])}, oracle {percent(best[k])}\n{found}",
            }
        )
    return rows


def _groups(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Router minus best constant in every group."""
    groups = document.get("groups")
    if not groups or not groups["rows"]:
        return None
    constant = document["verdict"]["constant"]
    chart = forest([(row["estimate"], row["low"], row["high"]) for row in groups["rows"]], 4)
    rows = []
    for row, mark in zip(groups["rows"], chart["rows"], strict=True):
        tip = (
            f"{row['name']}: {SIDES[mark['side']]}\n{mark['words']}, {row['rows']:,} rows\n"
            f"router {cost(row['router'])}, always {constant} {cost(row['constant'])}\n"
            f"asks {row['asked']} most ({percent(row['share'], 0)}); best single expert here: "
            f"{row['expert']}"
        )
        rows.append({**row, "mark": mark, "tip": tip})
    return {**chart, "title": shortened(str(groups["column"]), 40), "rows": rows}


def _calibration(document: Mapping[str, Any], short: Mapping[str, str]) -> dict[str, Any]:
    """One reliability curve per expert."""
    calibration, names = document["calibration"], document["experts"]
    curves, figures = calibration["experts"], document["figures"]
    asked = [a + b for a, b in zip(figures["shares"], figures["oracle_shares"], strict=True)]
    known = [k for k in range(len(names)) if curves[k]["bins"]]
    known.sort(key=lambda k: (-asked[k], k))
    limits = common_range([curves[k] for k in known])
    left_out = ""
    if len(known) > MOST_CURVES:
        left_out = f" Shown for the {MOST_CURVES} experts that are asked, or should be, most."
    return {
        "form": FORM_WORDS[calibration["form"]],
        "left_out": left_out,
        "curves": [
            {
                "name": short[names[k]],
                "error": f"{100 * curves[k]['error']:.2g}",
                "chart": calibration_chart(curves[k], limits),
            }
            for k in known[:MOST_CURVES]
        ],
    }


def _methods(document: Mapping[str, Any]) -> dict[str, Any]:
    """Every method of the comparison against the best constant."""
    comparison = document["comparison"]
    methods = comparison["methods"]
    compared = [method for method in methods if method["minus_constant"] is not None]
    chart = forest([method["minus_constant"] for method in compared], 4)
    rows = []
    for method, mark in zip(compared, chart["rows"], strict=True):
        tip = [f"{method['label']}: mean cost {cost(method['mean_cost'])}"]
        if method["price"] is not None:
            tip.append(f"{dollars(1000 * method['price'])} per 1,000 queries")
        tip.append(share_words(comparison["experts"], method["shares"]))
        chosen = " chosen" if method["method"] == comparison["chosen"] else ""
        rows.append({**method, "mark": mark, "tip": "\n".join(tip), "css": mark["side"] + chosen})
    numbers = []
    for method in methods:
        difference = method["minus_constant"]
        numbers.append(
            [
                method["label"],
                cost(method["mean_cost"]),
                "" if difference is None else signed(difference[0]),
                "" if difference is None else f"{signed(difference[1])} to {signed(difference[2])}",
                method["verdict"],
                percent(method["headroom_captured"], 0),
                cost(method["shuffled_control"]),
                "" if method["price"] is None else dollars(1000 * method["price"]),
                f"{method['seconds']:.2f}\u00a0s",
            ]
        )
    splits = "1 split" if comparison["splits"] == 1 else f"{comparison['splits']} splits"
    return {**chart, "rows": rows, "numbers": numbers, "splits": splits}


def _settings(document: Mapping[str, Any]) -> list[tuple[str, Any]]:
    versions = list(document["versions"].items())
    return [
        ("Router", document.get("router") or []),
        ("Data", document.get("data") or []),
        ("Evaluation", [*(document.get("settings") or []), *versions]),
    ]


def _checksum(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _asset(name: str) -> Markup:
    """A style sheet or script of this package, as it is."""
    folder = resources.files("mild.evaluation.report") / "templates"
    return Markup((folder / name).read_text(encoding="utf-8"))
