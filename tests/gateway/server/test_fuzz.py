"""Bodies that nobody would write: no 500, no hang, memory flat."""

import asyncio
import copy
import json
import random
import tracemalloc

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import Client, chat, expert, gateway, request_bytes

SEEDS = [
    chat(),
    chat(stream=True, stream_options={"include_usage": False}),
    chat(model="router-mild-0.5", max_tokens=10, n=2, user="u"),
    chat([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:x"}}]),
    {"model": "small", "prompt": ["a", "b"], "stream": True, "best_of": 3},
]
ODD = [
    None,
    True,
    -1,
    0,
    1e308,
    10**400,
    "",
    "x" * 5000,
    "\ud800",
    "\x00",
    "router-mild-1e999",
    "router-mild--",
    [],
    {},
    [[]],
    [None],
    {"role": "user"},
    {"content": [{"text": 5}]},
    {"include_usage": []},
    "data:" * 10,
]
PATHS = ["/v1/chat/completions", "/v1/completions", "/v1/route"]


def mutated(rng):
    """A body that differs from a good one in a few places, as JSON or as bytes."""
    document = json.loads(json.dumps(rng.choice(SEEDS)))
    for _ in range(rng.randint(0, 3)):
        place = document
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = rng.choice(list(keys))
            if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.6:
                place = place[key]
                continue
            place[key] = copy.deepcopy(rng.choice(ODD))
            break
    extra = rng.choice(["messages", "stream", "stream_options", "user", "n", "x", "prompt"])
    if rng.random() < 0.3:
        document[extra] = copy.deepcopy(rng.choice(ODD))
    body = bytearray(
        json.dumps(document, ensure_ascii=rng.random() < 0.8).encode("utf-8", "replace")
    )
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(body) + 1)
            how = rng.random()
            if how < 0.4 and place < len(body):
                body[place] = rng.randrange(256)
            elif how < 0.7:
                del body[place : place + rng.randint(1, 9)]
            else:
                body[place:place] = rng.choice(
                    [b'"', b"{", b"[" * 50, b"\\u", b"\xff", b"1e9", b":"]
                )
    return bytes(body)


async def press(port, count, rng, statuses):
    done = 0
    while done < count:
        async with Client(port) as client:
            for _ in range(min(50, count - done)):
                done += 1
                data = request_bytes(mutated(rng), rng.choice(PATHS))
                client.send(data)
                found = await asyncio.wait_for(client.answer(), 20)
                statuses[found.status] = statuses.get(found.status, 0) + 1
                if not found.whole or found.headers.get("connection") == "close":
                    break


def fuzz(count, seed):
    statuses = {}

    async def run():
        async with (
            FakeUpstream(keep_bodies=False) as up,
            gateway([expert("small", up), expert("large", up)]) as g,
        ):
            rng = random.Random(seed)
            await press(g.port, count // 10, rng, {})
            g.ledger.records.clear()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            await asyncio.gather(*(press(g.port, count // 4, rng, statuses) for _ in range(4)))
            g.ledger.records.clear()
            await asyncio.sleep(0.05)
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return (
                grown,
                g.app.in_flight,
                {name: d.capacity.in_flight for name, d in g.app.desks.items()},
            )

    return *asyncio.run(run()), statuses


def check(count, seed):
    grown, in_flight, places, statuses = fuzz(count, seed)
    assert set(statuses) <= {200, 400, 404, 413, 422}, statuses
    assert statuses[200] > count / 20
    assert statuses[400] > count / 20
    assert in_flight == 0
    assert places == {"small": 0, "large": 0}
    assert grown < 3_000_000


def test_mutated_bodies_are_answered_or_refused():
    check(600, 1)


@pytest.mark.slow
def test_ten_thousand_mutated_bodies_are_answered_or_refused():
    check(10_000, 2)
