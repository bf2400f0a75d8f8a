"""What an expert says it is, and whether a request is novel, is kept with its answer."""

import math

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, KeptLedger, expert, gateway, knowing, priced_router, rows, solo
from mild_gateway.config import LedgerSettings
from mild_gateway.experts.prices import UsageMeter, read_version
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


async def test_one_request_a_second_is_looked_at_for_novelty(tmp_path, monkeypatch):
    router = knowing(priced_router(("one",), (0.1,), (0.1,)))
    ledger = LedgerSettings(path=tmp_path / "l.sqlite")
    async with (
        FakeUpstream() as up,
        gateway([expert("one", up)], router, ledger=ledger, ledger_writer=KeptLedger()) as g,
        Client(g.port) as client,
    ):

        async def send(text):
            body = {"model": "mild", "messages": [{"role": "user", "content": text}]}
            n_rows = len(g.ledger.records)
            assert (await client.ask(body)).status == 200
            return (await rows(g, n_rows + 1))[n_rows]

        monkeypatch.setattr(g.app, "_next_novelty", 0.0)
        known = await send("2 + 2 = ?")
        await until(lambda: known.novel is not None)
        monkeypatch.setattr(g.app, "_next_novelty", math.inf)
        soon = await send("2 + 2 = ?")
        monkeypatch.setattr(g.app, "_next_novelty", 0.0)
        far = await send("Something that nobody has ever asked before, at length")
        await until(lambda: far.novel is not None)
        assert [row.novel for row in (known, soon, far)] == [False, None, True]
        assert g.app._next_novelty > 0
