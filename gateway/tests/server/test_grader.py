"""Grading beside traffic: exact rates, a budget that holds, and clients that notice nothing."""

import asyncio
import json
import os
import random
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    Client,
    KeptLedger,
    ask,
    cascade_router,
    chat,
    expert,
    gateway,
    priced_router,
    reply,
    request_bytes,
    rows,
    said,
)
from ledger_cases import read_feedback
from mild_gateway.access import Access
from mild_gateway.config import AccessSettings, GradingSettings, LedgerSettings, Settings
from mild_gateway.ledger.reading import read_ledger
from mild_gateway.ledger.writer import LedgerWriter
from mild_gateway.metrics import UNGRADED
from mild_gateway.refusals import Refusal
from mild_gateway.server import app as app_module
from mild_gateway.server import grader as grader_module
from process_cases import served, write_files
from waiting import until


class GradedLedger(KeptLedger):
    """A ledger in memory, with the scores."""

    def __init__(self):
        super().__init__()
        self.feedback = []

    def judge(self, feedback):
        # The row of the request comes first.
        assert feedback.request_id in [record.request_id for record in self.records]
        self.feedback.append(feedback)


@asynccontextmanager
async def gateway_that_grades(experts, router, **parts):
    """A gateway; ``grader`` is what grades its answers."""
    graders = []

    def make_grader(context):
        graders.append(grader_module.Grader(context))
        return graders[0]

    with patch.object(app_module, "Grader", make_grader):
        async with gateway(experts, router, **parts) as g:
            g.grader = graders[0]
            yield g


@asynccontextmanager
async def grading(
    method, tmp_path, texts=("one", "two"), judge="Score: 0.7", *, up=None, own=None, **parts
):
    """A gateway that grades: experts small and large, which answer ``texts``, and judge."""
    names = parts.pop("names", ("small", "large"))
    router = parts.pop("router", None) or priced_router(names)
    given = {"share": 1.0, "budget_day": 100.0} | parts.pop("grading", {})
    if method != "exact":
        given = {"expert": "judge"} | given
    async with AsyncExitStack() as stack:
        ups = {}
        for name, text in zip((*names, "judge"), (*texts, judge), strict=True):
            made = FakeUpstream(name, text=text, **(up or {}).get(name, {}))
            ups[name] = await stack.enter_async_context(made)
        experts = [
            expert(
                name, ups[name], **{"price_in": 1.0, "price_out": 1.0, **(own or {}).get(name, {})}
            )
            for name in ups
        ]
        parts.setdefault("ledger", LedgerSettings(path=tmp_path / "ledger.sqlite"))
        parts.setdefault("ledger_writer", GradedLedger())
        settings = GradingSettings(method, **given)
        made = gateway_that_grades(experts, router, grading=settings, **parts)
        g = await stack.enter_async_context(made)
        yield g, SimpleNamespace(**ups)


async def graded(g):
    """The scores, once nothing is left to be graded: of clients that have all of their answers."""
    await until(lambda: g.app.in_flight == 0 and g.grader._waiting == 0)
    return g.ledger.feedback


def lost(g):
    """Picked answers without a grade, by reason."""
    found = {r: g.app.metrics.value("mild_grading_failed_total", reason=r) for r in UNGRADED}
    return {reason: int(count) for reason, count in found.items() if count}


def answer_of(found):
    return json.loads(found.body)["choices"][0]["message"]["content"]


def bodies_of(up):
    """What an expert was sent."""
    return [json.loads(body) for body in up.bodies]


def references(tmp_path, rows="What is 2 + 2?,4"):
    file = tmp_path / "answers.csv"
    file.write_text(f"query,answer\n{rows}\n")
    return file


