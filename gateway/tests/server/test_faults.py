"""Experts that fail in every way: the client gets an answer, or the truth."""

import json

import pytest

from fake_upstream import FAULTS, STREAM_FAULTS, FakeUpstream
from gateway_cases import (
    ask,
    chat,
    events,
    expert,
    gateway,
    rows,
    said,
    solo,
)
from mild_gateway.config import AccessSettings

pytestmark = pytest.mark.usefixtures("no_retry", "short_pauses")
RETRIES = "mild_gateway.server.calls.RETRIES"
QUICK = {"first_byte_seconds": 0.5, "total_seconds": 1.0}
BEFORE = ("empty", "error_first", "done_first", "plain")
CASES = [
    *((fault, False) for fault in FAULTS if fault not in ("slow", "extra")),
    *((fault, True) for fault in (*FAULTS[:1], "reset", "500", "429", "garbage")),
    *((fault, True) for fault in BEFORE),
]


@pytest.mark.parametrize(("fault", "streamed"), CASES)
async def test_a_fault_before_the_first_byte_falls_back_to_the_next_best(fault, streamed):
    async with FakeUpstream(script=[fault]) as bad, FakeUpstream() as good:
        experts = [expert("bad", bad, **QUICK), expert("good", good, **QUICK)]
        async with gateway(experts) as g:
            found = await ask(g.port, chat(stream=streamed))
            (row,), asked_bad, asked_good = await rows(g), bad.asked, good.asked
    assert found.status == 200
    assert found.whole
    assert found.headers["x-mild-expert"] == "good"
    assert (row.chosen, row.expert, row.attempts, row.outcome) == ("bad", "good", 2, "ok")
    assert (asked_bad, asked_good) == (1, 1)
    assert b"sk-secret" not in found.body


async def test_nobody_listening_falls_back():
    async with FakeUpstream() as gone:
        url = gone.base_url
    async with (
        FakeUpstream() as good,
        gateway([expert("bad", url, **QUICK), expert("good", good)]) as g,
    ):
        assert (await ask(g.port, chat())).headers["x-mild-expert"] == "good"


@pytest.mark.parametrize("fault", [fault for fault in STREAM_FAULTS if fault not in BEFORE])
async def test_a_stream_that_breaks_off_ends_with_an_error_and_never_clean(fault):
    async with FakeUpstream(script=[fault]) as bad, FakeUpstream() as good:
        experts = [expert("bad", bad, price_out=1.0, **QUICK), expert("good", good, **QUICK)]
        async with gateway(experts) as g:
            found = await ask(g.port, chat(stream=True))
            (row,), asked_good = await rows(g), good.asked
    assert found.status == 200
    assert not found.whole
    assert "[DONE]" not in events(found.body)
    last = found.body.strip().split(b"\n\n")[-1]
    assert last.startswith(b"event: error\ndata: ")
    error = json.loads(last.split(b"data: ")[1])["error"]
    assert error["code"] == "stream_broken"
    assert "bad" in error["message"]
    assert "one two".startswith(said(found.body.split(b"event: error")[0]))
    assert (row.outcome, row.expert, row.attempts, row.status) == ("cut", "bad", 1, 200)
    assert row.price > 0
    assert asked_good == 0


@pytest.mark.parametrize(
    ("fault", "streamed"),
    [("500", False), ("cut", False), ("reset", False), ("500", True), ("reset", True)],
)
async def test_the_same_expert_is_tried_again_first(fault, streamed, monkeypatch):
    monkeypatch.setattr(RETRIES, 1)
    async with (
        FakeUpstream(script=[fault]) as one,
        FakeUpstream() as two,
        gateway([expert("one", one), expert("two", two)]) as g,
    ):
        found = await ask(g.port, chat(stream=streamed))
        (row,), asked_two = await rows(g), two.asked
    assert found.headers["x-mild-expert"] == "one"
    assert row.attempts == 2
    assert asked_two == 0


