"""The part of the page on the verdict: lines of text, bars of what decides, and the table below them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mild.metrics.target_verdict import LIMITED_FIGURES
from mild.money import amounts
from mild.report.charts import IntervalMark, Span, interval_mark, zero_scale
from mild.report.formatting import (
    capitalised,
    cost_text,
    dollars_text,
    percent,
    saved_words,
    signed,
)

# Most single experts in the table of alternatives; if there are more, only those with a note are shown.
MAX_CONSTANTS = 12
# Per cent of the width that is left free at each end of a bar.
BAR_MARGIN = 20.0
# A hyphen that means minus.
_HYPHEN = re.compile(r"(?<=[ (])-(?=\d)")


# Lines of text.


def with_minus_signs(sentence: str) -> str:
    """Return a sentence with a minus sign, not a hyphen, before each negative number."""
    return _HYPHEN.sub("−", sentence)


def verdict_lead(verdict: Mapping[str, Any], has_facts: bool) -> str:
    """Return the sentence of the verdict without the answer, which is the headline.

    Where dollars have a line of their own, they are left out.
    """
    sentence = str(verdict["sentence"])
    reason = sentence.partition(": ")[2] or sentence
    lead = with_minus_signs(reason.replace(" %", "\u00a0%"))
    if has_facts:
        lead = lead.partition(" In dollars, it ")[0]
    return lead


def reference_of(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the mean figures of the expert that the router is compared with.

    With a target, it is the best expert of the tuning; otherwise the best one of these rows.
    """
    means = document["figures"]["means"]
    target = document["verdict"]["target"]
    if target is not None and means.get("reference") is not None:
        return str(target["reference"]), means["reference"]
    return str(document["verdict"]["constant"]), means["constant"]


