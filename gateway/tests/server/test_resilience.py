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
from waiting import until


@pytest.mark.usefixtures("no_retry")
async def test_a_dead_expert_is_asked_last_and_then_in_its_place_again():
    now = 1000.0
    async with FakeUpstream() as one, FakeUpstream() as two:
        async with gateway([expert("one", one), expert("two", two)], clock=lambda: now) as g:
            one.dead = True
            for _ in range(10):
                found = await ask(g.port, chat())
                assert found.headers["x-mild-expert"] == "two"
            attempts = sum(row.attempts for row in await rows(g, 10))
            one.dead = False
            now += 29.9
            still_last = await ask(g.port, chat())
            now += 0.2
            again = await ask(g.port, chat())
    assert attempts == 13
    assert still_last.headers["x-mild-expert"] == "two"
    assert again.headers["x-mild-expert"] == "one"


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
    assert all(client.limiter.in_flight == 0 for client in g.app.clients.values())


async def test_requests_per_minute_of_an_expert_enter_the_choice():
    async with FakeUpstream() as up:
        experts = [expert("one", up, requests_per_minute=2), expert("two", up)]
        # All in one minute.
        async with gateway(experts, clock=lambda: 1000.0) as g:
            found = [(await ask(g.port, chat())).headers["x-mild-expert"] for _ in range(4)]
    assert found == ["one", "one", "two", "two"]


async def test_a_kept_connection_that_was_closed_is_not_a_fault():
    async with solo(routing={"max_attempts": 1}) as (up, g):
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
    assert client.limiter.in_flight == 0
    assert not client.health.is_last(None)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_before_the_answer_pays_what_was_reserved(streamed, monkeypatch):
    monkeypatch.setattr("mild_gateway.server.time_limit.READ_ON_SECONDS", 0.1)
    upstream = FakeUpstream(delay=3600.0)
    async with solo(upstream, one={"price_in": 1.0, "price_out": 1.0}) as (_, g):
        async with Client(g.port) as client:
            client.send(request_bytes(chat("x" * 3000, stream=streamed, max_tokens=500)))
            await until(lambda: upstream.in_flight)
        (row,) = await rows(g)
        spent = g.app.access.spend()["all"]["day"]["spent"]
    assert (row.outcome, row.status, row.expert) == ("cancelled", 499, None)
    # A token for three bytes of the text, and as many as the answer may have.
    assert row.price == pytest.approx(1e-3 + 5e-4, rel=0.1)
    assert spent == pytest.approx(row.price)
