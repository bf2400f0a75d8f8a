"""The application around its requests: reload, drain, overload, money, other servers."""

import asyncio
import json

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    Client,
    KeptLedger,
    ask,
    chat,
    events,
    expert,
    gateway,
    priced_router,
    request_bytes,
    rows,
    solo,
    trading_router,
)
from mild.errors import InvalidInputError, MildError
from mild_gateway.access import Access
from mild_gateway.config import AccessSettings, Settings, TargetSettings
from mild_gateway.server.app import create_app
from mild_gateway.server.context import AppContext
from waiting import PATIENCE, until


async def test_a_reload_swaps_under_load_and_loses_nothing():
    first = priced_router(("small", "large"), (0.1, 0.5))
    second = priced_router(("small", "large"), (0.5, 0.1))
    async with (
        FakeUpstream(held=True) as up,
        gateway([expert("small", up), expert("large", up)], first) as g,
    ):
        asked = [asyncio.create_task(ask(g.port, chat())) for _ in range(10)]
        await until(lambda: up.in_flight == 10)
        before = g.app.serving.fingerprint
        await g.app.reload(lambda: second)
        up.held = False
        asked += [asyncio.create_task(ask(g.port, chat())) for _ in range(10)]
        found = await asyncio.gather(*asked)
        records, registered = await rows(g, 20), g.ledger.registered
    assert [answer.status for answer in found] == [200] * 20
    assert len(records) == 20
    for row in records:
        assert row.expert == ("small" if row.router == before else "large")
    assert {row.router for row in records} == set(registered)
    assert [answer.headers["x-mild-expert"] for answer in found[10:]] == ["large"] * 10


@pytest.mark.parametrize("names", [("other",), ("other", "third")])
async def test_a_router_without_any_expert_that_has_an_endpoint_is_not_taken(names):
    async with FakeUpstream() as up, gateway([expert("small", up), expert("large", up)]) as g:
        serving = g.app.serving
        with pytest.raises(InvalidInputError):
            await g.app.reload(
                lambda: priced_router(names, (0.1,) * len(names), (0.1,) * len(names))
            )
        assert (serving is g.app.serving, (await ask(g.port, chat())).status) == (True, 200)


async def test_a_target_decides_and_a_router_that_does_not_record_its_trade_offs_is_not_taken():
    routing = {"target": TargetSettings(max_dollars=1.0)}
    async with (
        FakeUpstream() as up,
        gateway([expert("small", up), expert("large", up)], trading_router(), routing=routing) as g,
    ):
        with pytest.raises(InvalidInputError, match=r"routing\.target"):
            await g.app.reload(priced_router)
        plain = await ask(g.port, chat())
        free = await ask(g.port, chat(model="router-mild-0"))
        assert [answer.headers["x-mild-expert"] for answer in (plain, free)] == ["small", "large"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_draining_lets_requests_end_and_takes_no_new_ones(streamed):
    upstream = FakeUpstream(delay=0.15)
    limits = {"drain_seconds": PATIENCE}
    async with solo(upstream, limits=limits) as (_, g), Client(g.port) as idle:
        await idle.ask(None, "/health", "GET")
        task = asyncio.create_task(ask(g.port, chat(stream=streamed)))
        await until(lambda: upstream.in_flight)
        await g.stop()
        rest = await idle.reader.read()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", g.port)
        found, (row,) = await task, await rows(g)
    assert (found.status, found.whole, rest) == (200, True, b"")
    assert row.outcome == "ok"
    if not streamed:
        assert found.headers["connection"] == "close"


async def test_what_outlasts_the_drain_is_broken_off_and_written_down():
    async with FakeUpstream(script=["hang"]) as up:
        experts = [expert("one", up, first_byte_seconds=30)]
        async with (
            gateway(experts, limits={"drain_seconds": 0.2}) as g,
            Client(g.port) as client,
        ):
            client.send(request_bytes(chat()))
            await until(lambda: up.in_flight)
            await g.stop()
            (row,) = await rows(g)
    assert row.outcome == "cancelled"


async def test_overload_is_shed_with_429():
    async with solo(FakeUpstream(held=True), limits={"max_in_flight": 2}) as (up, g):
        asked = [asyncio.create_task(ask(g.port, chat())) for _ in range(5)]
        await until(lambda: sum(task.done() for task in asked) == 3)
        await until(lambda: up.in_flight == 2)
        up.held = False
        found = await asyncio.gather(*asked)
        records = await rows(g, 2)
        refused = g.app.metrics.value("mild_refused_total", status="429")
    assert sorted(answer.status for answer in found) == [200, 200, 429, 429, 429]
    assert len(records) == 2
    assert refused == 3
    shed = next(answer for answer in found if answer.status == 429)
    assert shed.headers["retry-after"] == "1"


async def test_a_budget_that_is_spent_refuses_with_402_and_one_row():
    # Each request is settled at 10 tokens in, which are a cent.
    async with FakeUpstream() as up:
        experts = [expert("one", up, price_in=1000.0)]
        settings = Settings(tuple(experts), access=AccessSettings(budget_day=0.5))
        async with gateway(experts, access=Access(settings)) as g:
            found = [await ask(g.port, chat(max_tokens=5)) for _ in range(60)]
            records, spend = await rows(g, 60), g.app.access.spend()
    statuses = [answer.status for answer in found]
    served = statuses.count(200)
    assert statuses == [200] * served + [402] * (60 - served)
    assert 0 < served < 60
    assert spend["all"]["day"]["spent"] == pytest.approx(served * 0.01)
    assert spend["all"]["day"]["spent"] <= 0.5
    assert [row.outcome for row in records] == ["ok"] * served + ["refused"] * (60 - served)
    error = json.loads(found[-1].body)["error"]
    assert error["type"] == "insufficient_quota"


async def test_a_key_is_asked_for_before_the_body():
    async with FakeUpstream() as up:
        experts = [expert("one", up)]
        settings = Settings(tuple(experts), access=AccessSettings(require_key=True))
        async with gateway(experts, access=Access(settings)) as g:
            async with Client(g.port) as client:
                client.send(
                    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
                    b"content-length: 1000000\r\n\r\n"
                )
                early = await asyncio.wait_for(client.answer(), PATIENCE)
            models = await ask(g.port, None, "/v1/models", "GET")
            route = await ask(g.port, chat(), "/v1/route")
            health = await ask(g.port, None, "/health", "GET")
            records = g.ledger.records
    assert early.status == models.status == route.status == 401
    assert health.status == 200
    assert records == []


class Asgi:
    """The application driven by hand, as any ASGI server would."""

    def __init__(self, app, document):
        self.app = app
        self.body = json.dumps(document).encode()
        self.sent = []
        self.left = asyncio.Event()
        self.given = False

    async def receive(self):
        if not self.given:
            self.given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    async def run(self):
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"host", b"localhost")],
            "http_version": "1.1",
        }
        await self.app(scope, self.receive, self.send)


