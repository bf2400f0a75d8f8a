"""Claim: with everything on, the gateway serves 0.14 of a bare relay, and 9.8 times LiteLLM's proxy.

Everything on: a router with hashed text features, a key with a budget, the ledger, metrics. Some of the
bars are higher. They are for the medians of the rounds, with one core for the gateway:

- on SQLite: requests/s at 32 connections at least 0.23 of the bare relay's; start at most 1.3 s;
- on SQLite, and on PostgreSQL, which syncs every commit: added p50 at most 4 and 6 ms, one request at a
  time; memory of a worker at most 110 MB after the load;
- on PostgreSQL: at least half of SQLite's rate;
- a cascade on SQLite that asks two experts at the same time and then a third: at most 6 ms more at p50 than
  two calls of the expert, one after the other;
- at least 12 times the rate of LiteLLM's proxy, which checks a key and has nothing else on.

The bare relay is plain ASGI on uvicorn with aiohttp as its client. Servers have one core for themselves;
the mock expert, the load client and PostgreSQL have another.

    python -m benchmarks.gateway --litellm .venv-clients/bin/python
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gateway_files import (
    free_port,
    save_cascade,
    save_router,
    serving_memory,
    serving_seconds,
    started,
    write_settings,
)
from benchmarks.measure import Report, environment

sys.path.append(str(Path(__file__).parent.parent / "gateway" / "tests"))

CONNECTIONS = 32
# What is asked: connections, requests, streamed.
PARTS = {"one": (1, 2000, False), "many": (CONNECTIONS, 8000, False), "stream": (1, 600, True)}
SQLITE, POSTGRES, CASCADE, RELAY, LITELLM = (
    "mild, SQLite",
    "mild, PostgreSQL",
    "cascade",
    "bare relay",
    "LiteLLM's proxy",
)
# Of the requests of the others: it takes that much longer.
LITELLM_SHARE = 0.1
EXPERTS = ("small", "middle", "large")
PACKAGES = ("uvloop", "httptools", "uvicorn", "starlette", "aiohttp", "sqlalchemy", "psycopg")

# By part and figure: one value a round.
Figures = dict[tuple[str, str], list[float]]


# A Python that has litellm[proxy]: that of ``make test-clients``.
CLIENTS = Path(__file__).parent.parent / ".venv-clients" / "bin" / "python"


def run(repeat: int = 3, share: float = 1.0, litellm: str | None = None) -> Report:
    """Measure and return the table; ``share`` shortens every part, ``litellm`` is a Python that has it."""
    if litellm is None and CLIENTS.exists():
        litellm = str(CLIENTS)
    report = Report("The gateway", [_note(repeat)])
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        # Whatever is started without other orders, PostgreSQL among it, leaves the first core alone.
        stack.callback(os.sched_setaffinity, 0, cores)
        os.sched_setaffinity(0, {max(cores)})
        setup = _Setup(Path(name), stack, min(cores), report)
        direct = setup.start(_part("upstream", setup.upstream), setup.upstream, {max(cores)})
        servers = {
            "direct": direct,
            RELAY: setup.start_relay(),
            SQLITE: setup.start_sqlite(repeat),
            POSTGRES: setup.start_postgres(),
            CASCADE: setup.start_cascade(),
            LITELLM: setup.start_litellm(litellm),
        }
        found = {name: one for name, one in servers.items() if one is not None}
        figures = _measure(found, setup.key, repeat, share)
    _add_rows(report, figures, setup.start_seconds)
    return report


class _Setup:
    """Starts the servers, all but the mock expert on one core."""

    def __init__(
        self, folder: Path, stack: contextlib.ExitStack, core: int, report: Report
    ) -> None:
        self._folder = folder
        self._stack = stack
        self._core = core
        self._report = report
        self.upstream = free_port()
        self.key = "sk-benchmark"
        self.start_seconds: list[float] = []

    def start(
        self, command: list[str], port: int, cores: set[int] | None = None
    ) -> tuple[int, int]:
        """Port and process id of a server that answers."""
        cores = cores or {self._core}
        return port, self._stack.enter_context(started(command, port, cores))[0]

    def start_relay(self) -> tuple[int, int]:
        """The yardstick."""
        port = free_port()
        return self.start(_part("relay", port, self.upstream), port)

    def start_sqlite(self, repeat: int) -> tuple[int, int]:
        """The gateway on SQLite, which is started ``repeat`` times; the last of them serves."""
        save_router(self._folder / "router", EXPERTS)
        command, port = self._gateway("sqlite", f"{self._folder}/store.sqlite")
        for _ in range(repeat):
            with started(command, port, {self._core}) as (_, seconds):
                self.start_seconds.append(seconds)
        return self.start(command, port)

    def start_cascade(self) -> tuple[int, int]:
        """The gateway on SQLite with a cascade that never accepts before its last step."""
        save_cascade(self._folder / "router", self._folder / "cascade-router")
        store = f"{self._folder}/cascade.sqlite"
        return self.start(*self._gateway("cascade", store, "cascade-router"))

    def start_postgres(self) -> tuple[int, int] | None:
        """The gateway with keys, budgets and ledger in PostgreSQL; None where that is not installed."""
        from postgres_cases import Server, why_not

        if why_not() is not None:
            self._report.notes.append(f"PostgreSQL was left out: {why_not()}.")
            return None
        server = Server(fsync="on")
        self._stack.callback(server.close)
        with server.connect() as connection:
            connection.execute("ALTER SYSTEM SET full_page_writes = on")
            connection.execute("SELECT pg_reload_conf()")
        server.empty()
        with server.connect() as connection:
            names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
            version, *settings = (
                f"{name} {connection.execute(f'SHOW {name}').fetchone()[0]}" for name in names
            )
        self._report.notes.append(f"PostgreSQL: {version}, {', '.join(settings)}.")
        return self.start(*self._gateway("postgres", server.url("test")))

    def start_litellm(self, python: str | None) -> tuple[int, int] | None:
        """LiteLLM's proxy with one worker and one model; None without a Python that has it."""
        if python is None:
            self._report.notes.append(
                "LiteLLM was left out: --litellm names no Python that has it."
            )
            return None
        ask = "import importlib.metadata as found; print(found.version('litellm'))"
        version = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
        self._report.notes.append(f"LiteLLM: {version.stdout.strip()}.")
        port, config = free_port(), self._folder / "litellm.json"
        expert = {"model": "openai/mock", "api_base": self._url, "api_key": "none"}
        document = {
            "model_list": [{"model_name": "mild", "litellm_params": expert}],
            "general_settings": {"master_key": self.key},
            "litellm_settings": {"telemetry": False},
        }
        # JSON is YAML.
        config.write_text(json.dumps(document), encoding="utf-8")
        code = "from litellm.proxy.proxy_cli import run_server; run_server()"
        variables = ["LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR"]
        command = ["env", *variables, python, "-c", code, "--config", str(config)]
        return self.start([*command, "--host", "127.0.0.1", "--port", str(port)], port)

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.upstream}/v1"

    def _gateway(self, name: str, store: str, router: str = "router") -> tuple[list[str], int]:
        """Command and port of a gateway whose store has the key."""
        from mild_gateway.access import AccessStore
        from mild_gateway.access.keys import Key, digest_of, hint_of
        from mild_gateway.config import read_settings

        folder, port = self._folder / name, free_port()
        folder.mkdir()
        (folder / "router").symlink_to(self._folder / router)
        access = ["[access]", "require_key = true", "budget_day = 1000000.0"]
        lines = [f"port = {port}", f'store = "{store}"', *access]
        file = write_settings(folder, EXPERTS, self._url, lines)
        # It may have a password.
        file.chmod(0o600)
        keys = AccessStore(read_settings(file).store)
        keys.open()
        digest, hint = digest_of(self.key, keys.salt()), hint_of(self.key)
        keys.add_key(Key("bench", digest, hint, time.time(), budget_month=10**18))
        keys.close()
        options = json.dumps({"config": str(file)})
        return [sys.executable, "-m", "mild_gateway.server", options], port