async def test_a_judge_scores_the_answer_that_the_client_got(tmp_path):
    async with grading("rubric", tmp_path, grading={"share": 1.0}) as (g, ups):
        found = await ask(g.port, chat("What is 2 + 2?"))
        (record,) = await rows(g)
        (one,) = await graded(g)
        spent = g.app.access.spend()["keys"]
    assert (found.status, answer_of(found)) == (200, "two")
    assert (one.request_id, one.expert, one.source) == (record.request_id, "large", "grader")
    assert (one.score, one.rate) == (0.7, 1.0)
    assert abs(one.time - time.time()) < 60
    (body,) = bodies_of(ups.judge)
    (turn,) = body["messages"]
    assert "What is 2 + 2?" in turn["content"]
    assert "two" in turn["content"]
    assert body["max_tokens"] == 1024
    assert lost(g) == {}
    # The client pays for its own answer, and the grader for the grade.
    assert record.price == pytest.approx(13e-6)
    assert spent["(grader)"]["day"]["spent"] == pytest.approx(13e-6)
    assert spent["anonymous"]["day"]["spent"] == pytest.approx(13e-6)


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_every_api_and_every_kind_of_answer_is_graded_and_stays_as_it_is(
    tmp_path, api, path, stream
):
    texts, own = ("one", "It is 4 I think"), {"large": {"api": api}, "judge": {"api": api}}
    document = chat("What is 2 + 2?", stream=stream, max_tokens=50)
    if path == "/v1/responses":
        document = {"model": "mild", "input": "What is 2 + 2?", "stream": stream}
    bodies = {}
    for share in (1.0, 0.0):
        more = {"grading": {"share": share}}
        async with grading("rubric", tmp_path, texts, "Score: 1", own=own, **more) as (g, ups):
            found = await ask(g.port, document, path)
            bodies[share] = found.body
            scores = [(one.expert, one.score) for one in await graded(g)]
            assert scores == ([("large", 1.0)] if share else [])
            assert lost(g) == {}
            if share:
                assert not bodies_of(ups.judge)[0].get("stream")
                assert "What is 2 + 2?" in json.dumps(bodies_of(ups.judge)[0])
    assert found.status == 200
    assert b"think" in bodies[0.0]
    assert b"Score" not in bodies[1.0]
    if path == "/v1/chat/completions" and api == "openai":
        assert bodies[0.0] == bodies[1.0]


async def test_exact_grades_need_a_reference_and_no_money(tmp_path):
    file = references(tmp_path)
    texts = ("five", "So the sum is 4.")
    async with grading("exact", tmp_path, texts, grading={"references": file}) as (g, ups):
        for text in ("What is  2 + 2?", "Where is Rome?"):
            await ask(g.port, chat(text))
        record, _ = await rows(g, 2)
        (one,) = await graded(g)
        spent = g.app.access.spend()["keys"]["(grader)"]["day"]["spent"]
    assert (one.request_id, one.score, one.expert) == (record.request_id, 1.0, "large")
    assert ups.judge.asked == spent == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_of_a_cascade_references_grade_everyone_and_a_judge_the_answer_given(
    tmp_path, stream
):
    names, texts = ("small", "medium", "large"), ("It is 4.", "It is 5.", "The sum is 4.")
    parts = {"names": names, "texts": texts, "router": cascade_router(names)}
    exact = {"references": references(tmp_path)}
    async with grading("exact", tmp_path, **parts, grading=exact) as (g, _):
        found = await ask(g.port, chat("What is 2 + 2?", stream=stream))
        scores = await graded(g)
        (record,) = await rows(g)
    assert {one.expert: one.score for one in scores} == {"small": 1.0, "medium": 0.0, "large": 1.0}
    assert {one.rate for one in scores} == {1.0}
    assert record.chosen == "cascade"
    assert (said(found.body) if stream else answer_of(found)) == "The sum is 4."
    # Judged steps that agree: the answer given was read before.
    parts["texts"] = ("4", "It is 4.", "five")
    async with grading("rubric", tmp_path, **parts) as (g, ups):
        found = await ask(g.port, chat("What is 2 + 2?", stream=stream))
        (one,) = await graded(g)
        (record,) = await rows(g)
    assert one.expert == record.expert == found.headers["x-mild-expert"]
    assert ups.judge.asked == 1
    content = bodies_of(ups.judge)[0]["messages"][0]["content"]
    assert (said(found.body) if stream else answer_of(found)) in content


