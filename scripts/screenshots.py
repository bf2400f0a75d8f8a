"""Draw the HTML report and the gateway's status page in docs/figures: `python scripts/screenshots.py`.

The report is that of a router tuned on the embedded table. The status page is that of `mild serve --demo`
after questions of the same table. Needs `pip install . ./gateway playwright pillow` and Chromium.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import mild
from mild.datasets import load_outcomes

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUESTIONS = 500
# A page is drawn with twice as many pixels, for sharp screens.
SCALE = 2


def write_report(page: Path) -> None:
    """The report of a router that was tuned on one part of the embedded table and judged on the other."""
    train, test = load_outcomes().split(test_size=0.3, random_state=0)
    found = mild.tune(train, price_weight=50)
    mild.evaluate(found.router, test).write_report(page)


@contextmanager
def demo_gateway() -> Iterator[str]:
    """The address of a gateway that serves the demo."""
    command = [sys.executable, "-m", "mild", "serve", "--demo", "--port", "0"]
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        line = next(line for line in gateway.stdout if "http://127.0.0.1:" in line)
        yield "http://" + line.partition("http://")[2].split()[0].rstrip("/")
    finally:
        gateway.terminate()
        gateway.wait(60)


def ask(address: str, question: str) -> None:
    """Ask one question and read the answer."""
    body = {"model": "mild", "messages": [{"role": "user", "content": question}]}
    request = urllib.request.Request(
        f"{address}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def take(browser: Browser, url: str, name: str, height: int, wait: str, scheme: str) -> None:
    """Write the upper part of a page as a PNG with few colours."""
    context = browser.new_context(
        viewport={"width": 1100, "height": height}, device_scale_factor=SCALE, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector(wait)
    page.wait_for_timeout(1000)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()
    target = FIGURES / name
    picture.quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)
    print(f"{target}: {target.stat().st_size:,} bytes")


def main() -> None:
    """Take every picture, light and dark."""
    program = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        report = Path(folder) / "report.html"
        write_report(report)
        for scheme in ("light", "dark"):
            take(browser, report.as_uri(), f"report-{scheme}.png", 850, "svg", scheme)
        with demo_gateway() as address, ThreadPoolExecutor(4) as pool:
            questions = load_outcomes().queries[:QUESTIONS]
            list(pool.map(lambda question: ask(address, question), questions))
            for scheme in ("light", "dark"):
                take(browser, address, f"dashboard-{scheme}.png", 720, "svg", scheme)
        browser.close()


if __name__ == "__main__":
    main()
