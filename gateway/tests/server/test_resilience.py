"""Experts that are left alone, full or gone; connections that are kept; clients that leave."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    Client,
    ask,
    chat,
    expert,
    gateway,
    idle,
    request_bytes,
    rows,
    solo,
)
from mild_gateway.access import Access
from mild_gateway.config import Settings
from mild_gateway.experts.expert import BreakerSettings
from mild_gateway.server.calls import RequestCalls
from mild_gateway.shared import SharedMemory
from waiting import PATIENCE, until


async def test_a_dead_expert_is_left_alone_and_probed_again():
    breaker = BreakerSettings(failures=3, window_seconds=30, open_seconds=5)
    now = 1000.0
    async with FakeUpstream() as one, FakeUpstream() as two:
        experts = [expert("one", one, breaker=breaker, retries=0), expert("two", two)]
        async with gateway(experts, clock=lambda: now) as g:
            one.dead = True
            for _ in range(10):
                found = await ask(g.port, chat())
                assert found.headers["x-mild-expert"] == "two"
            attempts = sum(row.attempts for row in await rows(g, 10))
            state = g.app.clients["one"].state()
            one.dead = False
            now += 5.5
            found = await ask(g.port, chat())
            after = g.app.clients["one"].state()
    assert attempts == 13
    assert state == "open"
    assert found.headers["x-mild-expert"] == "one"
    assert after == "closed"


async def test_when_every_breaker_is_open_the_client_is_told_when_to_come_back():
    breaker = BreakerSettings(failures=1, window_seconds=30, open_seconds=20)
    async with (
        solo(FakeUpstream(script=["reset"] * 9), one={"breaker": breaker, "retries": 0}) as (
            one,
            g,
        ),
    ):
        first = await ask(g.port, chat())
        second = await ask(g.port, chat())
        records, asked = await rows(g, 2), one.asked
    assert first.status == 502
    assert second.status == 503
    assert 15 <= int(second.headers["retry-after"]) <= 20
    assert [row.outcome for row in records] == ["failed", "refused"]
    assert asked == 1


async def test_the_limit_of_requests_in_flight_holds_over_the_workers():
    async with FakeUpstream(held=True) as up:
        experts = [expert("one", up)]
        settings = Settings(tuple(experts), workers=2)
        memory = SharedMemory(settings)
        both = {"limits": {"max_in_flight": 3}, "workers": 2, "shared": memory}
        alone = Settings(tuple(experts))
        async with (
            gateway(experts, access=Access(alone), worker=0, **both) as first,
            gateway(experts, access=Access(alone), worker=1, **both) as second,
        ):
            asked = [asyncio.create_task(ask(first.port, chat())) for _ in range(2)]
            await until(lambda: up.in_flight == 2)
            asked += [asyncio.create_task(ask(second.port, chat())) for _ in range(2)]
            await until(lambda: up.in_flight == 3 and any(task.done() for task in asked))
            health = await ask(second.port, None, "/health", "GET")
            up.held = False
            found = [(await one).status for one in asked]
            health, after = json.loads(health.body), (await ask(second.port, chat())).status
    assert sorted(found) == [200, 200, 200, 429]
    assert health["in_flight"] == 3
    assert after == 200


async def test_capacity_enters_the_choice_and_overload_is_shed():
    async with FakeUpstream(held=True) as one, FakeUpstream(held=True) as two:
        experts = [expert("one", one, max_in_flight=2), expert("two", two, max_in_flight=1)]
        async with gateway(experts) as g:
            asked = [asyncio.create_task(ask(g.port, chat())) for _ in range(6)]
            await until(lambda: sum(task.done() for task in asked) == 3)
            await until(lambda: one.in_flight + two.in_flight == 3)
            one.held = two.held = False
            found = await asyncio.gather(*asked)
            most_one, most_two, records = one.most_in_flight, two.most_in_flight, await rows(g, 6)
    assert sorted(answer.status for answer in found) == [200] * 3 + [429] * 3
    assert (most_one, most_two) == (2, 1)
    shed = next(answer for answer in found if answer.status == 429)
    assert json.loads(shed.body)["error"]["code"] == "overloaded"
    assert int(shed.headers["retry-after"]) >= 1
    assert sorted(row.outcome for row in records) == ["ok"] * 3 + ["refused"] * 3
    assert {row.chosen for row in records} == {"one"}
    assert all(client.capacity.in_flight == 0 for client in g.app.clients.values())


async def test_requests_per_minute_of_an_expert_enter_the_choice():
    async with FakeUpstream() as up:
        experts = [expert("one", up, requests_per_minute=2), expert("two", up)]
        # All in one minute.
        async with gateway(experts, clock=lambda: 1000.0) as g:
            found = [(await ask(g.port, chat())).headers["x-mild-expert"] for _ in range(4)]
    assert found == ["one", "one", "two", "two"]


async def test_a_kept_connection_that_was_closed_is_not_a_fault():
    async with solo(one={"retries": 0}) as (up, g):
        await ask(g.port, chat())
        for writer in list(up._writers):
            writer.close()
        found = await ask(g.port, chat())
        records, connections = await rows(g, 2), up.connections
    assert found.status == 200
    assert records[1].attempts == 1
    assert connections == 2


async def test_bytes_behind_an_answer_do_not_reach_the_next_client():
    async with solo(FakeUpstream(script=["extra"])) as (up, g):
        first = await ask(g.port, chat())
        second = await ask(g.port, chat())
        connections = up.connections
    assert json.loads(first.body)["choices"]
    assert json.loads(second.body)["choices"]
    assert connections == 2


async def test_connections_are_used_again():
    async with solo() as (up, g):
        async with Client(g.port) as client:
            for step in range(10):
                assert (await client.ask(chat(stream=step % 2 == 0))).status == 200
        assert up.connections == 1


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_takes_its_upstream_call_with_it(streamed):
    async with solo(FakeUpstream(held=True), one={"price_out": 1.0}) as (up, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat(stream=streamed)))
            if streamed:
                await client.reader.readuntil(b"data: ")
            await until(lambda: up.in_flight == 1)
        (row,) = await rows(g)
        await until(lambda: up.in_flight == 0)
        await idle(g)
        client = g.app.clients["one"]
    assert row.outcome == "cancelled"
    assert up.answered == 0
    assert client.capacity.in_flight == 0
    assert client.state() == "closed"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_before_the_answer_pays_for_its_text(streamed):
    upstream = FakeUpstream(delay=3600.0)
    async with solo(upstream, one={"price_in": 1.0, "price_out": 1.0}) as (_, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat("x" * 3000, stream=streamed)))
            await until(lambda: upstream.in_flight)
        (row,) = await rows(g)
        spent = g.app.access.spend()["all"]["day"]["spent"]
    assert (row.outcome, row.status, row.expert) == ("cancelled", 499, None)
    assert row.price == pytest.approx(1e-3, rel=0.1)
    assert spent == pytest.approx(row.price)


async def test_waiting_for_a_full_expert_has_an_end(monkeypatch):
    monkeypatch.setattr(RequestCalls.ask, "__defaults__", (1.5,))
    async with FakeUpstream(script=["reset"]) as one, FakeUpstream(script=["hang"]) as two:
        experts = [expert("one", one, retries=0, breaker=BreakerSettings(failures=1))]
        experts.append(expert("two", two, max_in_flight=1, first_byte_seconds=20.0))
        async with gateway(experts, routing={"max_attempts": 5}) as g, Client(g.port) as client:
            client.send(request_bytes(chat(model="two")))
            await until(lambda: two.in_flight)
            assert (await asyncio.wait_for(ask(g.port, chat()), PATIENCE)).status == 502
