"""Hooks of mkdocs that make the site complete without a network: formulas as MathML, search from a disk."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# What the plugin "offline" loads, and our copy of it.
SHIM, COPY = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker.js"


def _as_mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return convert(html.unescape(found[2]), display=display)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML, which every current browser shows by itself."""
    return FORMULA.sub(_as_mathml, content)


def on_post_page(output: str, page: Page, config: Any) -> str:
    """Load the search of pages on a disk from the site itself."""
    return output.replace(SHIM, get_relative_url(COPY, page.url))
