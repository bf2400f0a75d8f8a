"""What an expert says it is, is kept with its answers; a gateway that runs looks for drift."""

from dataclasses import replace

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, expert, gateway, knowing, priced_router, rows, solo
from ledger_cases import write_all, writing
from mild_gateway import drift as module
from mild_gateway.config import LedgerSettings
from mild_gateway.experts.prices import UsageMeter, read_version
from mild_gateway.ledger.reading import read_ledger
from mild_gateway.server import context as context_module
from waiting import until

ASK = {"model": "mild", "messages": [{"role": "user", "content": "2 + 2 = ?"}]}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        ({"model": "m", "system_fingerprint": "fp"}, "m fp"),
        ({"model": "m", "system_fingerprint": None}, "m"),
        ({"type": "response.created", "response": {"model": "m-2"}}, "m-2"),
        ({"type": "message_start", "message": {"model": "claude"}}, "claude"),
        ({"model": "", "choices": []}, None),
        ({"model": 7, "message": "text", "response": None}, None),
        ({}, None),
        ({"model": "a b\n\x00c", "system_fingerprint": "\u202e"}, "abc"),
        ({"model": "x" * 1000, "system_fingerprint": "y" * 1000}, "x" * 100 + " " + "y" * 100),
    ],
)
def test_a_version_is_read_in_every_form_and_is_short_and_plain(document, version):
    assert read_version(document) == version
    meter = UsageMeter()
    # Events before it, and behind it, change nothing.
    for event in ({"model": ""}, document, {"model": "other"}):
        meter.add(event, False)
    assert meter.version == (version or "other")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_the_row_has_what_the_expert_reports(api, streamed, path):
    more = {"max_tokens": 20, "stream": streamed}
    async with solo(one={"api": api}) as (up, g):
        up.reports = "gpt-9-2026"
        async with Client(g.port) as client:
            answer = await client.ask({**ASK, **more}, path)
        assert answer.status == 200
        (row,) = await rows(g)
        assert row.reported == "gpt-9-2026"
        assert b"gpt-9-2026" not in answer.body


async def test_without_an_answer_nothing_is_reported():
    async with (
        FakeUpstream("m", script=["500"] * 9) as up,
        gateway([expert("one", up)]) as g,
        Client(g.port) as client,
    ):
        assert (await client.ask(ASK)).status == 502
        (row,) = await rows(g)
        assert row.reported is None


async def test_a_gateway_looks_at_its_ledger_and_shows_what_it_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(context_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(module, "NOVELTY_SECONDS", 0.0)
    monkeypatch.setattr(module, "BASELINE", 20)
    looks = []
    look = module.DriftWatch.look

    def noted(watch, router):
        flags = look(watch, router)
        looks.append(router)
        return flags

    monkeypatch.setattr(module.DriftWatch, "look", noted)
    path = tmp_path / "l.sqlite"
    write_all(path, [])
    with writing(path) as writer:
        async with (
            FakeUpstream() as up,
            gateway(
                [expert("one", up)],
                knowing(priced_router(("one",), (0.1,), (0.1,))),
                ledger_writer=writer,
                ledger=LedgerSettings(path=path),
            ) as g,
            Client(g.port) as client,
        ):

            async def ask(count):
                for _ in range(count):
                    assert (await client.ask(ASK)).status == 200
                writer.flush()

            def flagged(kind):
                return g.app.metrics.value("mild_drift", expert="one", kind=kind)

            up.reports = "m-1"
            await until(lambda: looks)
            await ask(25)
            # The second look from here has seen all of them.
            seen = len(looks) + 2
            await until(lambda: len(looks) >= seen)
            assert flagged("version") == 0
            up.reports = "m-2"
            await ask(5)
            await until(lambda: flagged("version") == 1)
            assert flagged("feedback") == 0
            health = await client.ask(b"", "/health", "GET")
            assert health.status == 200
            # The flags are those of the router that served.
            other = knowing(priced_router(("one",), (0.1,), (0.1,)))
            other = replace(other, info=replace(other.info, fingerprint="another"))
            await g.app.reload(lambda: other)
            await until(lambda: flagged("version") == 0)
    records = list(read_ledger(path))
    assert [row.reported for row in records] == ["m-1"] * 25 + ["m-2"] * 5
    assert {row.novel for row in records} <= {False, None}
    assert any(row.novel is False for row in records)
