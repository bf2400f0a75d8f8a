"""One browser for all tests that look at real pages."""

from __future__ import annotations

import pytest

from browser import Browser, find_chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A headless Chromium; the tests that need it are skipped, visibly, where there is none."""
    program = find_chromium()
    if program is None:
        pytest.skip("no chromium to look at the page with")
    running = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield running
    running.close()
