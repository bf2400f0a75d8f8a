"""The command ``mild`` as a user has it, a gateway that it serves, and clients of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from journeys import adapter
from waiting import PATIENCE, wait_until

MILD = Path(sys.executable).with_name("mild")
# Seconds that a command, or all that is asked at once, may take on a machine that is busy.
LONGEST = 600


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def figures(self) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.out)


def environment() -> dict[str, str]:
    """One thread for each process: there are several of them."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def mild(folder: Path, words: Sequence[str], codes: Sequence[int] = (0,)) -> Finished:
    """Run ``mild WORDS`` in a folder; it must end with one of the codes, and never with a traceback."""
    done = subprocess.run(
        [MILD, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )
    assert done.returncode in codes, f"mild {' '.join(words)}: {done.returncode}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return Finished(done.returncode, done.stdout, done.stderr)


@dataclass
class Gateway:
    """A gateway that ``mild serve`` runs."""

    process: subprocess.Popen[bytes]
    address: str

    @property
    def routers(self) -> set[str]:
        """Fingerprints of the routers that serve, as its workers last said."""
        with urllib.request.urlopen(self.address + adapter.STATUS, timeout=PATIENCE) as response:
            return adapter.serving_routers(json.load(response))

    def stop(self, how: int = signal.SIGTERM) -> int:
        """Send it a signal, and wait for its exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)


@contextmanager
def served(folder: Path, words: Sequence[str] | None = None) -> Iterator[Gateway]:
    """The gateway of a folder, stopped at the end; what it prints is in ``serve.log`` there."""
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [MILD, *(words or adapter.serve())],
            cwd=folder,
            env=environment(),
            stdout=log,
            stderr=log,
        )
    try:

        def port() -> int | None:
            said = (folder / "serve.log").read_text()
            assert process.poll() is None, said
            return adapter.served_port(said)

        yield Gateway(process, f"http://127.0.0.1:{wait_until(port)}")
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(PATIENCE)


@dataclass
class Answer:
    """An answer of the gateway."""

    status: int
    headers: dict[str, str]
    document: Any


def post_all(url: str, bodies: Sequence[Any], parallel: int = 8) -> list[Answer]:
    """Send bodies, so many at a time; the answers in the order of the bodies."""

    async def post(session: aiohttp.ClientSession, places: asyncio.Semaphore, body: Any) -> Answer:
        async with places, session.post(url, json=body) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, headers, await response.json())

    async def run() -> list[Answer]:
        places = asyncio.Semaphore(parallel)
        timeout = aiohttp.ClientTimeout(total=LONGEST)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return await asyncio.gather(*[post(session, places, body) for body in bodies])

    return asyncio.run(run())
