"""The page itself: one static HTML document, nothing fetched but the status."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["page_bytes"]


@cache
def page_bytes() -> bytes:
    """The page, with its style and its script inside.

    Examples
    --------
    >>> page_bytes()[:15]
    b'<!doctype html>'
    """
    folder = files("mild.gateway.dashboard")
    page = (folder / "page.html").read_text("utf-8")
    for mark, name in (("/*style*/", "style.css"), ("/*script*/", "script.js")):
        page = page.replace(mark, (folder / name).read_text("utf-8"))
    return page.encode()