def fact_lines(document: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return lines on quality, dollars, answers and unused prices, each with its name and its text."""
    lines = []
    means = document["figures"]["means"]
    router = means["router"]
    name, reference = reference_of(document)
    always = f"always {name}"
    if router["quality"] is not None and reference["quality"] is not None:
        quality_name = document["quality_name"]
        text = _quality_words(router["quality"], reference["quality"], quality_name, always)
        lines.append({"name": "Quality:", "text": text})
    if router["dollars"] is not None and reference["dollars"] is not None:
        text = _dollar_words(router["dollars"], reference["dollars"], always)
        lines.append({"name": "Dollars:", "text": text})
    if document.get("cascade"):
        reason = str(document["cascade"]["direct"]["sentence"]).partition(": ")[2]
        lines.append({"name": "Answers:", "text": capitalised(with_minus_signs(reason))})
    if document.get("prices_unused"):
        lines.append({"name": "Prices:", "text": str(document["prices_unused"])})
    return lines


def _quality_words(quality: float, reference: float, quality_name: str, always: str) -> str:
    """Return a sentence on the quality of the router and of always asking the reference expert."""
    points = 100 * (quality - reference)
    if abs(points) < 0.05:
        change = "The same."
    elif points > 0:
        change = f"{points:.1f} points higher."
    else:
        change = f"{-points:.1f} points lower."
    of_router = f"{quality_name} {percent(quality)}"
    if quality_name == "accuracy":
        of_router = f"{percent(quality)} of the answers are right"
    return f"{of_router}; {always}: {percent(reference)}. {change}"


def _dollar_words(dollars: float, reference: float, always: str) -> str:
    """Return a sentence on the dollars of the router and of always asking the reference expert."""
    return (
        f"{dollars_text(dollars)} per 1,000 queries; {always}: {dollars_text(reference)}. The router "
        f"{saved_words(dollars, reference)}."
    )


# Figures that a target limits.


def target_lines(target: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return lines of text on the figures that a target limits, and on quality kept and dollars saved.

    Parameters
    ----------
    target : dict or None
        What ``TargetVerdict.as_dict()`` gives; None gives no lines.

    Returns
    -------
    list of dict
        Lines with ``name``, ``estimate``, ``low``, ``high`` and ``limit``, which is empty for a figure
        that the target does not limit.

    Examples
    --------
    >>> figure = {"estimate": 0.97, "low": 0.96, "high": 0.98}
    >>> target = {"asked": {"keep_quality": 0.95}, "quality_kept": figure, "dollars_saved": None}
    >>> [line["name"] + " " + line["limit"] for line in target_lines(target)]
    ['quality kept at least 95.0\\xa0%']
    """
    if not target:
        return []
    lines = []
    for target_name, limited_figure in LIMITED_FIGURES.items():
        figure = target.get(limited_figure.attribute)
        limit = target["asked"].get(target_name)
        # The quality kept has a line even if the target does not limit it.
        has_line = limit is not None or target_name == "keep_quality"
        if figure is None or not has_line:
            continue
        limit_text = ""
        if limit is not None:
            limit_text = _limit_words(target_name, limit)
        texts = _figure_texts(target_name, _span(figure))
        lines.append(_target_line(limited_figure.name, texts, limit_text))
    saved = target.get("dollars_saved")
    if saved is not None:
        texts = [percent(value) for value in _span(saved)]
        lines.append(_target_line("dollars saved", texts, limit=""))
    return lines


def _target_line(name: str, texts: Sequence[str], limit: str) -> dict[str, str]:
    estimate, low, high = texts
    return {"name": name, "estimate": estimate, "low": low, "high": high, "limit": limit}


def _span(figure: Mapping[str, Any]) -> Span:
    """Return the estimate of a figure and the ends of its interval."""
    return figure["estimate"], figure["low"], figure["high"]


def _figure_text(target_name: str, value: float) -> str:
    """Return a figure as text: dollars, a loss of quality, or a share, by its target."""
    attribute = LIMITED_FIGURES[target_name].attribute
    if attribute == "dollars_per_1000":
        return dollars_text(value)
    if attribute == "quality_loss":
        return cost_text(value)
    return percent(value)


def _figure_texts(target_name: str, span: Span) -> list[str]:
    """Return a figure and the ends of its interval as texts, with the digits of the figure."""
    if LIMITED_FIGURES[target_name].attribute == "dollars_per_1000":
        return [f"${text}".replace("$-", "−$") for text in amounts(span)]
    return [_figure_text(target_name, value) for value in span]


def _limit_words(target_name: str, limit: float) -> str:
    """Return the limit of a target as text, such as "at least 95 %"."""
    bound = "at most"
    if LIMITED_FIGURES[target_name].sign > 0:
        bound = "at least"
    return f"{bound} {_figure_text(target_name, limit)}"


# Bars: what decides, with its interval and its limit.


@dataclass(frozen=True)
class VerdictBar:
    """A figure that decides, its interval, and the line that it is compared with."""

    zero: float  # position of the line, in per cent of the width
    mark: IntervalMark
    sides: tuple[str, str]  # what is left and right of the line: "better" or "worse"
    hints: tuple[str, str]  # the same in words
    ends: tuple[str, str] | None  # the ends of the interval; None where it has no width
    text: str
    caption: str


def verdict_bars(document: Mapping[str, Any]) -> list[VerdictBar]:
    """Return a bar for each limit of a target; without a target, one for the difference of losses."""
    verdict = document["verdict"]
    level = f"with its {percent(verdict['confidence'], 0)} interval"
    if verdict["target"]:
        return list(_target_bars(verdict["target"], level))
    span = _span(verdict)
    if None in span:
        return []
    return [_loss_bar(span, str(verdict["constant"]), level, document.get("cost") or {})]


def _target_bars(target: Mapping[str, Any], level: str) -> Iterator[VerdictBar]:
    """Yield a bar for each figure that has a limit; the vertical line of the bar is at the limit.

    ``level`` says in words which interval is drawn.
    """
    for target_name, limit in target["asked"].items():
        limited_figure = LIMITED_FIGURES[target_name]
        figure = target[limited_figure.attribute]
        if figure is None:
            continue
        estimate, low, high = _span(figure)
        from_limit = (estimate - limit, low - limit, high - limit)
        scale = zero_scale([from_limit], BAR_MARGIN)
        # Larger values are drawn to the right, so the better side depends on the figure.
        higher_is_better = limited_figure.sign > 0
        sides = ("better", "worse")
        hints = ("← met", "missed →")
        if higher_is_better:
            sides = ("worse", "better")
            hints = ("← missed", "met →")
        text, low_text, high_text = _figure_texts(target_name, (estimate, low, high))
        ends = None
        if low != high:
            ends = (low_text, high_text)
        title = limited_figure.name[:1].upper() + limited_figure.name[1:]
        limit_text = _limit_words(target_name, limit)
        yield VerdictBar(
            zero=scale(0),
            mark=interval_mark(from_limit, scale, higher_is_better),
            sides=sides,
            hints=hints,
            ends=ends,
            text=f"{limited_figure.name} {text}",
            caption=f"{title}, {level}. The line is what was asked for: {limit_text}.",
        )


def _loss_bar(span: Span, constant: str, level: str, cost: Mapping[str, Any]) -> VerdictBar:
    """Return a bar for the mean loss of the router minus that of the best single expert."""
    _, low, high = span
    scale = zero_scale([span], BAR_MARGIN)
    mark = interval_mark(span, scale)
    ends = None
    if high > low:
        ends = (signed(low), signed(high))
    caption = (
        f"Mean loss of the router minus that of always asking {constant}, {level}. To the left of the "
        "line, the router has the lower loss."
    )
    if cost:
        caption += f" Loss = {cost['words']}."
    return VerdictBar(
        zero=scale(0),
        mark=mark,
        sides=("better", "worse"),
        hints=("← router: lower loss", "constant: lower loss →"),
        ends=ends,
        text=f"difference {mark.text}",
        caption=caption,
    )


# The table: the router beside what could replace it.


@dataclass(frozen=True)
class Alternative:
    """A row of the table: the router, or what could replace it."""

    key: str  # its kind, for the style sheet
    name: str
    note: str | None
    loss: float | None
    accuracy: float | None
    dollars_per_1000: float | None
    seconds: float | None
    saves: str = ""  # what the router saves over it, in words


@dataclass(frozen=True)
class AlternativesTable:
    """The table, and which of its columns are shown."""

    rows: list[Alternative]

    @property
    def quality(self) -> bool:
        """Whether the quality of any row is known."""
        return self._has_any("accuracy")

    @property
    def dollars(self) -> bool:
        """Whether the dollars of any row are known."""
        return self._has_any("dollars_per_1000")

    @property
    def seconds(self) -> bool:
        """Whether the time of any row is known."""
        return self._has_any("seconds")

    def _has_any(self, figure: str) -> bool:
        """Whether a figure of any row is known."""
        return any(getattr(row, figure) is not None for row in self.rows)


def alternatives_table(document: Mapping[str, Any]) -> AlternativesTable:
    """Return the router, single experts, the same mix at random and perfect choice, a row each."""
    baselines = {row["key"]: row for row in document["figures"]["baselines"]}
    router_dollars = baselines["router"]["dollars_per_1000"]
    rows = [_alternative("router", "router", baselines["router"])]
    if "direct" in baselines:
        name = "router without answers"
        saves = _saves(router_dollars, baselines["direct"])
        rows.append(_alternative("direct", name, baselines["direct"], saves=saves))
    rows.extend(_constant_rows(document, baselines, router_dollars))
    rows.append(_alternative("same_mix", "the same mix at random", baselines["same_mix"]))
    rows.append(_alternative("perfect", "perfect choice", baselines["perfect"], note="oracle"))
    return AlternativesTable(rows)


def _constant_rows(
    document: Mapping[str, Any],
    baselines: Mapping[str, Mapping[str, Any]],
    router_dollars: float | None,
) -> Iterator[Alternative]:
    """Yield the single experts: all of them if they are few, otherwise those that have a note."""
    best_expert = baselines["best_single"]["expert"]
    notes = {best_expert: "best single expert of these rows"}
    fitted_expert = baselines.get("fit_constant", {}).get("expert")
    if fitted_expert is not None:
        notes[fitted_expert] = "best single expert when the router was fitted"
        if fitted_expert == best_expert:
            notes[fitted_expert] = "best single expert, here and at fit"
    frontier = document.get("frontier") or {}
    constants: list[Mapping[str, Any]] = list(_constants(frontier.get("points", ())))
    if not constants:
        constants.append(baselines["best_single"])
    for figures in constants:
        expert = figures["expert"]
        if len(constants) > MAX_CONSTANTS and expert not in notes:
            continue
        name = "always the best single expert"
        if expert:
            name = f"always {expert}"
        saves = _saves(router_dollars, figures)
        yield _alternative("constant", name, figures, notes.get(expert), saves)


def _constants(points: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the figures of the single experts of the frontier, with the keys of a baseline."""
    for point in points:
        if point["kind"] == "constant":
            yield {
                "expert": point["name"],
                "loss": point["cost"],
                "accuracy": point["quality"],
                "dollars_per_1000": point["dollars"],
                "seconds": point["seconds"],
            }


def _saves(router_dollars: float | None, figures: Mapping[str, Any]) -> str:
    """Return what the router saves over an alternative, in words; empty if a price is not known."""
    dollars = figures["dollars_per_1000"]
    if router_dollars is None or dollars is None:
        return ""
    return saved_words(router_dollars, dollars)


def _alternative(
    key: str, name: str, figures: Mapping[str, Any], note: str | None = None, saves: str = ""
) -> Alternative:
    """Return a row of the table, from the figures of a baseline."""
    return Alternative(
        key=key,
        name=name,
        note=note,
        loss=figures["loss"],
        accuracy=figures["accuracy"],
        dollars_per_1000=figures["dollars_per_1000"],
        seconds=figures["seconds"],
        saves=saves,
    )
