"""Bodies, headers and paths that nobody would write: no 500, no hang, memory flat.

``python -m benchmarks.fuzz`` sends many more of them, to a gateway in a process of its own.
"""

import asyncio
import json
import random
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.fuzzing.bodies import ENDPOINTS, mutated_body, mutated_headers, mutated_path
from benchmarks.fuzzing.schema import any_body, good_body
from fake_upstream import FakeUpstream
from gateway_cases import Client, chat, expert, gateway, idle, request_bytes
from waiting import PATIENCE

NAMES = ("small", "large")


def experts(up):
    """One of each API."""
    return [expert("small", up, embeddings=True), expert("large", up, api="anthropic")]


async def press(port, count, rng, statuses):
    done = 0
    while done < count:
        async with Client(port) as client:
            for _ in range(min(50, count - done)):
                done += 1
                data = request_bytes(mutated_body(rng), rng.choice(ENDPOINTS))
                client.send(data)
                found = await asyncio.wait_for(client.answer(), PATIENCE)
                statuses[found.status] = statuses.get(found.status, 0) + 1
                if not found.whole or found.headers.get("connection") == "close":
                    break


def fuzz(count, seed, traced):
    statuses = {}

    async def run():
        async with (
            FakeUpstream(keep_bodies=False) as up,
            gateway(experts(up)) as g,
        ):
            rng = random.Random(seed)
            await press(g.port, count // 10, rng, {})
            g.ledger.records.clear()
            if traced:
                tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await asyncio.gather(*(press(g.port, count // 4, rng, statuses) for _ in range(4)))
            g.ledger.records.clear()
            await idle(g)
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return (
                grown,
                g.app.in_flight,
                {name: d.limiter.in_flight for name, d in g.app.clients.items()},
            )

    return *asyncio.run(run()), statuses


def check(count, seed, traced):
    grown, in_flight, places, statuses = fuzz(count, seed, traced)
    assert set(statuses) <= {200, 400, 404, 413, 422}, statuses
    assert statuses[200] > count / 20
    assert statuses[400] > count / 20
    assert in_flight == 0
    assert places == {"small": 0, "large": 0}
    assert grown < 3_000_000


def test_mutated_bodies_are_answered_or_refused():
    check(600, 1, traced=True)


@pytest.mark.slow
def test_thousands_of_mutated_bodies_are_answered_or_refused():
    # Tracing the memory would take minutes; `python -m benchmarks.fuzz` sends more.
    check(10_000, 2, traced=False)


@pytest.fixture(scope="module")
def served():
    """A gateway that lives as long as this module's tests: asks one body, and gives status and answer."""
    with asyncio.Runner() as runner:

        async def start():
            up = FakeUpstream(keep_bodies=False)
            await up.__aenter__()
            made = gateway([expert(name, up) for name in NAMES])
            return up, made, await made.__aenter__()

        up, made, g = runner.run(start())

        def send(data, method="POST"):
            async def one():
                async with Client(g.port) as client:
                    client.send(data)
                    found = await asyncio.wait_for(client.answer(method), PATIENCE)
                    closed = not found.whole or found.headers.get("connection") == "close"
                    after = None
                    if not closed:
                        after = await asyncio.wait_for(client.ask(chat(), "/v1/route"), PATIENCE)
                    return found, after

            return runner.run(one())

        yield send
        runner.run(made.__aexit__(None, None, None))
        runner.run(up.__aexit__(None, None, None))


drawn = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@drawn
@given(case=good_body())
def test_every_body_of_the_schema_is_served(served, case):
    path, document = case
    found, after = served(request_bytes(document, path))
    assert found.status == 200
    assert found.whole
    assert after.status == 200


@drawn
@given(case=any_body())
def test_every_other_body_is_answered_with_its_reason(served, case):
    path, document = case
    found, after = served(request_bytes(document, path))
    assert found.status in (200, 400, 404)
    if found.status != 200:
        assert json.loads(found.body)["error"]["message"]
    assert after.status == 200


def test_mutated_headers_reach_nobody(served):
    rng = random.Random(3)
    statuses = set()
    for _ in range(200):
        lines = b"".join(line + b"\r\n" for line in mutated_headers(rng))
        data = request_bytes(chat(), "/v1/route").replace(b"\r\n\r\n", b"\r\n" + lines + b"\r\n", 1)
        found, _ = served(data)
        statuses.add(found.status)
        assert "x-evil" not in found.headers
    assert {200, 400} <= statuses <= {200, 400, 401, 403, 404, 405, 413, 431}


OPEN_PATHS = (b"/health", b"/health/live", b"/health/ready", b"/v1/models")


def test_mutated_paths_find_nothing(served):
    rng = random.Random(4)
    statuses = set()
    for _ in range(200):
        method, path = mutated_path(rng)
        data = method + b" " + path + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n"
        found, _ = served(data, method.decode())
        statuses.add(found.status)
        if found.status == 200:
            assert path.partition(b"?")[0].partition(b"#")[0] in OPEN_PATHS
    assert 404 in statuses
    assert max(statuses) < 500


def test_one_request_behind_all_of_it_is_served(served):
    found, _ = served(request_bytes(chat()))
    assert found.status == 200
