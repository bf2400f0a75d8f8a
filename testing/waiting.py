"""Wait for what another task, thread or process does, however busy the machine is."""

from __future__ import annotations

import asyncio
import inspect
import time

# Seconds after which a test gives up. A test that passes does not wait so long, on a busy machine either.
PATIENCE = 120.0
# Seconds between two looks at a condition, and at one that asks another process.
PAUSE = 0.005
PAUSE_BETWEEN_REQUESTS = 0.05


async def until(condition, patience=PATIENCE, pause=PAUSE):
    """What the condition returns, once that is true; it may be a coroutine function."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(pause)


def wait_until(condition, patience=PATIENCE):
    """The same for tests without a loop."""
    end = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
