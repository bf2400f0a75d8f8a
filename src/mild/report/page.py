"""Render a document as one HTML page. Texts are in ``templates/page.html``."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mild.artifact.files import check_free, replacing
from mild.core.arrays import invalid
from mild.errors import DataFileError
from mild.metrics.results import TIES
from mild.report.certainty import certainty_sentence, certainty_setting
from mild.report.charts import (
    AXES,
    RING,
    FrontierChart,
    IntervalChart,
    calibration_scales,
    frontier_charts,
    interval_chart,
    polygon,
)
from mild.report.formatting import (
    capitalised,
    cost_text,
    dollars_text,
    duration_text,
    percent,
    saved_words,
    shares_text,
    short_names,
    shortened,
    signed,
)
from mild.report.scales import Scale, scale_for, spaced
from mild.report.verdict_part import (
    alternatives_table,
    fact_lines,
    reference_of,
    target_lines,
    verdict_bars,
    verdict_lead,
)

SUFFIXES = (".html", ".htm")
LINKS = {
    "steps": "Steps",
    "frontier": "Quality and price",
    "shares": "Experts",
    "groups": "Where it helps",
    "calibration": "Probabilities",
    "regrets": "Regrets",
    "settings": "Settings",
}
# Points of the list of qualities that are shown; the others are folded.
LADDER_ROWS = 14
# Reliability curves on the page; the others are only in the document.
MAX_CURVES = 16
# Size of the letters beside reliability curves on a narrow page, with some room for wide typefaces.
PHONE_LETTERS = 20.0
# Characters that HTML forbids, and marks that change the reading direction of what follows.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
DIRECTION_MARKS = re.compile("[\u202a-\u202e\u2066-\u2069]")
# Line breaks of the template between elements. Texts of the document have no bare > or <.
BETWEEN_TAGS = re.compile(r">\s*\n\s*<")


def check_report(path: str | os.PathLike[str], overwrite: bool = True) -> Path:
    """Refuse, before any work, a path at which no page can be written.

    Parameters
    ----------
    path : str or path
        The file to write; its name ends in ``.html``.
    overwrite : bool, default=True
        Whether a file that is there may be replaced.

    Returns
    -------
    Path
        The file to write.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise invalid("path", f"must be the name of an .html file; got {path!r}.")
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(f"{target}: a report must end in .html; got {target.suffix!r}.")
    return check_free(target, overwrite)


def write_report(
    document: Mapping[str, Any], path: str | os.PathLike[str], overwrite: bool = True
) -> Path:
    """Write a document as an HTML page.

    Parameters
    ----------
    document : dict
        The content of the report, as ``Evaluation.document`` gives it.
    path : str or path
        The file to write; its name ends in ``.html``.
    overwrite : bool, default=True
        Whether a file that is there may be replaced.

    Returns
    -------
    Path
        The file that was written.
    """
    target = check_report(path, overwrite)
    page = render(document)
    try:
        with replacing(target) as file:
            file.write(page.encode(errors="replace"))
    except OSError as error:
        raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
    return target