async def test_of_two_answers_of_one_expert_the_given_one_is_graded(tmp_path):
    names = ("small", "small#2", "large")
    async with AsyncExitStack() as stack:
        small, large = [
            await stack.enter_async_context(FakeUpstream(text=text)) for text in ("4", "5")
        ]
        settings = GradingSettings("exact", share=1.0, references=references(tmp_path))
        ledger = LedgerSettings(path=tmp_path / "ledger.sqlite")
        parts = {"grading": settings, "ledger": ledger, "ledger_writer": GradedLedger()}
        experts = [expert("small", small), expert("large", large)]
        made = gateway_that_grades(experts, cascade_router(names), **parts)
        g = await stack.enter_async_context(made)
        await ask(g.port, chat("What is 2 + 2?"))
        scores = {one.expert: one.score for one in await graded(g)}
        (record,) = await rows(g)
    assert record.expert == "small"
    assert scores["small"] == 1.0
    assert set(scores) <= {"small", "small#2"}


async def test_the_rate_is_what_happens_and_explored_answers_have_their_own(tmp_path):
    random.seed(4)
    shares = {"share": 0.25, "references": references(tmp_path)}
    routing = {"explore": 0.5}
    async with grading("exact", tmp_path, grading=shares, routing=routing, seed=1) as (g, _):
        async with Client(g.port) as client:
            for _ in range(600):
                await client.ask(chat("What is 2 + 2?"))
        records = await rows(g, 600)
        scores = await graded(g)
        explored = g.app.metrics.value("mild_explored_total")
    rates = {one.request_id: one.rate for one in scores}
    assert set(rates.values()) == {0.25, 1.0}
    assert len(records) == 600
    assert 220 < explored < 380
    # Five standard deviations of a binomial number.
    for rate, count in ((1.0, explored), (0.25, 600 - explored)):
        found = list(rates.values()).count(rate)
        assert abs(found - rate * count) <= 5 * (count * rate * (1 - rate)) ** 0.5
    assert lost(g) == {}


def picked_share(g, share, explored, count=20_000):
    grader = g.grader
    selection = SimpleNamespace(chosen="small", explored=explored)
    request = SimpleNamespace(endpoint="/chat/completions", size=10, document={}, text="Q?")
    found = 0
    for _ in range(count):
        if grader.pick(selection, request) is not None:
            found += 1
            grader._waiting -= 1
    return found / count


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
async def test_picks_are_binomial(tmp_path, share):
    random.seed(7)
    file = references(tmp_path, "Q?,4")
    settings = GradingSettings("exact", share=share, references=file)
    async with grading("exact", tmp_path, grading={"references": file}) as (g, _):
        object.__setattr__(g.app.settings, "grading", settings)
        g.grader = grader_module.Grader(g.app)
        for explored, rate in ((False, share), (True, 1.0)):
            bound = 5 * (rate * (1 - rate) / 20_000) ** 0.5
            assert abs(picked_share(g, share, explored) - rate) <= bound


async def test_only_answers_of_the_router_are_graded_and_nobody_grades_itself(tmp_path):
    parts = {"grading": {"expert": "large"}}
    async with grading("rubric", tmp_path, **parts) as (g, _):
        await ask(g.port, chat(model="small"))
        await ask(g.port, chat())  # answered by large
        await ask(g.port, chat(n=2))
        await rows(g, 3)
        assert await graded(g) == []
    async with grading("rubric", tmp_path, up={"large": {"script": ["500"] * 9}}, **parts) as (
        g,
        ups,
    ):
        # Another than the chosen one has answered.
        ups.judge.text = "never asked"
        found = await ask(g.port, chat())
        assert found.headers["x-mild-expert"] == "small"
        assert await graded(g) == []
    async with grading("rubric", tmp_path, up={"large": {"script": ["500"] * 9}}) as (g, _):
        assert (await ask(g.port, chat())).status == 200
        (one,) = await graded(g)
        assert one.expert == "small"
        assert lost(g) == {}


