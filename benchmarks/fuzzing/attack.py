"""Everything that a client can do wrong, against a gateway on a port; answers are judged as they come."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from urllib.parse import unquote

from benchmarks.fuzzing.bodies import (
    ENDPOINTS,
    PATHS,
    garbage,
    mutated_body,
    mutated_headers,
    mutated_path,
)
from benchmarks.fuzzing.parts import Answer, Client, request

__all__ = ["GOOD", "MOST_BYTES", "NAMES", "Fuzz"]

NAMES = ("small", "large")
GOOD = json.dumps({"model": "mild", "messages": [{"role": "user", "content": "2 + 2?"}]}).encode()
MOST_BYTES = 200_000
# Longer than anything may take; an answer that has not come by then is a hang.
PATIENCE = 30.0
# Headers of the gateway's answers; any other was smuggled in or reflected.
REPLY_HEADERS = {
    "allow",
    "cache-control",
    "connection",
    "content-length",
    "content-security-policy",
    "content-type",
    "retry-after",
    "transfer-encoding",
    "www-authenticate",
    "x-accel-buffering",
    "x-content-type-options",
    "x-mild-expected-cost",
    "x-mild-expert",
    "x-mild-overhead-ms",
    "x-mild-request-id",
    "x-request-id",
}


class Fuzz:
    """One run: what was answered, and what should not have been."""

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.random = Random(seed)
        self.statuses: dict[str, Counter[int]] = {}
        self.slowest: dict[str, float] = {}
        self.wrong: list[str] = []

    async def send(
        self, what: str, client: Client, data: bytes, has_body: bool = True
    ) -> Answer | None:
        """Send one request; its answer, or None if none came in time."""
        start = time.perf_counter()
        try:
            answer = await asyncio.wait_for(client.ask(data, has_body), PATIENCE)
        except TimeoutError:
            self.wrong.append(f"{what}: no answer to {data[:200]!r}")
            return None
        taken = time.perf_counter() - start
        self.slowest[what] = max(self.slowest.get(what, 0.0), taken)
        self.statuses.setdefault(what, Counter())[answer.status] += 1
        if answer.status >= 500:
            self.wrong.append(f"{what}: {answer.status} to {data[:300]!r}")
        unknown_headers = sorted(set(answer.headers) - REPLY_HEADERS)
        if unknown_headers:
            self.wrong.append(f"{what}: headers {unknown_headers}")
        if answer.status >= 400 and has_body and not _is_refusal(answer.body):
            self.wrong.append(f"{what}: {answer.status} without a reason: {answer.body[:200]!r}")
        return answer

    async def many(self, count: int, part: Callable[[int], Awaitable[None]], side: int = 8) -> None:
        """Run a part ``count`` times in all, some side by side."""
        shares = [count // side + (place < count % side) for place in range(side)]
        await asyncio.gather(*(part(share) for share in shares))

    async def bodies(self, count: int) -> None:
        """Mutated bodies, many on a connection."""
        while count > 0:
            async with Client(self.port) as client:
                for _ in range(min(50, count)):
                    count -= 1
                    body = mutated_body(self.random)
                    data = request(self.random.choice(ENDPOINTS), body)
                    answer = await self.send("mutated bodies", client, data)
                    if answer is None or answer.closes:
                        break

    async def headers(self, count: int) -> None:
        """Mutated headers; behind them, a request that must be answered as if nothing had been."""
        for _ in range(count):
            more = mutated_headers(self.random)
            async with Client(self.port) as client:
                data = request(self.random.choice(ENDPOINTS), GOOD, more)
                # The next request may be taken for a body that was announced.
                answer = await self.send("mutated headers", client, data)
                lengths = b"\r\n".join(more).lower()
                framed = b"content-length" in lengths or b"transfer-encoding" in lengths
                if answer is None or answer.closes or not answer.status or framed:
                    continue
                if b"\r\n\r\n" in lengths:
                    # What stands behind an empty line is another request, and no header.
                    continue
                after = await self.send("behind headers", client, request("/v1/route", GOOD))
                if after is None or after.status != 200:
                    self.wrong.append(f"behind {data[:300]!r}: {after}")

    async def paths(self, count: int) -> None:
        """Paths that are nearly ours find nothing."""
        for _ in range(count):
            method, path = mutated_path(self.random)
            body = GOOD if method in (b"POST", b"PUT", b"PATCH") else b""
            async with Client(self.port) as client:
                data = request(path, body, method=method)
                answer = await self.send("mutated paths", client, data, method != b"HEAD")
                if answer is not None and answer.status == 200 and not _is_ours(path):
                    self.wrong.append(f"path {path!r} found something")

    async def bytes(self, count: int) -> None:
        """Bytes that are no HTTP: refused and closed, or cut when their time is over."""
        for _ in range(count):
            data = garbage(self.random, request("/v1/chat/completions", GOOD))
            start = time.perf_counter()
            async with Client(self.port) as client:
                answer = await self.send("bytes", client, data)
                if answer is None or answer.closes:
                    continue
                # Answered: the connection is then idle, and closed by its own clock.
            self.slowest["bytes"] = max(self.slowest["bytes"], time.perf_counter() - start)

    async def long(self, count: int) -> None:
        """Bodies over the limit answer 413, whether or not they say so."""
        big = b"x" * (MOST_BYTES + 1)
        chunked = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x.localhost\r\n"
        chunked += b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(big), big)
        for place in range(count):
            async with Client(self.port) as client:
                data = request(ENDPOINTS[place % 3], big) if place % 2 else chunked
                answer = await self.send("bodies over the limit", client, data)
                if answer is not None and answer.status != 413:
                    self.wrong.append(f"{answer.status} to a body over the limit")

    async def slow(self, count: int) -> None:
        """A byte now and then: cut when the time is over, however many come."""
        for _ in range(count):
            start = time.perf_counter()
            whole = request("/v1/chat/completions", GOOD)
            sent = self.random.choice((4, whole.index(b"\r\n\r\n") + 10))
            async with Client(self.port) as client:
                client.writer.write(whole[:sent])
                rest = asyncio.create_task(client.reader.read())
                while not rest.done() and time.perf_counter() - start < PATIENCE:
                    if sent < len(whole) - 1:
                        client.writer.write(whole[sent : sent + 1])
                        sent += 1
                    await asyncio.wait((rest,), timeout=0.2)
                taken = time.perf_counter() - start
                self.slowest["slow clients"] = max(self.slowest.get("slow clients", 0.0), taken)
                if not rest.done():
                    rest.cancel()
                    self.wrong.append("a slow client was not cut")
                    continue
                said = rest.result() if rest.exception() is None else b""
                status = int(said.split()[1]) if said else 0
                if status != 408:
                    self.wrong.append(f"a slow client was told {said[:200]!r}")
                self.statuses.setdefault("slow clients", Counter())[status] += 1

    async def schema(self, count: int, seed: int) -> None:
        """Bodies by the endpoints' schema: all that follow it are served, all others answered."""
        from hypothesis import HealthCheck, Phase, given, settings
        from hypothesis import seed as seeded

        from benchmarks.fuzzing.schema import any_body, good_body

        loop = asyncio.get_running_loop()

        def ask(what: str, path: str, document: object) -> Answer | None:
            async def one() -> Answer | None:
                async with Client(self.port) as client:
                    return await self.send(
                        what, client, request(path, json.dumps(document).encode())
                    )

            return asyncio.run_coroutine_threadsafe(one(), loop).result()

        def run() -> None:
            quiet = settings(
                max_examples=count // 2,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )

            @seeded(seed)
            @quiet
            @given(good_body())
            def good(case: tuple[str, dict[str, object]]) -> None:
                answer = ask("bodies by the schema", *case)
                if answer is None or answer.status != 200:
                    self.wrong.append(f"by the schema, not served: {case}: {answer}")

            @seeded(seed)
            @quiet
            @given(any_body())
            def anything(case: tuple[str, dict[str, object]]) -> None:
                ask("bodies beside the schema", *case)

            good()
            anything()

        await asyncio.to_thread(run)


def _is_refusal(body: bytes) -> bool:
    """Whether a body is an error as OpenAI's or Anthropic's API writes it."""
    try:
        answer = json.loads(body)
        error = answer["error"]
        has_message = isinstance(error["message"], str)
    except (ValueError, KeyError, TypeError):
        return False
    if answer.get("type") == "error":
        return has_message and set(error) == {"message", "type", "code"}
    return has_message and set(error) == {"message", "type", "param", "code"}


def _is_ours(path: bytes) -> bool:
    """Whether a path is one of ours, its query aside, or names a model that there is."""
    bare = path.partition(b"?")[0].partition(b"#")[0].decode("latin-1")
    name = unquote(bare.removeprefix("/v1/models/"))
    return bare in (*PATHS, "/health/live") or name in ("mild", *NAMES)