def render(document: Mapping[str, Any]) -> str:
    """Render a document as an HTML page.

    The page needs no network, and its content security policy allows only its own style and script, by
    their checksums. Every text of the document is escaped.

    Parameters
    ----------
    document : dict
        The content of the report, as ``Evaluation.document`` gives it.

    Returns
    -------
    str
        The page.

    Raises
    ------
    InvalidInputError
        Something in the document is missing or wrong.
    """
    try:
        return _page(clean(document))
    except (LookupError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        problem = f"something is missing or wrong ({type(error).__name__}: {error})"
        raise invalid("document", f"must be the content of a report; {problem}.") from error


def clean(value: Any) -> Any:
    """Replace or remove what HTML forbids in every text of a value, keys included."""
    if isinstance(value, str):
        return DIRECTION_MARKS.sub("", FORBIDDEN.sub("�", value))
    if isinstance(value, Mapping):
        return {clean(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    return value


def _page(document: dict[str, Any]) -> str:
    """Render a document, whose texts have been through ``clean``, with the template."""
    experts = [str(name) for name in document["experts"]]
    short_by_name = dict(zip(experts, short_names(experts, 32), strict=True))
    verdict = document["verdict"]
    style = _template_file("style.css")
    script = _template_file("script.js")
    facts = fact_lines(document)
    parts = _parts(document)
    # Only parts that the page has are in its list of contents.
    links = []
    for name, title in LINKS.items():
        if parts[name]:
            links.append((name, title))
    template = _environment().get_template("page.html")
    page = template.render(
        document=document,
        short=short_by_name,
        names=short_names(experts, 24),
        answer=verdict["headline"],
        # Dollars and quality have lines of their own.
        lead=verdict_lead(verdict, has_facts=bool(facts)),
        ties=TIES,
        facts=facts,
        beside=alternatives_table(document),
        warning=document["warning"],
        bars=verdict_bars(document),
        asked=target_lines(verdict["target"]),
        links=links,
        policy=_content_policy(style, script),
        style=style,
        script=script,
        **parts,
    )
    return BETWEEN_TAGS.sub("><", page).strip() + "\n"


def _parts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each part of the page shows, by the name of the part; nothing for a missing part."""
    cascade = document.get("cascade") or {}
    return {
        "steps": cascade.get("steps"),
        "frontier": _frontier(document.get("frontier"), document["experts"]),
        "shares": _shares(document),
        "groups": _groups(document.get("groups")),
        "calibration": _calibration(document),
        "regrets": document.get("regrets"),
        "settings": True,
    }


def _content_policy(style: str, script: str) -> str:
    """Return the content security policy: nothing is fetched, and no other style or script is used."""
    return (
        f"default-src 'none'; style-src {_checksum(style)}; script-src {_checksum(script)}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _checksum(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _template_file(name: str) -> Markup:
    """A file beside the template, as markup."""
    file = resources.files(__package__) / "templates" / name
    return Markup(file.read_text(encoding="utf-8"))


@cache
def _environment() -> jinja2.Environment:
    """Return the template engine, with the filters and functions that ``page.html`` uses.

    Every text is escaped, and a name that the document lacks is an error.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mild.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": lambda value: f"{value:.2f}%",  # a position
        # A name that may be broken after its underscores.
        "breakable": lambda name: Markup("_<wbr>").join(name.split("_")),
        "capitalised": capitalised,
        "cost": cost_text,
        "dollars": dollars_text,
        "duration": duration_text,
        "percent": percent,
        "px": _pixels,
        "shortened": shortened,
        "signed": signed,
        "thousands": lambda value: f"{value:,.0f}",
    }
    environment.globals |= {
        "axes": AXES,
        "polygon": polygon,
        "ring": RING,
        "asks": shares_text,
        "certainty_sentence": certainty_sentence,
        "certainty_setting": certainty_setting,
        "reference_of": reference_of,
        "saved_words": saved_words,
    }
    return environment


def _pixels(value: float) -> str:
    """A length; a hundredth of a pixel is finer than any screen."""
    if value == 0:
        return "0"
    return f"{value:.2f}".rstrip("0").rstrip(".")


# Parts of the page.


@dataclass(frozen=True)
class FrontierPart:
    """Quality against price."""

    charts: list[FrontierChart]
    kinds: set[str]  # kinds of the points
    target: Mapping[str, Any] | None


@dataclass(frozen=True)
class LadderPart:
    """Qualities or losses from the best to the worst, where the experts differ in nothing else."""

    ladder: list[dict[str, Any]]
    shown: int  # the others are folded
    by_quality: bool


def _frontier(
    frontier: Mapping[str, Any] | None, experts: Sequence[str]
) -> FrontierPart | LadderPart | None:
    """Return the charts of the frontier, or a list of its points where there is no price."""
    if not frontier:
        return None
    if frontier["axis"] is None:
        return _ladder(frontier["points"])
    kinds = {point["kind"] for point in frontier["points"]}
    return FrontierPart(frontier_charts(frontier, experts), kinds, frontier.get("target"))


def _ladder(points: Sequence[Mapping[str, Any]]) -> LadderPart:
    """Return points from best to worst: by quality, or by loss if the quality of a point is not known."""
    by_quality = all(point["quality"] is not None for point in points)
    figure = "cost"
    format_value = cost_text
    if by_quality:
        figure = "quality"
        format_value = percent
    known_points = [point for point in points if point[figure] is not None]
    known_points.sort(key=lambda point: point[figure], reverse=by_quality)
    scale = scale_for([point[figure] for point in known_points], 3, 97, pad=0.02)
    rows = []
    n_shown = LADDER_ROWS
    for point in known_points:
        value = point[figure]
        rows.append({**point, "place": scale(value), "value": format_value(value)})
        if point["kind"] == "router":
            # The router itself is never folded away.
            n_shown = max(n_shown, len(rows))
    return LadderPart(rows, n_shown, by_quality)


def _shares(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each expert: how often router and oracle ask it, and recall; most often first."""
    figures = document["figures"]
    shares = figures["shares"]
    oracle_shares = figures["oracle_shares"]
    largest = max([*shares, *oracle_shares]) or 1
    unit = 100 / largest
    rows = []
    for expert, name in enumerate(document["experts"]):
        rows.append(
            {
                "expert": name,
                "share": shares[expert],
                "best": oracle_shares[expert],
                "recall": figures["recall"][expert],
                "router_bar": shares[expert] * unit,
                "oracle_bar": oracle_shares[expert] * unit,
            }
        )
    return sorted(rows, key=lambda row: (-row["best"], -row["share"]))


def _groups(groups: Mapping[str, Any] | None) -> IntervalChart | None:
    """Return the chart of the differences of losses by group; None without groups."""
    if not groups or not groups["rows"]:
        return None
    spans = [(row["estimate"], row["low"], row["high"]) for row in groups["rows"]]
    return interval_chart(spans)


@dataclass(frozen=True)
class CalibrationPart:
    """Reliability curves on common scales."""

    curves: list[dict[str, Any]]
    shown: int | None  # how many of the curves are shown; None for all of them
    x_scale: Scale
    y_scale: Scale
    ticks: list[tuple[float, float, str]]
    x_ticks: list[
        tuple[float, str]
    ]  # those of the horizontal axis whose texts do not touch on a phone


def _calibration(document: Mapping[str, Any]) -> CalibrationPart | None:
    """Return reliability curves of the experts that router and oracle ask most; None without any."""
    if not document.get("calibration"):
        return None
    shares = document["figures"]["shares"]
    oracle_shares = document["figures"]["oracle_shares"]
    curves = []
    experts = zip(document["experts"], document["calibration"]["experts"], strict=True)
    for expert, (name, curve) in enumerate(experts):
        if curve["bins"]:
            weight = shares[expert] + oracle_shares[expert]
            curves.append({"expert": name, "weight": weight, **curve})
    curves.sort(key=lambda curve: -curve["weight"])
    x_scale, y_scale, ticks = calibration_scales(curves)
    x_ticks = []
    for x, _, text in ticks:
        x_ticks.append((x, text))
    # On a phone the letters are larger.
    spaced_ticks = spaced(x_ticks, PHONE_LETTERS)
    shown = None
    if len(curves) > MAX_CURVES:
        shown = MAX_CURVES
    return CalibrationPart(curves[:MAX_CURVES], shown, x_scale, y_scale, ticks, spaced_ticks)