# A grade costs 15 dollars, and may cost a little more.
DEAR = {
    "own": {"judge": {"price_in": 1000.0, "price_out": 1.0}},
    "up": {"judge": {"usage": {"prompt_tokens": 15_000, "completion_tokens": 3}}},
}


async def test_the_budget_holds_over_all_workers_and_clients_do_not_pay(tmp_path):
    store = str(tmp_path / "store.sqlite")
    parts = {**DEAR, "grading": {"budget_day": 65.0}, "store": store}
    async with (
        grading("rubric", tmp_path, **parts) as (one, _),
        grading("rubric", tmp_path, **parts) as (other, _),
    ):
        found = await asyncio.gather(
            *(ask(g.port, chat()) for _ in range(15) for g in (one, other))
        )
        scores = await graded(one) + await graded(other)

        def is_settled():
            """Whether one worker has read what all of them have spent."""
            keys = one.app.access.spend()["keys"]
            grader = keys["(grader)"]["day"]
            client = keys["anonymous"]["day"]
            is_whole = client["spent"] == pytest.approx(30 * 13e-6)
            return is_whole and grader["held"] == 0 and grader["spent"] > 15 * len(scores)

        await until(is_settled)
        spend = one.app.access.spend()
        missing = lost(one)["budget"] + lost(other)["budget"]
    assert {answer.status for answer in found} == {200}
    paid = spend["keys"]["(grader)"]["day"]
    assert paid["budget"] == 65.0
    assert 0 < paid["spent"] == pytest.approx(15.000003 * len(scores))
    assert paid["spent"] <= 65.0
    assert len(scores) >= 1
    assert len(scores) + missing == 30
    assert spend["keys"]["anonymous"]["day"]["spent"] == pytest.approx(30 * 13e-6)


async def test_what_is_reserved_does_not_depend_on_the_answer(tmp_path):
    amounts = []
    for text in ("4", 'no "quotes"\n' * 3000, "é" * 9000, "x" * 9000, ""):
        async with grading("rubric", tmp_path, ("one", text), **DEAR) as (g, _):
            reserve, enlarge = g.app.access.reserve, g.app.access.enlarge

            async def note(caller, dollars, reserve=reserve):
                if caller.name == "(grader)":
                    amounts.append(dollars)
                return await reserve(caller, dollars)

            async def note_more(reservation, dollars, enlarge=enlarge):
                assert dollars <= reservation.amount / 1e9 + 1e-9
                await enlarge(reservation, dollars)

            g.app.access.reserve, g.app.access.enlarge = note, note_more
            await ask(g.port, chat())
            await graded(g)
    assert len(amounts) == 5
    assert len(set(amounts)) == 1


async def test_the_budget_of_the_gateway_holds_for_grades_too(tmp_path):
    parts = {**DEAR, "access_settings": AccessSettings(budget_day=10.0)}
    async with grading("rubric", tmp_path, **parts) as (g, ups):
        statuses = [(await ask(g.port, chat())).status for _ in range(4)]
        assert await graded(g) == []
        assert lost(g) == {"budget": 4}
    assert statuses == [200] * 4
    assert ups.judge.asked == 0


async def test_a_store_that_is_lost_behind_an_answer_ends_its_grading(tmp_path, monkeypatch):
    async with grading("rubric", tmp_path) as (g, ups):
        reserve = g.app.access.reserve

        async def lose(caller, dollars):
            if caller is g.app.access.grader:
                raise Refusal(503, "lost", code="store_unavailable")
            return await reserve(caller, dollars)

        monkeypatch.setattr(g.app.access, "reserve", lose)
        assert (await ask(g.port, chat())).status == 200
        assert await graded(g) == []
        assert lost(g) == {"budget": 1}
        assert ups.judge.asked == 0


