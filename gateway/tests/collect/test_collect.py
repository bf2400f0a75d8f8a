"""Asking, against an endpoint that misbehaves."""

from __future__ import annotations

import asyncio

import pytest

from fake_endpoint import FakeEndpoint
from mild.errors import MildError, OptionError
from mild_gateway.collect.collector import ask_pending
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.questions import Question
from mild_gateway.collect.runs import plan_runs
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Price, Usage, most_tokens
from waiting import PATIENCE, until

pytest.importorskip("aiohttp")


def questions(count):
    return [Question(f"What is {i}?", (str(i),), "numeric") for i in range(count)]


def expert(endpoint, **settings):
    usual = {
        "name": "small",
        "price": Price(),
        "base_url": endpoint.base_url,
        "model": "tiny",
        "total_seconds": 20.0,
    }
    usual |= settings
    price = usual.pop("price")
    usual |= {
        "price_in": price.per_million_in,
        "price_out": price.per_million_out,
        "price_per_query": price.per_query,
    }
    return Expert(**usual)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Three attempts at a question, with short pauses between them."""
    monkeypatch.setattr("mild_gateway.collect.collector.MAX_ATTEMPTS", 3)
    monkeypatch.setattr("mild_gateway.collect.collector.FIRST_PAUSE", 0.01)


@pytest.fixture
def ask(tmp_path):
    """Ask experts questions, on one ledger; gives a run per expert."""

    def run(items, *experts, samples=None, **options):
        with Ledger(tmp_path / "l.sqlite") as ledger:
            runs = plan_runs(items, experts, ledger, samples=samples)
            asyncio.run(ask_pending(runs, items, ledger, **options))
            return runs

    return run


def test_every_question_is_asked_once_and_answers_are_kept(ask):
    with FakeEndpoint(answer=lambda prompt: prompt[::-1]) as endpoint:
        (run,) = ask(questions(20), expert(endpoint))
        assert max(endpoint.asked().values()) == 1
        assert (run.asked, run.failed, run.attempts, run.in_flight) == (20, 0, 20, 0)
        for prompt, key in zip(run.prompts, run.keys, strict=True):
            assert run.answers[key].response == prompt[::-1]
            assert run.answers[key].usage == Usage(10, 2)
        (again,) = ask(questions(25), expert(endpoint))
        assert (again.from_ledger, again.asked) == (20, 5)
        assert len(endpoint.requests) == 25


def test_equal_questions_are_asked_once(ask):
    with FakeEndpoint() as endpoint:
        (run,) = ask(questions(3) * 4, expert(endpoint))
    assert len(endpoint.requests) == 3
    assert all(key in run.answers for key in run.keys)


def test_another_model_system_or_limit_is_another_question(ask):
    with FakeEndpoint() as endpoint:
        for settings in ({}, {"model": "other"}, {"system": "Be brief."}, {"max_tokens": 3}, {}):
            ask(questions(2), expert(endpoint, **settings))
        assert len(endpoint.requests) == 8
        ask(questions(2), expert(endpoint, name="renamed", price=Price(1.0)))
        assert len(endpoint.requests) == 8


@pytest.mark.parametrize(
    "trouble",
    [
        ("status", 429, {"Retry-After": "0.05"}, "slow down"),
        ("status", 500, {}, "oops"),
        ("status", 503, {}, "busy"),
        "cut",
        "close",
        "html",
        "list",
        ("body", {"choices": []}),
        ("body", {"error": {"code": 502, "message": "upstream"}}),
    ],
)
def test_trouble_is_asked_again(ask, trouble):
    with FakeEndpoint(script=[trouble, trouble]) as endpoint:
        (run,) = ask(questions(3), expert(endpoint, max_in_flight=1))
    assert len(run.answers) == 3
    assert run.attempts == len(endpoint.requests) == 5
    assert sum(run.reasons.values()) == 2


def test_an_endpoint_that_hangs_is_left_after_its_time(ask):
    with FakeEndpoint(script=["hang"]) as endpoint:
        (run,) = ask(questions(2), expert(endpoint, total_seconds=0.3))
    assert len(run.answers) == 2
    assert run.reasons == {"no reply within 0.3 s": 1}


def test_an_endpoint_that_is_not_there_is_given_up_and_the_others_go_on(ask, monkeypatch):
    monkeypatch.setattr("mild_gateway.collect.collector.MAX_ATTEMPTS", 1)
    with FakeEndpoint() as gone:
        pass
    with FakeEndpoint() as endpoint:
        lost, found = ask(
            questions(12),
            expert(gone, max_in_flight=1, name="gone"),
            expert(endpoint),
        )
    assert lost.failed == lost.asked == 10
    assert "10 questions in a row had no answer (no connection" in lost.stopped
    assert len(found.answers) == 12


def test_attempts_end_and_the_next_run_tries_again(ask):
    with FakeEndpoint(script=[("status", 500, {}, "oops")] * 3) as endpoint:
        (run,) = ask(questions(2), expert(endpoint, max_in_flight=1))
        assert (run.asked, run.failed, len(run.answers)) == (2, 1, 1)
        (again,) = ask(questions(2), expert(endpoint))
        assert (again.asked, again.failed, len(again.answers)) == (1, 0, 2)
    assert sorted(endpoint.asked().values()) == [1, 4]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusing_endpoint_is_asked_no_more_and_the_others_go_on(ask, status):
    with (
        FakeEndpoint(script=[("status", status, {}, "no")] * 50) as closed,
        FakeEndpoint() as endpoint,
    ):
        lost, found = ask(
            questions(30), expert(closed, name="closed", max_in_flight=2), expert(endpoint)
        )
    assert lost.stopped == f"HTTP {status}: no"
    assert len(closed.requests) <= 2
    assert len(found.answers) == 30


def test_a_wrong_question_is_not_asked_again_and_the_others_go_on(ask):
    with FakeEndpoint(script=[("status", 400, {}, "too long")]) as endpoint:
        (run,) = ask(questions(5), expert(endpoint, max_in_flight=1))
    assert (run.failed, len(run.answers), run.stopped) == (1, 4, None)
    assert max(endpoint.asked().values()) == 1


def test_many_wrong_questions_do_not_close_an_endpoint_that_answers_others(ask):
    refused = [("status", 400, {}, "too long")] * 15
    with FakeEndpoint(script=["answer", *refused]) as endpoint:
        (run,) = ask(questions(20), expert(endpoint, max_in_flight=1))
    assert (run.failed, len(run.answers), run.stopped) == (15, 5, None)
    with FakeEndpoint(script=refused) as endpoint:
        (run,) = ask(questions(20), expert(endpoint, max_in_flight=1))
    assert (run.failed, len(run.answers)) == (10, 0)
    assert run.stopped.startswith("10 questions in a row had no answer")


def test_retry_after_holds_all_workers_of_the_endpoint(ask):
    script = [("status", 429, {"Retry-After": "0.6"}, "wait")]
    with FakeEndpoint(script=script, delay=0.05) as endpoint:
        (run,) = ask(questions(12), expert(endpoint, max_in_flight=3))
    assert len(run.answers) == 12
    times = [request["time"] for request in endpoint.requests]
    # Those sent before the refusal arrived, then nothing until the time is over.
    early = [moment for moment in times if moment - times[0] < 0.5]
    assert len(early) <= 6
    assert times[len(early)] - times[0] >= 0.6


def test_a_wait_longer_than_allowed_stops_the_expert(ask):
    with FakeEndpoint(script=[("status", 429, {"Retry-After": "3600"}, "later")]) as endpoint:
        (run,) = ask(questions(5), expert(endpoint, max_in_flight=1))
    assert run.stopped == "it asks to wait 3600 s, longer than 120 s"
    assert len(endpoint.requests) == 1


def test_no_more_are_in_flight_than_allowed(ask):
    with FakeEndpoint(delay=0.03) as endpoint:
        ask(questions(20), expert(endpoint, max_in_flight=3))
    assert endpoint.most_in_flight == 3


def test_no_more_are_sent_in_a_minute_than_allowed(tmp_path):
    items = questions(5)

    async def story(endpoint, ledger, runs):
        stop = asyncio.Event()
        task = asyncio.create_task(ask_pending(runs, items, ledger, stop=stop))
        await until(lambda: len(runs[0].answers) == 3)
        await asyncio.sleep(0.1)
        stop.set()
        await asyncio.wait_for(task, PATIENCE)

    with FakeEndpoint() as endpoint, Ledger(tmp_path / "l.sqlite") as ledger:
        small = expert(endpoint, requests_per_minute=3.0, max_in_flight=4)
        runs = plan_runs(items, [small], ledger, samples={"small": 2})
        asyncio.run(story(endpoint, ledger, runs))
        assert len(endpoint.requests) == 3
        assert (runs[0].asked, runs[1].asked) == (3, 0)


def test_missing_usage_is_estimated_and_charged_at_its_most(ask):
    price = Price(per_million_in=1e6, per_million_out=1e6)
    with FakeEndpoint(answer=lambda prompt: "12345678", script=["no usage"]) as endpoint:
        (run,) = ask(questions(1), expert(endpoint, price=price, max_tokens=100))
    (answer,) = run.answers.values()
    prompt = run.prompts[0]
    assert answer.usage == Usage(-(-len(prompt) // 4), 2, estimated=True)
    assert answer.price == answer.usage.tokens_in + 2
    assert answer.charged == most_tokens(prompt) + 100


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("limit", [0.0, 0.5, 2.0])
def test_the_spending_limit_holds(ask, limit, concurrency):
    # Every answer costs 0.1 dollars; up to 0.2 are set aside for it.
    price = Price(per_million_in=0.0, per_million_out=10_000.0)
    with FakeEndpoint(usage=(10, 10), delay=0.01) as endpoint:
        small = expert(endpoint, price=price, max_tokens=20, max_in_flight=concurrency)
        (run,) = ask(questions(30), small, max_spend=limit)
        assert 0.1 * endpoint.answered <= limit + 1e-9
        # It stops late: only what one more could have cost is left.
        assert run.spent > limit - 0.2 - 1e-9
        assert run.stopped == "the spending limit is reached"
        (again,) = ask(questions(30), small, max_spend=limit)
        assert again.attempts == 0
        (more,) = ask(questions(30), small, max_spend=100)
        assert len(more.answers) == 30


def test_lost_replies_count_against_the_limit(ask):
    price = Price(per_million_in=0.0, per_million_out=10_000.0)
    with FakeEndpoint(script=["cut"] * 100) as endpoint:
        small = expert(endpoint, price=price, max_tokens=10, max_in_flight=1)
        (run,) = ask(questions(9), small, max_spend=0.35)
    assert len(endpoint.requests) == 3
    assert run.lost == pytest.approx(0.3)
    assert run.stopped == "the spending limit is reached"


def test_a_free_expert_goes_on_when_the_money_is_gone(ask):
    price = Price(per_query=1.0)
    with FakeEndpoint() as endpoint, FakeEndpoint() as free:
        paid, rest = ask(
            questions(10),
            expert(endpoint, name="paid", price=price),
            expert(free, name="free", price=Price(per_query=0.0)),
            max_spend=3.0,
        )
    assert (len(paid.answers), len(rest.answers)) == (3, 10)


def test_an_endpoint_that_counts_more_than_was_thought_possible_is_believed(ask):
    # 10 tokens were allowed; it takes 100 every time.
    price = Price(per_million_in=0.0, per_million_out=1e6)
    with FakeEndpoint(usage=(10, 100)) as endpoint:
        small = expert(endpoint, price=price, max_tokens=10, max_in_flight=1)
        ask(questions(20), small, max_spend=350)
    assert len(endpoint.requests) == 3


def test_a_limit_needs_prices(ask):
    with FakeEndpoint() as endpoint:
        with pytest.raises(OptionError, match="needs the price of every expert; 'small' has none"):
            ask(questions(1), expert(endpoint), max_spend=1.0)
        assert endpoint.requests == []


def test_stop_lets_what_is_in_flight_come_in(tmp_path):
    items = questions(50)

    async def story(endpoint, ledger, runs):
        stop = asyncio.Event()
        task = asyncio.create_task(ask_pending(runs, items, ledger, stop=stop))
        await until(lambda: len(endpoint.requests) > endpoint.most_answers)
        stop.set()
        endpoint.answer_all()
        await task

    with (
        FakeEndpoint(most_answers=8) as endpoint,
        Ledger(tmp_path / "l.sqlite") as ledger,
    ):
        runs = plan_runs(items, [expert(endpoint)], ledger)
        asyncio.run(story(endpoint, ledger, runs))
        assert len(runs[0].answers) == len(endpoint.requests) < 20
        assert runs[0].failed == 0


def test_stop_does_not_wait_for_the_next_attempt(tmp_path):
    items = questions(1)

    async def story(endpoint, ledger, runs):
        stop = asyncio.Event()
        task = asyncio.create_task(ask_pending(runs, items, ledger, stop=stop))
        await until(lambda: endpoint.requests)
        await asyncio.sleep(0.2)
        stop.set()
        await asyncio.wait_for(task, PATIENCE)

    busy = [("status", 429, {"Retry-After": "100"}, "wait")]
    with FakeEndpoint(script=busy) as endpoint, Ledger(tmp_path / "l.sqlite") as ledger:
        runs = plan_runs(items, [expert(endpoint)], ledger)
        asyncio.run(story(endpoint, ledger, runs))
        assert runs[0].failed == 1


def test_reasons_hold_nothing_that_moves_a_cursor(ask):
    with FakeEndpoint(script=[("status", 400, {}, "red\x1b[31m\x07")]) as endpoint:
        (run,) = ask(questions(2), expert(endpoint, max_in_flight=1))
    assert run.reasons == {"HTTP 400: red [31m ": 1}


def test_a_ledger_that_cannot_be_written_stops_everything(tmp_path, monkeypatch):
    from mild.errors import DataFileError

    def fail(self, *_):
        raise DataFileError("the disk is full")

    monkeypatch.setattr(Ledger, "record_answer", fail)
    with FakeEndpoint(delay=0.02) as endpoint, Ledger(tmp_path / "l.sqlite") as ledger:
        items = questions(50)
        runs = plan_runs(items, [expert(endpoint)], ledger)
        with pytest.raises(DataFileError, match="the disk is full"):
            asyncio.run(ask_pending(runs, items, ledger))
        assert len(endpoint.requests) <= 8


def test_progress_counts_to_the_end_and_tells_the_spending(ask):
    told = []
    with FakeEndpoint() as endpoint:
        small = expert(endpoint, price=Price(per_query=0.25))
        ask(questions(4), small, progress=lambda *step: told.append(step))
    assert told[0][:2] == (0, 4)
    assert told[-1] == (4, 4, "small 4/4 $1.0000")


def test_samples_are_experts_of_their_own_and_resume(ask):
    with FakeEndpoint() as endpoint:
        small = expert(endpoint, price=Price(per_query=0.25))
        (alone,) = ask(questions(4), small)
        runs = ask(questions(4), small, samples={"small": 3})
        assert [run.name for run in runs] == ["small", "small#2", "small#3"]
        assert [(run.from_ledger, run.asked) for run in runs] == [(4, 0), (0, 4), (0, 4)]
        assert runs[0].keys == alone.keys
        assert len({key for run in runs for key in run.keys}) == 12
        again = ask(questions(4), small, samples={"small": 3})
        assert [run.from_ledger for run in again] == [4, 4, 4]
        assert set(endpoint.asked().values()) == {3}


def test_samples_count_against_the_limit_and_stop_with_their_expert(ask):
    with FakeEndpoint() as endpoint:
        small = expert(endpoint, price=Price(per_query=0.25))
        runs = ask(questions(4), small, samples={"small": 3}, max_spend=1.25)
    assert len(endpoint.requests) == sum(run.asked for run in runs) == 5
    assert [len(run.answers) for run in runs] == [4, 1, 0]
    assert runs[1].stopped == runs[2].stopped is not None


def test_samples_share_the_limits_of_their_expert(ask):
    with FakeEndpoint(delay=0.02) as endpoint:
        ask(questions(4), expert(endpoint, max_in_flight=2), samples={"small": 3})
        assert endpoint.most_in_flight <= 2


def test_an_expert_with_a_number_in_its_name_is_no_sample(ask):
    """The first one stops at once; the second is asked all the same."""
    with FakeEndpoint() as endpoint, FakeEndpoint(script=[("status", 401, {}, "no")] * 9) as closed:
        first, second = (expert(one, name=f"team#{k}") for k, one in enumerate((closed, endpoint)))
        runs = ask(questions(3), first, second)
    assert runs[0].stopped
    assert len(runs[1].answers) == 3


def test_two_runs_of_one_name_are_refused(ask):
    with FakeEndpoint() as endpoint:
        other = expert(endpoint, name="small#2", model="m2")
        with pytest.raises(OptionError, match="small#2"):
            ask(questions(1), expert(endpoint), other, samples={"small": 2})


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"large": 2}, "samples must name experts that are asked (small); got 'large'."),
        ({"small": 0}, "samples must be an integer in [1, 100]; got 0."),
        ({"small": 2.5}, "samples must be an integer in [1, 100]; got 2.5."),
        ({"small": 2}, "with the seed in its extra, all samples would be equal."),
    ],
)
def test_samples_that_make_no_sense_are_refused(samples, message):
    small = Expert("small", "http://h/v1", "m", extra={"seed": 1})
    with pytest.raises(MildError) as caught:
        plan_runs(questions(1), [small], None, samples=samples)
    assert message in str(caught.value)
    assert caught.value.code == "invalid_samples"


def test_log_probabilities_are_kept_where_the_endpoint_tells_them(ask):
    tokens = [{"token": "4", "logprob": -0.5}, {"token": ".", "logprob": -1.5}]
    choice = {"message": {"content": "4."}, "logprobs": {"content": tokens}}
    with FakeEndpoint(script=[("body", {"choices": [choice]})]) as endpoint:
        asked = expert(endpoint, max_in_flight=1, extra={"logprobs": True})
        for _ in range(2):
            (run,) = ask(questions(2), asked)
            found = [run.answers[key].log_probability for key in run.keys]
            assert found == [-1.0, None]
        assert endpoint.requests[0]["body"]["logprobs"] is True
