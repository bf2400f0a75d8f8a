"""A program run once: text in, text out, in a limited time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from mild_gateway.experts.errors import ExpertError

# Of what a program prints no more is kept.
MOST_OUTPUT = 1_000_000


async def run_program(words: Sequence[str], text: str, timeout_s: float) -> str:
    """What the program prints when it reads the text; raises ExpertError if it does not end well.

    It runs without a shell, in a session of its own: Ctrl-C does not reach it, and what it started
    ends with it when its time is over.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        detail = f"{words[0]} cannot be run: {reason}"
        raise ExpertError("connect", detail, permanent=True) from error
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate(text.encode("utf-8", "replace"))
    except TimeoutError:
        detail = f"{words[0]} took longer than {timeout_s:g} s"
        raise ExpertError("timeout", detail, may_cost=False) from None
    finally:
        if process.returncode is None:
            await _end(process)
    if process.returncode:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        message = "no message"
        if lines:
            message = lines[-1][:300]
        raise ExpertError("client_error", f"exit code {process.returncode}: {message}")
    return out[:MOST_OUTPUT].decode("utf-8", "replace").strip()


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