@pytest.mark.parametrize(
    ("judge", "up", "reason"),
    [
        ("I like it.", {}, "unreadable"),
        ("Score: 11", {}, "unreadable"),
        ("Score: 1", {"script": ["500"] * 9}, "expert"),
        ("Score: 1", {"script": ["garbage"] * 9}, "expert"),
        ("Score: 1", {"script": [reply(400, '{"error": {"message": "no"}}')] * 9}, "expert"),
    ],
)
async def test_grades_that_fail_are_counted_and_not_written(tmp_path, judge, up, reason):
    async with grading("rubric", tmp_path, judge=judge, up={"judge": up}) as (g, _):
        found = await ask(g.port, chat())
        assert await graded(g) == []
        assert lost(g) == {reason: 1}
    assert (found.status, answer_of(found)) == (200, "two")


async def test_an_error_of_the_grader_itself_is_counted_and_reaches_nobody(tmp_path, monkeypatch):
    monkeypatch.setattr(grader_module.grading, "judge_prompt", lambda *values: 1 / 0)
    async with grading("rubric", tmp_path) as (g, _):
        assert (await ask(g.port, chat())).status == 200
        assert await graded(g) == []
        assert g.app.metrics.value("mild_errors_total") == 1


async def test_a_slow_judge_delays_nobody_and_few_are_asked_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(grader_module, "MAX_IN_FLIGHT", 2)
    monkeypatch.setattr(grader_module, "MAX_WAITING", 4)
    async with grading("rubric", tmp_path, up={"judge": {"held": True}}) as (g, ups):
        async with Client(g.port) as client:
            for _ in range(10):
                assert (await client.ask(chat())).status == 200
        await until(lambda: ups.judge.most_in_flight == 2)
        assert ups.judge.answered == 0
        ups.judge.held = False
        assert len(await graded(g)) == 4
        assert ups.judge.most_in_flight == 2
        assert lost(g) == {"room": 6}
        # There is room again.
        await ask(g.port, chat())
        assert len(await graded(g)) == 5


async def test_the_end_waits_a_moment_for_grades_and_takes_none_of_the_answers(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(grader_module, "STOP_SECONDS", 2.0)
    # Had the end waited for those that hang, they would have failed by themselves.
    up = {"judge": {"script": ["ok", "hang", "hang"], "held": True}}
    async with grading("rubric", tmp_path, up=up) as (g, ups):
        found = [await ask(g.port, chat()) for _ in range(3)]
        stopping = asyncio.create_task(g.stop())
        await until(lambda: g.grader._closed)
        ups.judge.held = False
        await stopping
        assert {answer.status for answer in found} == {200}
        assert len(g.ledger.records) == 3
        assert len(g.ledger.feedback) == 1
        assert lost(g) == {"stopped": 2}


@pytest.mark.parametrize("fault", ["cut", "error_middle"])
async def test_answers_that_are_not_whole_are_not_graded_and_keep_no_place(
    tmp_path, fault, monkeypatch
):
    monkeypatch.setattr(grader_module, "MAX_WAITING", 1)
    async with grading("rubric", tmp_path, up={"large": {"script": [fault] * 3}}) as (g, _):
        for _ in range(3):
            await ask(g.port, chat(stream=True))
        assert await graded(g) == []
        await ask(g.port, chat(stream=True))
        assert len(await graded(g)) == 1
        assert lost(g) == {}


async def test_a_client_that_leaves_keeps_no_place(tmp_path, monkeypatch):
    monkeypatch.setattr(grader_module, "MAX_WAITING", 1)
    async with grading("rubric", tmp_path, up={"large": {"delay": 0.2}}) as (g, ups):
        async with Client(g.port) as client:
            client.send(request_bytes(chat(stream=True)))
            await client.reader.readuntil(b"data: ")
        (record,) = await rows(g)
        assert record.outcome == "cancelled"
        ups.large.delay = 0.0
        await ask(g.port, chat())
        assert len(await graded(g)) == 1
        assert lost(g) == {}


@pytest.mark.parametrize("stream", [False, True])
async def test_long_answers_are_cut_for_the_judge(tmp_path, stream):
    text = f"{'x' * 5000} " * 40
    async with grading("rubric", tmp_path, ("one", text)) as (g, ups):
        found = await ask(g.port, chat(stream=stream))
        assert len(await graded(g)) == 1
    assert (said(found.body) if stream else answer_of(found)).strip() == text.strip()
    content = bodies_of(ups.judge)[0]["messages"][0]["content"]
    assert 8_000 < len(content) < 12_000


async def test_long_requests_and_several_turns(tmp_path):
    async with grading("rubric", tmp_path) as (g, ups):
        await ask(g.port, chat("x" * grader_module.MAX_REQUEST_BYTES))
        assert await graded(g) == []
        turns = [
            ("system", "Be brief."),
            ("user", "Hello"),
            ("assistant", "Yes?"),
            ("user", "2 + 2?"),
        ]
        messages = [{"role": role, "content": text} for role, text in turns]
        await ask(g.port, {"model": "mild", "messages": messages})
        await graded(g)
    content = bodies_of(ups.judge)[0]["messages"][0]["content"]
    assert "system: Be brief." in content
    assert "assistant: Yes?" in content


async def test_a_judge_reads_tool_calls(tmp_path):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {}}}]
    async with grading("rubric", tmp_path, own={"judge": {"unsupported": ["tools"]}}) as (g, ups):
        await ask(g.port, chat(tools=tools))
        (one,) = await graded(g)
    assert one.score == 0.7
    assert "weather" in bodies_of(ups.judge)[0]["messages"][0]["content"]