async def test_other_asgi_servers_can_serve_it_and_leaving_cancels_there_too():
    async with solo() as (up, g):
        whole = Asgi(create_app(g.app), chat(stream=True))
        await whole.run()
        up.held = True
        gone = Asgi(create_app(g.app), chat(stream=True))
        running = asyncio.create_task(gone.run())
        await until(lambda: up.in_flight)
        gone.left.set()
        await running
        await until(lambda: up.in_flight == 0)
        sent = whole.sent
        records = await rows(g, 2)
    assert sent[0]["status"] == 200
    assert sent[-1]["more_body"] is False
    assert events(b"".join(message.get("body", b"") for message in sent))[-1] == "[DONE]"
    assert [row.outcome for row in records] == ["ok", "cancelled"]


async def test_lifespan_starts_and_stops():
    settings = Settings((expert("one", "http://127.0.0.1:9/v1"),))
    router = priced_router(("one",), (0.1,), (0.1,))
    context = AppContext(settings, router, Access(settings), KeptLedger())
    app = create_app(context)
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    draining = context.draining
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert draining


async def test_an_error_of_our_own_answers_500_once_and_serves_on(caplog):
    async with solo() as (_, g):
        selector = g.app.serving.selector
        selector.select = lambda *_: 1 / 0
        broken = await ask(g.port, chat())
        del selector.select
        good = await ask(g.port, chat())
        errors = g.app.metrics.value("mild_errors_total")
        records, in_flight = await rows(g, 2), g.app.in_flight
    assert errors == 1
    assert (broken.status, good.status, in_flight) == (500, 200, 0)
    assert json.loads(broken.body)["error"]["type"] == "server_error"
    assert broken.headers["connection"] == "close"
    request_ids = [records[0].request_id] * 2
    assert [broken.headers[name] for name in ("x-mild-request-id", "x-request-id")] == request_ids
    assert [row.outcome for row in records] == ["failed", "ok"]
    assert "ZeroDivisionError" in caplog.text


def test_settings_that_do_not_fit_the_router_are_refused_at_the_start():
    async def run():
        async with gateway([expert("one", "http://127.0.0.1:9/v1")], priced_router()):
            pass

    with pytest.raises(MildError):
        asyncio.run(run())


@pytest.mark.parametrize("stream", ["false", "true", 0, 1, [], {}])
async def test_a_stream_that_is_neither_true_nor_false_is_no_experts_fault(stream):
    async with solo() as (up, g):
        found, asked = await ask(g.port, chat(stream=stream)), up.asked
    assert found.status == 400
    assert json.loads(found.body)["error"]["param"] == "stream"
    assert asked == 0
