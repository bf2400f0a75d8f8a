"""The top of the page: does it pay, by how much, beside what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mild.evaluation.report.charts.rows import Span, verdict_bar
from mild.evaluation.report.markup import Markup, tag
from mild.evaluation.report.parts.card import named
from mild.evaluation.report.words import cost, dollars, percent, signed

__all__ = ["optimism", "verdict_part"]

# A hyphen that stands for minus.
HYPHEN = re.compile(r"(?<=[ (])-(?=\d)")
KINDS = {True: "pays", False: "no", None: "open"}
HEADLINES = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It cannot be told whether routing pays",
}


def verdict_part(document: Mapping[str, Any]) -> Markup:
    """Headline, sentence, interval around zero, the figures behind."""
    verdict = document["verdict"]
    pays = verdict["pays"]
    _, mark, said = str(verdict["sentence"]).partition(": ")
    if not mark:
        said = str(verdict["sentence"])
    said = HYPHEN.sub("−", said.replace(" %", "\u00a0%"))
    return tag(
        "section",
        _warning(document),
        tag("h1", HEADLINES[pays]),
        tag("p", _begun(said), class_="lead"),
        _left_out(document),
        _bar(verdict),
        _tiles(document),
        class_=f"verdict {KINDS[pays]}",
        id="verdict",
    )


def optimism(document: Mapping[str, Any]) -> str | None:
    """Why the figures flatter the router; None if nothing says that they do.

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


def _warning(document: Mapping[str, Any]) -> Markup | None:
    said = optimism(document)
    if said is None:
        return None
    return tag(
        "p",
        f"{_begun(said)} Judge it by other rows.",
        class_="warning",
        role="alert",
    )


def _left_out(document: Mapping[str, Any]) -> Markup | None:
    """Which rows are not judged by."""
    said = document.get("left_out")
    return None if said is None else tag("p", _begun(str(said)), class_="intro")


def _begun(sentence: str) -> str:
    """A sentence with a capital, unless it begins with a name such as kNN."""
    word = sentence.partition(" ")[0]
    return sentence[:1].upper() + sentence[1:] if word == word.lower() else sentence


def _bar(verdict: Mapping[str, Any]) -> Markup | None:
    if None in (verdict["estimate"], verdict["low"], verdict["high"]):
        return None
    span = Span(verdict["estimate"], verdict["low"], verdict["high"])
    return tag(
        "figure",
        verdict_bar(span, "← router cheaper", "constant cheaper →"),
        tag(
            "figcaption",
            f"Mean cost of the router minus that of always asking {verdict['constant']}, with its "
            f"{percent(verdict['confidence'], 0)} interval. Left of the line the router is cheaper.",
        ),
    )


def _tiles(document: Mapping[str, Any]) -> Markup:
    figures, verdict = document["figures"], document["verdict"]
    means = figures.get("means") or {}
    router, constant = means.get("router") or {}, means.get("constant") or {}
    oracle = means.get("oracle") or {}
    always = f"always {named(document)[str(verdict['constant'])]}"
    tiles = [
        _tile("mean cost", cost(figures["loss"]), f"{always} {cost(figures['constant_loss'])}",
              f"oracle {cost(figures['oracle_loss'])}"),
    ]  # fmt: skip
    if router.get("quality") is not None:
        tiles.append(
            _tile(
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
        tiles.append(
            _tile(
                "per 1,000 queries",
                dollars(router["dollars"]),
                f"{always} {dollars(constant.get('dollars'))}",
                saved,
            )
        )
    captured = figures["headroom_captured"]
    if captured is not None:
        tiles.append(
            _tile(
                "of the possible gain",
                percent(captured, 0),
                f"perfect routing would save {cost(figures['headroom'])}",
                None,
            )
        )
    if figures["shuffled_control"] is not None:
        tiles.append(
            _tile(
                "choices shuffled",
                cost(figures["shuffled_control"]),
                "mean cost of the same shares, dealt at random",
                f"the router: {signed(figures['loss'] - figures['shuffled_control'])}",
            )
        )
    return tag("ul", tiles, class_="tiles")


def signed_percent(value: float) -> str:
    """A relative change.

    Examples
    --------
    >>> signed_percent(-0.25), signed_percent(0.1)
    ('−25\\xa0%', '+10\\xa0%')
    """
    return ("+" if value > 0 else "") + percent(value, 0)


def _tile(label: str, value: str, first: str, second: str | None) -> Markup:
    return tag(
        "li",
        tag("span", label, class_="what"),
        tag("strong", value),
        tag("small", first),
        tag("small", second) if second else None,
    )