async def test_the_ledger_keeps_the_score_and_nothing_of_the_answer(tmp_path):
    for keep_text in (False, True):
        path = tmp_path / f"{keep_text}.sqlite"
        ledger = LedgerSettings(path=path, keep_text=keep_text)
        parts = {"ledger": ledger, "ledger_writer": LedgerWriter(ledger, ["small", "large"])}
        texts, judge = ("one", "secretanswer"), "A reason.\nScore: 0.5"
        async with grading("rubric", tmp_path, texts, judge, **parts) as (g, _):
            found = await ask(g.port, chat())
            await g.stop()
        (one,) = read_feedback(path)
        assert (one.request_id, one.score) == (found.headers["x-mild-request-id"], 0.5)
        assert one.comment is None
        content = b"".join(file.read_bytes() for file in tmp_path.glob(f"{keep_text}.sqlite*"))
        assert b"secretanswer" not in content


async def test_workers_share_the_budget_and_clients_lose_no_answer_at_the_end(tmp_path):
    usage = {"prompt_tokens": 15_000, "completion_tokens": 3}
    async with FakeUpstream() as up, FakeUpstream(text="Score: 1", usage=usage) as judge:
        dear = ("price_in = 1000", "price_out = 1")
        extra = '[grading]\nmethod = "rubric"\nexpert = "judge"\nshare = 1\nbudget_day = 80'
        experts = [("one", up.base_url, "price_in = 1"), ("judge", judge.base_url, *dear)]
        write_files(tmp_path, experts, priced_router(("one",), (0.1,), (0.01,)), extra, workers=2)
        async with served(tmp_path) as g:
            found = await asyncio.gather(*(ask(g.port, chat(stream=k % 2 == 0)) for k in range(24)))
            # The worker that is killed may be the only one that grades.
            await until(lambda: judge.answered >= 1)
            os.kill(g.workers()[0], signal.SIGKILL)
            ask_later = [asyncio.create_task(ask(g.port, chat())) for _ in range(4)]
            found += await asyncio.gather(*ask_later)
            assert await g.stop() == 0
    assert [(answer.status, answer.whole) for answer in found] == [(200, True)] * 28
    scores = list(read_feedback(tmp_path / "ledger.sqlite"))
    known = {record.request_id for record in read_ledger(tmp_path / "ledger.sqlite")}
    assert len(known) >= 4
    assert {one.request_id for one in scores} <= known
    assert judge.answered >= 1
    assert judge.answered * 15 <= 80


async def test_nothing_is_graded_without_the_table_and_its_account_is_not_shown(tmp_path):
    async with FakeUpstream() as up, gateway([expert("one", up)]) as g:
        assert (await ask(g.port, chat())).status == 200
        assert "(grader)" not in g.app.access.spend()["keys"]
    assert Access(Settings()).grader is None
