"""Playwright driving an installed Chromium, as the fixture ``browser`` of tests that look at a page."""

from __future__ import annotations

import functools
import io
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def in_its_thread(method):
    """Run a method in the browser's thread: Playwright's event loop would refuse the tests' asyncio.run."""

    @functools.wraps(method)
    def call(self, *args, **options):
        return self.thread.submit(method, self, *args, **options).result()

    return call


class Browser:
    """One browser with one page; requests and errors of the page are kept until the next ``open``."""

    def __init__(self, program, start):
        self.thread = ThreadPoolExecutor(1)
        self.requests, self.errors = [], []
        self._launch(program, start)

    @in_its_thread
    def _launch(self, program, start):
        self.playwright = start().start()
        arguments = ["--no-sandbox", "--force-color-profile=srgb"]
        self.chromium = self.playwright.chromium.launch(executable_path=program, args=arguments)
        self.page = None

    @in_its_thread
    def _end(self):
        self.chromium.close()
        self.playwright.stop()

    def close(self):
        """End the browser."""
        self._end()
        self.thread.shutdown()

    @in_its_thread
    def open(self, path, width=1200, height=900, scheme="light", mobile=False):
        """Load a page at a width, in a colour scheme."""
        if self.page is not None:
            self.page.context.close()
        self.page = self.chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, is_mobile=mobile
        ).new_page()
        self.requests, self.errors = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "console", lambda entry: self.errors.append(entry.text) if entry.type == "error" else 0
        )
        self.page.goto(path.as_uri())

    @in_its_thread
    def reload(self):
        """Load the page again."""
        self.page.reload()

    @in_its_thread
    def media(self, scheme="light", kind="screen"):
        """Set the colour scheme, and "print" or "screen"."""
        self.page.emulate_media(color_scheme=scheme, media=kind)

    @in_its_thread
    def run(self, expression):
        """Value of a JavaScript expression in the page."""
        return self.page.evaluate(expression)

    @in_its_thread
    def hover(self, x, y):
        """Move the pointer."""
        self.page.mouse.move(x, y)

    @in_its_thread
    def press(self, key):
        """Press a key."""
        self.page.keyboard.press(key)

    @in_its_thread
    def pixels(self):
        """The page as (height, width, 3) numbers."""
        import numpy as np
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; tests that need it are skipped where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="no playwright to drive chromium with")
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium to look at the page with")
    running = Browser(program, api.sync_playwright)
    yield running
    running.close()
