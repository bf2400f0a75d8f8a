"""Render a document as one HTML page. Texts are in ``templates/page.html``."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from mild.artifact.files import check_free
from mild.core.arrays import invalid
from mild.errors import DataFileError
from mild.metrics.outcomes import TIES
from mild.metrics.target_verdict import ASKED
from mild.metrics.verdict import STARTS
from mild.money import amount, amounts, decimals
from mild.report.certainty import certainty_sentence, certainty_setting
from mild.report.charts import (
    AXES,
    RING,
    calibration_scales,
    forest,
    frontier_charts,
    percent,
    polygon,
    scale_for,
    short_names,
    shortened,
    signed,
    spaced,
)
from mild.report.document import SCHEMA, optimism, write_text

SUFFIXES = (".html", ".htm")
LINKS = {
    "steps": "Steps",
    "frontier": "Quality and price",
    "shares": "Experts",
    "groups": "Where it helps",
    "calibration": "Probabilities",
    "regrets": "Regrets",
    "methods": "Methods",
    "settings": "Settings",
}
# Points of the list of qualities that are shown; the others are folded.
LADDER_ROWS = 14
# Single experts in the table beside the router; of more, only the best ones.
MOST_CONSTANTS = 12
# Reliability curves on the page; the others are only in the document.
MAX_CURVES = 16
# Size of the letters beside reliability curves in a narrow page, and some more: some faces are wide.
PHONE_LETTERS = 20.0
# Characters that HTML forbids, and marks that change the reading direction of what follows.
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
DIRECTION_MARKS = re.compile("[\u202a-\u202e\u2066-\u2069]")
# A hyphen that means minus.
HYPHEN = re.compile(r"(?<=[ (])-(?=\d)")
# Line breaks of the template between elements. Texts of the document have no bare > or <.
BETWEEN_TAGS = re.compile(r">\s*\n\s*<")


def check_report(path: str | os.PathLike[str], overwrite: bool = True) -> Path:
    """Refuse, before any work, a path at which no page can be written."""
    if not isinstance(path, (str, os.PathLike)):
        raise invalid("path", f"must be the name of an .html file; got {path!r}.")
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise DataFileError(f"{target}: a report must end in .html; got {target.suffix!r}.")
    return check_free(target, overwrite)


def write_report(
    document: Mapping[str, Any], path: str | os.PathLike[str], overwrite: bool = True
) -> Path:
    """Write a document as an HTML page."""
    return write_text(check_report(path, overwrite), render(document))


def render(document: Mapping[str, Any]) -> str:
    """Render a document as an HTML page.

    The page needs no network, and its content security policy allows only its own style and script, by
    their checksums. Every text of the document is escaped. A document of another schema is refused.
    """
    if document.get("schema") != SCHEMA:
        got = f"got {document.get('schema')!r}. Use the version of mild that wrote it."
        raise invalid("document", f"must be an evaluation of schema {SCHEMA}; {got}")
    try:
        return _page(clean(document))
    except (LookupError, TypeError, ValueError, AttributeError, jinja2.UndefinedError) as error:
        odd = f"something is missing or wrong ({type(error).__name__}: {error})"
        raise invalid("document", f"must be the content of a report; {odd}.") from error


def clean(value: Any) -> Any:
    """The value with what HTML forbids replaced in every text, keys included."""
    if isinstance(value, str):
        return DIRECTION_MARKS.sub("", FORBIDDEN.sub("�", value))
    if isinstance(value, Mapping):
        return {clean(key): clean(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(entry) for entry in value]
    return value


def _page(document: dict[str, Any]) -> str:
    experts = [str(name) for name in document["experts"]]
    groups, comparison = document.get("groups"), document.get("comparison")
    style, script = (
        Markup((resources.files(__package__) / "templates" / name).read_text(encoding="utf-8"))
        for name in ("style.css", "script.js")
    )
    verdict = document["verdict"]
    sentence = str(verdict["sentence"])
    lead = HYPHEN.sub("−", (sentence.partition(": ")[2] or sentence).replace(" %", "\u00a0%"))
    compared = [one for one in (comparison or {}).get("methods", ()) if one["minus_constant"]]
    parts: dict[str, Any] = {
        "steps": (document.get("cascade") or {}).get("steps"),
        "frontier": _frontier(document) if document.get("frontier") else None,
        "shares": _shares(document),
        "groups": forest([(row["estimate"], row["low"], row["high"]) for row in groups["rows"]], 4)
        if groups and groups["rows"]
        else None,
        "calibration": _calibration(document) if document.get("calibration") else None,
        "regrets": document.get("regrets"),
        "methods": {**forest([one["minus_constant"] for one in compared], 4), "compared": compared}
        if comparison
        else None,
        "settings": True,
    }
    beside = _beside(document)
    # Dollars and quality have lines of their own.
    facts = _facts(document)
    if facts:
        lead = lead.partition(" In dollars, it ")[0]
    template = _environment().get_template("page.html")
    page = template.render(
        document=document,
        short=dict(zip(experts, short_names(experts, 32), strict=True)),
        names=short_names(experts, 24),
        answer=verdict.get("headline") or STARTS[verdict["pays"]],
        lead=lead,
        ties=TIES,
        facts=facts,
        beside=beside,
        warning=optimism(document),
        bars=_bars(document),
        asked=target_lines(verdict.get("target")),
        links=[(name, title) for name, title in LINKS.items() if parts[name]],
        policy=(
            f"default-src 'none'; style-src {_checksum(style)}; script-src {_checksum(script)}; "
            f"base-uri 'none'; form-action 'none'"
        ),
        style=style,
        script=script,
        **parts,
    )
    return BETWEEN_TAGS.sub("><", page).strip() + "\n"


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("mild.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "at": lambda value: f"{value:.2f}%",
        # A name that may be broken after its underscores.
        "breakable": lambda name: Markup("_<wbr>").join(name.split("_")),
        "capitalised": _capitalised,
        "cost": _cost,
        "dollars": _dollars,
        "duration": _duration,
        "percent": percent,
        # A hundredth is finer than any screen.
        "px": lambda value: f"{value:.2f}".rstrip("0").rstrip(".") if value != 0 else "0",
        "shortened": shortened,
        "signed": signed,
        "thousands": lambda value: f"{value:,.0f}",
    }
    environment.globals |= {
        "axes": AXES,
        "polygon": polygon,
        "ring": RING,
        "asks": _asks,
        "certainty_sentence": certainty_sentence,
        "certainty_setting": certainty_setting,
        "reference_of": _reference,
        "saved_words": saved_words,
    }
    return environment


def _reference(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The expert that the router is compared with, and its means: that of the target, if there is one."""
    means = document["figures"].get("means") or {}
    target = document["verdict"].get("target")
    if target is not None and means.get("reference") is not None:
        return str(target["reference"]), means["reference"]
    return str(document["verdict"]["constant"]), means.get("constant") or {}