@pytest.mark.parametrize(
    ("fault", "status", "code", "streamed"),
    [
        ("500", 502, "expert_server", False),
        ("401", 502, "expert_credentials", False),
        ("hang", 504, "expert_timeout", False),
        ("cut", 502, "expert_cut", False),
        ("html", 502, "expert_garbled", False),
        ("500", 502, "expert_server", True),
        ("hang", 504, "expert_timeout", True),
        ("empty", 502, "expert_cut", True),
        ("plain", 502, "expert_garbled", True),
    ],
)
async def test_when_all_fail_the_client_is_told_in_openais_shape(fault, status, code, streamed):
    async with FakeUpstream(script=[fault] * 9) as one, FakeUpstream(script=[fault] * 9) as two:
        experts = [expert("one", one, **QUICK), expert("two", two, **QUICK)]
        async with gateway(experts) as g:
            found, (row,) = await ask(g.port, chat(stream=streamed)), await rows(g)
    assert found.status == status
    error = json.loads(found.body)["error"]
    assert error["code"] == code
    assert "sk-secret" not in str(error)
    assert (row.outcome, row.status, row.expert, row.attempts) == ("failed", status, None, 2)
    assert row.error
    assert row.price is None


async def test_attempts_are_bounded(monkeypatch):
    monkeypatch.setattr(RETRIES, 1)
    async with FakeUpstream(script=["500"] * 20) as one:
        experts = [expert(f"e{k}", one) for k in range(4)]
        async with gateway(experts, routing={"max_attempts": 4}) as g:
            found = await ask(g.port, chat())
            asked = one.asked
    assert found.status == 502
    assert asked == 4


async def test_an_error_of_the_clients_is_relayed_and_not_tried_again():
    async with (
        FakeUpstream(script=["400"]) as one,
        FakeUpstream() as two,
        gateway([expert("one", one, price_in=1.0), expert("two", two)]) as g,
    ):
        found = await ask(g.port, chat(stream=True))
        (row,), asked_two = await rows(g), two.asked
    assert found.status == 400
    assert json.loads(found.body)["error"]["message"].startswith("sk-secret of")
    assert (row.outcome, row.status, row.price) == ("failed", 400, 0.0)
    assert asked_two == 0


async def test_a_rate_limit_is_passed_on_where_nobody_else_can_answer():
    async with solo(FakeUpstream(script=["429"], retry_after="90")) as (one, g):
        first = await ask(g.port, chat())
        second = await ask(g.port, chat())
        asked = one.asked
    assert (first.status, second.status) == (429, 200)
    assert first.headers["retry-after"] == "90"
    assert asked == 2


@pytest.mark.parametrize(
    ("fault", "charged"),
    [
        ("hang", True),
        ("cut", True),
        ("half_head", True),
        ("html", True),
        ("500", False),
        ("429", False),
        ("401", False),
    ],
)
async def test_an_attempt_that_the_expert_may_charge_is_paid_for_by_its_text(fault, charged):
    async with FakeUpstream(script=[fault]) as bad, FakeUpstream() as good:
        experts = [
            expert("bad", bad, price_in=1.0, price_out=50.0, **QUICK),
            expert("good", good, price_in=1.0, price_out=1.0, **QUICK),
        ]
        async with gateway(experts) as g:
            found = await ask(g.port, chat("x" * 3000))
            (row,) = await rows(g)
            day = g.app.access.spend()["all"]["day"]
    assert (found.status, row.expert) == (200, "good")
    lost = 1e-3 if charged else 0.0
    assert row.price == pytest.approx(1.3e-5 + lost, rel=0.05)
    assert day["spent"] == pytest.approx(row.price)
    assert day["held"] == pytest.approx(0.0, abs=1e-9)


async def test_nobody_is_charged_who_was_never_reached():
    experts = [expert("gone", "http://127.0.0.1:9/v1", price_in=1.0, **QUICK)]
    async with gateway(experts) as g:
        found, (row,) = await ask(g.port, chat("x" * 3000)), await rows(g)
    assert found.status == 502
    assert row.price is None


async def test_what_was_lost_counts_before_the_next_attempt():
    """Room for one attempt, and not for one that failed and another one."""
    async with FakeUpstream(script=["hang"]) as up:
        experts = [expert("one", up, price_per_query=1.0, **QUICK)]
        other = expert("two", up, price_per_query=1.0, **QUICK)
        budget = AccessSettings(budget_day=1.5)
        async with gateway([*experts, other], access_settings=budget) as g:
            found = await ask(g.port, chat())
            (row,) = await rows(g)
            asked, spent = up.asked, g.app.access.spend()["all"]["day"]["spent"]
    assert (found.status, asked) == (429, 1)
    assert json.loads(found.body)["error"]["code"] == "budget_held"
    assert row.price == pytest.approx(1.0)
    assert spent == pytest.approx(1.0)
