"""A gateway in a thread of its own, for clients that block."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

from fake_upstream import FakeUpstream
from gateway_cases import expert, gateway
from waiting import PATIENCE


@contextlib.contextmanager
def served(api="openai"):
    """A gateway with one expert, ``small``, which speaks an API: ``url``, ``g``, ``up``."""
    started, ended = threading.Event(), threading.Event()
    found = SimpleNamespace()

    async def serve():
        more = {"api": api, "embeddings": api == "openai"}
        # One gateway serves all tests of a module, and some of them break its expert.
        async with (
            FakeUpstream() as up,
            gateway([expert("small", up, **more)], routing={"max_attempts": 1}) as g,
        ):
            found.url, found.g, found.up = f"http://127.0.0.1:{g.port}", g, up
            started.set()
            while not ended.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield found
    finally:
        ended.set()
        thread.join()
