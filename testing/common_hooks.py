"""Hooks of both suites: slow files first, and a summary of times and of what was skipped."""

import os
import re
import signal
from collections import Counter

import pytest
from hypothesis import settings

# On a busy machine an example may take its time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Ray's workers have a low priority by default, and would wait for the tests of all other processes.
os.environ.setdefault("RAY_worker_niceness", "0")

# A shell that starts us in the background has us ignore Ctrl-C, and with us all that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A run that takes more seconds ends with the time by group of tests.
SHOWN_FROM = 60
# A word in the reason of a skip, and what to install so that its tests run.
REMEDIES = {
    "playwright": "pip install playwright",
    "chromium": "apt install chromium",
    "postgresql": "apt install postgresql",
    "mild-gateway": "pip install . ./gateway",
    "psycopg": "pip install . './gateway[postgres]'",
    "opentelemetry": "pip install . './gateway[otel]'",
    "openssl": "apt install openssl",
    "nginx": "apt install nginx-light",
    "caddy": "apt install caddy",
    "openai": "pip install openai",
    "anthropic": "pip install anthropic",
    "real model": "make test-real",
    "cuda": "run on a machine with a CUDA GPU",
    "encoder": "pip install '.[encoder]'",
    "ray": "pip install '.[ray]'",
    "torch": "pip install '.[neural]'",
}


@pytest.fixture(scope="session")
def anyio_backend():
    """The library that runs tests and fixtures that are coroutine functions."""
    return "asyncio"


def pytest_collection_modifyitems(items):
    """Files with slow tests first, so that none is left for the end."""
    files = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in files)


def pytest_terminal_summary(terminalreporter):
    """Print the time by group of tests, and what was skipped by reason, with what to install."""
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration"):
                seconds[group_of(report.nodeid)] += report.duration
    if seconds.total() > SHOWN_FROM:
        terminalreporter.section(f"{seconds.total():.0f} s by group of tests, over all workers")
        for group, time in seconds.most_common():
            terminalreporter.write_line(f"{time:7.1f}  {group}")
    reasons = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            reasons[report.longrepr[2].removeprefix("Skipped: ")] += 1
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {with_remedy(reason)}")


def group_of(nodeid):
    """``tests/core`` for a test of a package; ``src``, ``docs`` or ``README.md`` for an example."""
    path = nodeid.partition("::")[0]
    if path == "":
        # The gateway's suite also runs examples of docs and experiments, which are not in its folder.
        return "docs and experiments"
    parts = path.split("/")
    if parts[0] == "tests":
        return "/".join(parts[:2])
    return parts[0]


def with_remedy(reason):
    """The reason of a skip, and what to install where that is known and not said in it."""
    for word, remedy in REMEDIES.items():
        if re.search(rf"\b{word}\b", reason.lower()):
            return reason if remedy in reason else f"{reason} ({remedy})"
    return reason