def _measure(
    servers: dict[str, tuple[int, int]], key: str, repeat: int, share: float
) -> dict[str, Figures]:
    """Every server in every part, in turn, ``repeat`` times: what disturbs one disturbs all."""
    figures: dict[str, Figures] = {name: {} for name in servers}
    for port, _ in servers.values():
        _load(port, 4, 100, False, key)
    for _ in range(repeat):
        for part, (connections, count, streamed) in PARTS.items():
            for name, (port, pid) in servers.items():
                asked = max(50, int(count * share * (LITELLM_SHARE if name == LITELLM else 1)))
                before = serving_seconds(pid)
                found = _load(port, connections, asked, streamed, key)
                found["cpu"] = (serving_seconds(pid) - before) / asked * 1000
                found["memory"] = serving_memory(pid)
                for figure, value in found.items():
                    figures[name].setdefault((part, figure), []).append(value)
    return figures


def _load(port: int, connections: int, count: int, streamed: bool, key: str) -> dict[str, float]:
    command = _part("load", port, connections, count, streamed, key)
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(found.stdout)
    return figures


def _part(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gateway_parts", *map(str, arguments)]


def _add_rows(report: Report, figures: dict[str, Figures], start_seconds: list[float]) -> None:
    """The bars, and behind them what they were computed from."""

    def against(name: str, other: str, figure: tuple[str, str]) -> Iterator[tuple[float, float]]:
        """A figure of two servers, round by round."""
        return zip(figures[name][figure], figures[other][figure], strict=True)

    def added(name: str, part: str = "one", calls: int = 1) -> list[float]:
        """Milliseconds more than asking directly, so many times."""
        pairs = against(name, "direct", (part, "p50"))
        return [(one - calls * two) * 1000 for one, two in pairs]

    def over(name: str, other: str) -> list[float]:
        """Requests/s over the other's."""
        return [one / two for one, two in against(name, other, ("many", "rate"))]

    ours, theirs = [name for name in figures if name.startswith("mild")], "requests/s over those of"
    _add(report, f"{SQLITE}: {theirs} the {RELAY}", over(SQLITE, RELAY), least=0.23)
    for name in ours:
        most = 6.0 if name == POSTGRES else 4.0
        _add(report, f"{name}: added p50", added(name), "ms", most=most)
        memory = figures[name]["stream", "memory"]
        _add(report, f"{name}: memory of a worker after the load", memory, "MB", most=110)
    _add(report, f"{SQLITE}: start to ready", start_seconds, "s", most=1.3)
    if POSTGRES in figures:
        _add(report, f"{POSTGRES}: {theirs} SQLite", over(POSTGRES, SQLITE), least=0.5)
    what = f"{CASCADE}: p50 added by two calls at the same time and an escalation"
    _add(report, what, added(CASCADE, calls=2), "ms", most=6.0)
    if LITELLM in figures:
        _add(report, f"{SQLITE}: {theirs} {LITELLM}", over(SQLITE, LITELLM), least=12)
    report.unit = "requests/s"
    report.contenders = {
        name: figures[name]["many", "rate"]
        for name in (SQLITE, POSTGRES, RELAY, LITELLM)
        if name in figures
    }
    for name in figures:
        _add(
            report, f"{name}: requests/s, {CONNECTIONS} connections", figures[name]["many", "rate"]
        )
        if name == "direct":
            continue
        _add(report, f"{name}: processor time of those", figures[name]["many", "cpu"], "ms")
        streamed = added(name, "stream")
        _add(report, f"{name}: p50 added to the first streamed byte", streamed, "ms")
        if name not in (*ours, CASCADE):
            _add(report, f"{name}: p50 added to asking directly", added(name), "ms")
            _add(report, f"{name}: memory", figures[name]["stream", "memory"], "MB")


def _add(
    report: Report,
    what: str,
    values: list[float],
    unit: str = "",
    least: float | None = None,
    most: float | None = None,
) -> None:
    """A row: the median of the rounds and their range, and the bar that the median must keep."""
    middle = statistics.median(values)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    shown, low, high = (f"{one:,.{digits}f}" for one in (middle, min(values), max(values)))
    figure = f"{shown} {unit}".strip() + f" ({low} to {high})"
    if least is not None:
        report.add(what, figure, f"≥ {least:g} {unit}".strip(), middle >= least)
    elif most is not None:
        report.add(what, figure, f"≤ {most:g} {unit}".strip(), middle <= most)
    else:
        report.add(what, figure)


def _note(repeat: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    # ARM has no such line.
    processor = next(named, platform.machine())
    return (
        f"Medians of {repeat} interleaved rounds (range), servers pinned to one core, the mock expert, the "
        f"load client and PostgreSQL to another. Load of the machine over 1, 5 and 15 minutes before: "
        f"{load}. {processor}, {environment(PACKAGES)}."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=3, help="rounds")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests of a full run")
    parser.add_argument("--litellm", metavar="PYTHON", help="a Python that has litellm[proxy]")
    print(run(**vars(parser.parse_args())).markdown())