def _facts(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Quality and dollars of the router against those of the reference, a line each; prices not used."""
    router = (document["figures"].get("means") or {}).get("router") or {}
    name, constant = _reference(document)
    always = f"always {name}"
    found = []
    own, other = router.get("quality"), constant.get("quality")
    if own is not None and other is not None:
        points = 100 * (own - other)
        change = f"{abs(points):.1f} points {'higher' if points > 0 else 'lower'}"
        change = "the same" if abs(points) < 0.05 else change
        right = f"{percent(own)} of the answers are right"
        if document.get("quality_name", "accuracy") != "accuracy":
            right = f"{document['quality_name']} {percent(own)}"
        text = f"{right}; {always}: {percent(other)}. {change}."
        found.append({"name": "Quality:", "text": text.replace(". the", ". The")})
    own, other = router.get("dollars"), constant.get("dollars")
    if own is not None and other is not None:
        text = f"{_dollars(own)} per 1,000 queries; {always}: {_dollars(other)}. "
        found.append({"name": "Dollars:", "text": f"{text}The router {saved_words(own, other)}."})
    if document.get("cascade"):
        words = str(document["cascade"]["direct"]["sentence"]).partition(": ")[2]
        found.append({"name": "Answers:", "text": _capitalised(HYPHEN.sub("−", words))})
    if document.get("prices_unused"):
        found.append({"name": "Prices:", "text": str(document["prices_unused"])})
    return found


def _figure(name: str, value: float) -> str:
    """A figure of a target: dollars, a loss of quality, or a share."""
    kind = ASKED[name][0]
    write = {"dollars_per_1000": _dollars, "quality_loss": _cost}.get(kind, percent)
    return write(value)


def _figures(name: str, values: Sequence[float]) -> list[str]:
    """A figure of a target and the ends of its interval, with as many digits as the first one."""
    if ASKED[name].attribute != "dollars_per_1000":
        return [_figure(name, value) for value in values]
    return [f"${text}".replace("$-", "−$") for text in amounts(values)]


def target_lines(target: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Quality kept, dollars saved, and what else a ``TargetVerdict.as_dict()`` was asked for, as text.

    >>> figure = {"estimate": 0.97, "low": 0.96, "high": 0.98}
    >>> found = {"asked": {"keep_quality": 0.95}, "quality_kept": figure, "dollars_saved": None}
    >>> [line["name"] + " " + line["limit"] for line in target_lines(found)]
    ['quality kept at least 95.0\\xa0%']
    """
    if not target:
        return []
    ends = ("estimate", "low", "high")
    lines = []
    for name, (key, title, sign) in ASKED.items():
        figure = target.get(key)
        limit = target["asked"].get(name)
        if figure is None or (limit is None and name != "keep_quality"):
            continue
        bound = "at least" if sign > 0 else "at most"
        lines.append(
            {
                "name": title,
                **dict(zip(ends, _figures(name, [figure[end] for end in ends]), strict=True)),
                "limit": "" if limit is None else f"{bound} {_figure(name, limit)}",
            }
        )
    saved = target.get("dollars_saved")
    if saved is not None:
        shares = {end: percent(saved[end]) for end in ends}
        lines.append({"name": "dollars saved", **shares, "limit": ""})
    return lines


def _bars(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What decides, with its interval and its limit: each target, or the difference of losses."""
    verdict, target = document["verdict"], document["verdict"].get("target")
    level = f"with its {percent(verdict['confidence'], 0)} interval"
    found = []
    for name, limit in (target["asked"] if target else {}).items():
        key, title, sign = ASKED[name]
        if target[key] is None:
            continue
        ends = [target[key][end] for end in ("estimate", "low", "high")]
        texts = _figures(name, ends)
        bar = forest([[end - limit for end in ends]], 20)
        side = bar["rows"][0]["side"]
        if sign > 0:
            bar["rows"][0]["side"] = {"better": "worse", "worse": "better"}.get(side, side)
        sides, hints = ("better", "worse"), ("← met", "missed →")
        bound = f"{'at least' if sign > 0 else 'at most'} {_figure(name, limit)}"
        start = f"{title[:1].upper()}{title[1:]}, {level}."
        found.append(
            {
                **bar,
                "sides": sides[::-sign],
                "hints": hints if sign < 0 else ("← missed", "met →"),
                "ends": None if ends[1] == ends[2] else texts[1:],
                "text": f"{title} {texts[0]}",
                "caption": f"{start} The line is what was asked for: {bound}.",
            }
        )
    span = [verdict[key] for key in ("estimate", "low", "high")]
    if target or None in span:
        return found
    bar = forest([span], 20)
    cost = document.get("cost")
    return [
        {
            **bar,
            "sides": ("better", "worse"),
            "hints": ("← router: lower loss", "constant: lower loss →"),
            "ends": [signed(end) for end in span[1:]] if span[2] > span[1] else None,
            "text": f"difference {bar['rows'][0]['text']}",
            "caption": f"Mean loss of the router minus that of always asking {verdict['constant']}, {level}"
            ". To the left of the line, the router has the lower loss."
            + (f" Loss = {cost['words']}." if cost else ""),
        }
    ]


def saved_words(own: float, other: float) -> str:
    """What a router saves over an alternative, in dollars and per cent.

    >>> saved_words(1.0, 4.0), saved_words(3.0, 2.0), saved_words(1.0, 1.0)
    ('saves $3.00 (75\\xa0%)', 'adds $1.00 (50\\xa0%)', 'costs as much')
    """
    gap = other - own
    if abs(gap) <= 1e-9 * max(abs(own), abs(other)):
        return "costs as much"
    share = f" ({percent(abs(gap) / other, 0)})" if other > 0 and abs(gap) < 10 * other else ""
    return f"{'saves' if gap > 0 else 'adds'} {_dollars(abs(gap))}{share}"


def _beside(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The router, every single expert, the same mix at random and perfect choice, for one table."""
    known = {row["key"]: row for row in document["figures"].get("baselines") or ()}
    if not known:
        return None
    rows = [{**known["router"], "name": "router"}]
    if "direct" in known:
        rows.append({**known["direct"], "name": "router without answers"})
    notes = {known["best_single"]["expert"]: "best single expert of these rows"}
    fitted = known.get("fit_constant", {}).get("expert")
    if fitted is not None:
        note = "best single expert when the router was fitted"
        notes[fitted] = "best single expert, here and at fit" if fitted in notes else note
    points = (document.get("frontier") or {}).get("points", ())
    constants = [
        {"expert": one["name"], "loss": one["cost"], "accuracy": one["quality"],
         "dollars_per_1000": one["dollars"], "seconds": one["seconds"]}
        for one in points
        if one["kind"] == "constant"
    ] or [known["best_single"]]  # fmt: skip
    # All of them where they are few, otherwise those that the notes are about.
    few = len(constants) <= MOST_CONSTANTS
    for one in constants:
        if few or one["expert"] in notes:
            name = f"always {one['expert']}" if one["expert"] else "always the best single expert"
            rows.append({**one, "key": "constant", "name": name, "note": notes.get(one["expert"])})
    rows.append({**known["same_mix"], "name": "the same mix at random"})
    rows.append({**known["perfect"], "name": "perfect choice", "note": "oracle"})
    paid = known["router"]["dollars_per_1000"]
    for row in rows:
        row.setdefault("note", None)
        other = row["dollars_per_1000"]
        told = row["key"] in ("constant", "direct") and paid is not None and other is not None
        row["saves"] = saved_words(paid, other) if told else ""
    figures = {"quality": "accuracy", "dollars": "dollars_per_1000", "seconds": "seconds"}
    shown = {name: any(row[key] is not None for row in rows) for name, key in figures.items()}
    return {"rows": rows, **shown}


def _frontier(document: Mapping[str, Any]) -> dict[str, Any]:
    """The charts, or a list of qualities or losses if the experts differ in nothing else."""
    frontier = document["frontier"]
    points = frontier["points"]
    if frontier["axis"] is not None:
        charts = frontier_charts(frontier, document["experts"])
        kinds = {point["kind"] for point in points}
        return {"charts": charts, "kinds": kinds, "target": frontier.get("target")}
    by_quality = all(point["quality"] is not None for point in points)
    key, write = ("quality", percent) if by_quality else ("cost", _cost)
    known = [point for point in points if point[key] is not None]
    known.sort(key=lambda point: point[key], reverse=by_quality)
    scale = scale_for([point[key] for point in known], 3, 97, pad=0.02)
    # The router itself is never folded away.
    place = [point["kind"] for point in known].index("router")
    return {
        "ladder": [{**p, "place": scale(p[key]), "value": write(p[key])} for p in known],
        "shown": max(LADDER_ROWS, place + 1),
        "by_quality": by_quality,
    }


def _shares(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Shares of the router beside the oracle's, and recall."""
    figures = document["figures"]
    shares, best, recall = figures["shares"], figures["oracle_shares"], figures["recall"]
    unit = 100 / (max([*shares, *best]) or 1)
    rows = [
        {
            "expert": name,
            "share": shares[k],
            "best": best[k],
            "recall": recall[k],
            "router_bar": shares[k] * unit,
            "oracle_bar": best[k] * unit,
        }
        for k, name in enumerate(document["experts"])
    ]
    return sorted(rows, key=lambda row: (-row["best"], -row["share"]))


def _calibration(document: Mapping[str, Any]) -> dict[str, Any]:
    """Reliability curves of the experts that are asked, or should be, most."""
    names, figures = document["experts"], document["figures"]
    curves = [
        {"expert": name, "weight": figures["shares"][k] + figures["oracle_shares"][k], **curve}
        for k, (name, curve) in enumerate(
            zip(names, document["calibration"]["experts"], strict=True)
        )
        if curve["bins"]
    ]
    curves.sort(key=lambda curve: -curve["weight"])
    across, up, ticks = calibration_scales(curves)
    # On a phone the letters are larger.
    columns = spaced([(x, text) for x, _, text in ticks], PHONE_LETTERS)
    shown = MAX_CURVES if len(curves) > MAX_CURVES else None
    found = {"shown": shown, "curves": curves[:shown], "across": across, "up": up, "ticks": ticks}
    return {**found, "columns": columns}


def _checksum(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _capitalised(sentence: str) -> str:
    """A sentence with a capital, unless it begins with a name such as kNN."""
    word = sentence.partition(" ")[0]
    return sentence[:1].upper() + sentence[1:] if word == word.lower() else sentence


def _cost(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else decimals(value).replace("-", "−")


def _dollars(value: float | None) -> str:
    """An amount, with as many digits as it needs.

    >>> _dollars(1234.5), _dollars(0.4), _dollars(0.00421), _dollars(-2), _dollars(0)
    ('$1,234', '$0.40', '$0.0042', '−$2.00', '$0')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{'−' if value < 0 else ''}${amount(abs(value))}"


def _duration(value: float | None) -> str:
    """Seconds.

    >>> _duration(2.345), _duration(0.0123)
    ('2.35\\xa0s', '12\\xa0ms')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{1000 * value:.0f}\u00a0ms" if value < 0.1 else f"{value:.2f}\u00a0s"


def _asks(names: Sequence[str], shares: Sequence[float], most: int = 4) -> str:
    """Shares of the experts, largest first.

    >>> _asks(["a", "b", "c"], [0.25, 0.75, 0.0])
    'b 75\\xa0%, a 25\\xa0%'
    """
    used = sorted((k for k in range(len(shares)) if shares[k] > 0), key=lambda k: -shares[k])
    said = [f"{names[k]} {percent(shares[k], 0)}" for k in used[:most]]
    rest = sum(shares[k] for k in used[most:])
    if rest > 0:
        said.append(f"{len(used) - most} others {percent(rest, 0)}")
    return ", ".join(said)
