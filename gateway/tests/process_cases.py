"""A gateway in processes of its own, as ``mild serve`` starts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from types import SimpleNamespace

from gateway_cases import priced_router
from mild.artifact import save
from waiting import PATIENCE


def write_files(folder, experts, router=None, extra="", workers=1, port=0):
    """``mild.toml`` and ``router`` in a folder; experts are (name, base_url, more lines)."""
    names = tuple(name for name, *_ in experts)
    if router is None:
        router = priced_router(
            names, tuple(0.1 * (k + 1) for k in range(len(names))), (0.01,) * len(names)
        )
    save(router, folder / "router", overwrite=True)
    lines = ['router = "router"', f"port = {port}", f"workers = {workers}", extra]
    for name, url, *more in experts:
        lines += [f"[experts.{name}]", f'base_url = "{url}"', f'model = "{name}-model"', *more]
    (folder / "mild.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def is_worker(pid):
    """Whether a child process is one of uvicorn's workers: multiprocessing has a helper beside them."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"spawn_main" in file.read()
    except FileNotFoundError:
        return False


@contextlib.asynccontextmanager
async def served(folder, **options):
    """A served folder: ``port``, ``process``, ``workers()``, ``stop()``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    given = {"config": str(folder / "mild.toml"), **options}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "mild_gateway.server",
        json.dumps(given),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        if not line:
            error = (await process.stderr.read()).decode()
            raise RuntimeError(f"exit {await process.wait()}: {error}")
        port = int(line.split("://127.0.0.1:")[1].split()[0].rstrip("/"))

        async def stop():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            return await asyncio.wait_for(process.wait(), PATIENCE)

        def workers():
            """Process ids of the workers; one worker is the process itself."""
            path = f"/proc/{process.pid}/task/{process.pid}/children"
            with open(path, encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
            return [pid for pid in children if is_worker(pid)] or [process.pid]

        yield SimpleNamespace(
            port=port,
            process=process,
            stop=stop,
            workers=workers,
            line=line,
        )
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        # Read what is left, so that the pipes are closed with the loop.
        await process.communicate()
