"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from mild.errors import InvalidInputError
from mild.evaluation.report.markup import Markup, tag
from mild.evaluation.report.parts.experts import calibration_part, shares_part
from mild.evaluation.report.parts.frontier import frontier_part
from mild.evaluation.report.parts.places import groups_part, methods_part, regrets_part
from mild.evaluation.report.parts.verdict import verdict_part

__all__ = ["render"]

#: What this page can show; newer documents are refused.
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


def render(document: Mapping[str, Any]) -> str:
    """The document as an HTML page, complete in itself.

    Nothing is fetched and nothing but our own few lines of script may run: the page says so to the
    browser, with their checksum. Every text of the document is escaped.

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
            f"One of a newer mild needs that mild."
        )
    try:
        return _page(document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InvalidInputError(
            f"document must be what build_document makes; something is missing or odd "
            f"({type(error).__name__}: {error})."
        ) from error


def _page(document: Mapping[str, Any]) -> str:
    parts = {
        "frontier": frontier_part(document) if document.get("frontier") else None,
        "shares": shares_part(document),
        "groups": groups_part(document),
        "calibration": calibration_part(document),
        "regrets": regrets_part(document),
        "methods": methods_part(document),
        "settings": _settings(document),
    }
    style, script = _asset("style.css"), _asset("script.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", str(document["title"])),
        tag("style", style),
        tag("script", script),
    )
    body = tag(
        "body",
        _header(document, [name for name, part in parts.items() if part is not None]),
        tag("main", verdict_part(document), *parts.values()),
        _footer(document),
        tag("div", id="tip", role="status", hidden=True),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _header(document: Mapping[str, Any], names: Sequence[str]) -> Markup:
    links = [tag("a", LINKS[name], href=f"#{name}") for name in names]
    return tag(
        "header",
        tag(
            "div",
            tag("p", str(document["title"]), class_="title"),
            tag(
                "button",
                "Dark",
                id="theme",
                type="button",
                aria_label="Switch between light and dark",
            ),
            class_="bar",
        ),
        tag("nav", *links, aria_label="Parts of the report"),
    )


def _settings(document: Mapping[str, Any]) -> Markup:
    versions = [[name, value] for name, value in document["versions"].items()]
    blocks = [
        ("Router", document.get("router") or []),
        ("Data", document.get("data") or []),
        ("Evaluation", [*(document.get("settings") or []), *versions]),
    ]
    return tag(
        "section",
        tag("h2", "Settings and data"),
        tag(
            "div",
            *(
                tag("div", tag("h3", title), tag("dl", *(_fact(*fact) for fact in facts)))
                for title, facts in blocks
                if facts
            ),
            class_="facts",
        ),
        class_="card",
        id="settings",
    )


def _fact(name: str, value: str) -> Markup:
    return tag("div", tag("dt", str(name)), tag("dd", str(value)))


def _footer(document: Mapping[str, Any]) -> Markup:
    rows, experts = document["rows"], len(document["experts"])
    return tag(
        "footer",
        f"{rows:,} rows, {experts} experts. Made by mild {document['versions']['mild']}, "
        f"{document['made']}.",
    )


def _policy(style: str, script: str) -> str:
    """What the browser may do with the page: show it, and run our script."""
    return (
        f"default-src 'none'; style-src {_checksum(style)}; script-src {_checksum(script)}; "
        f"base-uri 'none'; form-action 'none'"
    )


def _checksum(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _asset(name: str) -> Markup:
    """A file of this package, as it is."""
    return Markup(
        resources.files("mild.evaluation.report").joinpath(name).read_text(encoding="utf-8")
    )
