"""A program asks by plain HTTP, for whole answers and streams, with tools, the router and named models."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mild as library
from journeys import adapter
from journeys.processes import mild, post_all
from journeys.service import (
    DOLLARS,
    DONE,
    PRICES,
    TOKENS,
    experts_of,
    fit_router,
    joined,
    one_question,
    serving,
)
from journeys.world import questions
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

# Fields that every expert gets as the client sent them.
FIELDS = {
    "temperature": 0.25,
    "top_p": 0.75,
    "max_tokens": 700,
    "stop": ["\n\n", "END"],
    "seed": 7,
    "logit_bias": {"50256": -100},
}
#: What an answer may say: more than one line, more than ASCII, and what JSON has to escape.
PROSE = 'Überlegt:\n\n  "391" – so steht\tes\\da; 数 😀\u2028und das war’s. ' * 5


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    fit_router(folder)
    with ModelServer() as models:
        adapter.write_config(folder, experts_of(models))
        with serving(folder, models) as service:
            yield service


def test_a_question_goes_to_the_expert_that_the_router_chooses(service):
    asked = questions(np.random.default_rng(1), {"plus": 8, "river": 8, "primes": 8})
    service.models.set_answers(asked)
    (service.folder / "questions.txt").write_text("\n".join(asked), encoding="utf-8")
    words = adapter.route(adapter.ROUTER, "questions.txt")
    chosen = adapter.read_routes(mild(service.folder, words).out)
    assert chosen == library.load(service.folder / adapter.ROUTER).route(list(asked))
    assert set(chosen) == set(PRICES)

    service.received()
    bodies = [adapter.chat(question) | FIELDS for question in asked]
    answers = post_all(service.gateway.address + adapter.CHAT, bodies)
    received = {entry["text"]: entry for entry in service.received()}
    assert len(received) == len(asked)
    for question, name, body, answer in zip(asked, chosen, bodies, answers, strict=True):
        assert answer.status == 200
        assert answer.headers[adapter.EXPERT] == name
        assert adapter.said(answer.document) == asked[question]
        assert answer.document["model"] == adapter.named_model(name, f"{name}-model")
        usage = answer.document["usage"]
        assert [usage["prompt_tokens"], usage["completion_tokens"]] == list(TOKENS[name])
        # The expert has got what the client sent, but for the name of the model.
        assert received[question]["body"] == {**body, "model": f"{name}-model"}
        assert received[question]["path"] == adapter.CHAT
    rows = service.rows(answers)
    assert len({row.request_id for row in rows}) == len(asked)
    for row, name in zip(rows, chosen, strict=True):
        assert (row.asked, row.chosen, row.expert) == (adapter.ROUTER_MODEL, name, name)
        assert (row.status, row.outcome, row.attempts, row.streamed) == (200, "ok", 1, False)
        assert row.tokens == TOKENS[name]
        assert row.dollars == pytest.approx(DOLLARS[name])


def test_a_conversation_is_decided_by_its_last_question_and_stays_with_its_expert(service):
    river, primes = one_question("river"), one_question("primes")
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": river},
        {"role": "assistant", "content": "Long."},
        {"role": "user", "content": [{"type": "text", "text": primes}]},
    ]
    service.received()
    body = {"model": adapter.ROUTER_MODEL, "messages": turns}
    answer = service.post(adapter.CHAT, body)
    assert answer.headers[adapter.EXPERT] == "large"
    (entry,) = service.received()
    assert entry["body"]["messages"] == turns

    # Without a session, each question is decided anew; a session keeps the expert of its first one.
    headers = {adapter.SESSION: "ticket 4711"}
    experts = []
    for kind in ("plus", "primes", "river"):
        for given in ({}, headers):
            answer = service.post(adapter.CHAT, adapter.chat(one_question(kind)), given)
            experts.append(answer.headers[adapter.EXPERT])
    assert experts == ["small", "small", "large", "small", "medium", "small"]
    another = {adapter.SESSION: "ticket 4712"}
    answer = service.post(adapter.CHAT, adapter.chat(primes), another)
    assert answer.headers[adapter.EXPERT] == "large"


def test_a_client_names_the_model(service):
    listed = {model["id"] for model in service.get(adapter.MODELS).document["data"]}
    assert listed >= {adapter.ROUTER_MODEL, adapter.DIRECT_MODEL, *PRICES}
    for name in listed:
        assert service.get(f"{adapter.MODELS}/{name}").document["id"] == name
    assert service.get(f"{adapter.MODELS}/nobody").status == 404

    service.received()
    river = one_question("river")
    answers = []
    for name in (*PRICES, adapter.DIRECT_MODEL):
        headers = {"x-request-id": f"mine-{name}"}
        answers.append(service.post(adapter.CHAT, adapter.chat(river, name), headers))
        assert answers[-1].headers["x-request-id"] == f"mine-{name}"
        assert adapter.said(answers[-1].document) == river
    experts = [answer.headers[adapter.EXPERT] for answer in answers]
    assert experts == [*PRICES, "medium"]
    assert [entry["model"] for entry in service.received()] == [f"{name}-model" for name in experts]
    rows = service.rows(answers)
    assert [row.chosen for row in rows] == [None, None, None, "medium"]
    assert [row.dollars for row in rows] == pytest.approx([DOLLARS[name] for name in experts])

    # What cannot be served is refused, and no expert hears of it.
    n_rows = len(service.all_rows())
    refusals = [
        (adapter.CHAT, adapter.chat(river, "nobody"), 404, "model_not_found"),
        (adapter.CHAT, b'{"model": "mild", "messages": [', 400, "invalid_body"),
        (adapter.CHAT, b"[]", 400, "invalid_body"),
        ("/v1/nothing", adapter.chat(river), 404, "not_found"),
        (adapter.CHAT, None, 405, "method_not_allowed"),
    ]
    for path, body, status, code in refusals:
        refused = service.post(path, body)
        assert (refused.status, adapter.error_code(refused.document)) == (status, code)
    assert service.post(adapter.CHAT, {"model": adapter.ROUTER_MODEL}).status == 400
    assert service.received() == []
    assert {row.outcome for row in list(service.all_rows().values())[n_rows:]} <= {"refused"}
    assert service.get(adapter.LIVE).status == service.get(adapter.READY).status == 200


def test_a_stream_says_and_costs_what_a_whole_answer_does(service):
    for kind, name in (("plus", "small"), ("river", "medium"), ("primes", "large")):
        question = one_question(kind, seed=2)
        service.models.set_answers({question: PROSE})
        whole = service.post(adapter.CHAT, adapter.chat(question))
        service.received()
        plain = service.stream(adapter.CHAT, adapter.chat(question))
        options = {"stream_options": {"include_usage": True}}
        with_usage = service.stream(adapter.CHAT, adapter.chat(question) | options)
        assert [entry["body"]["stream"] for entry in service.received()] == [True, True]
        assert adapter.said(whole.document) == PROSE
        for stream in (plain, with_usage):
            assert stream.headers[adapter.EXPERT] == name
            assert joined(stream.document) == PROSE
            texts = [event for event in stream.document if joined([event])]
            assert len(texts) > 10
            assert stream.document[-1] == DONE
            (reason,) = [
                choice["finish_reason"]
                for event in stream.document[:-1]
                for choice in event["choices"]
                if choice["finish_reason"]
            ]
            assert reason == "stop"
        # Only who asks for the usage gets it, and it is the last that is said.
        assert not any(event.get("usage") for event in plain.document[:-1])
        usages = [event.get("usage") for event in with_usage.document[:-1]]
        assert not any(usages[:-1])
        used = [usages[-1]["prompt_tokens"], usages[-1]["completion_tokens"]]
        assert used == list(TOKENS[name])
        rows = service.rows([whole, plain, with_usage])
        assert [row.streamed for row in rows] == [False, True, True]
        for row in rows:
            assert (row.expert, row.outcome, row.tokens) == (name, "ok", TOKENS[name])
            assert row.dollars == pytest.approx(DOLLARS[name])

    # An expert that reports no usage is charged by an estimate.
    service.set_rules({"large": {"tokens": None}})
    body = adapter.chat(question, "large") | {"max_tokens": 1000}
    answers = [service.post(adapter.CHAT, body), service.stream(adapter.CHAT, body)]
    service.set_rules({})
    price_in, price_out = PRICES["large"]
    # No token is shorter than a byte.
    most = len(json.dumps(body)) * price_in + 1000 * price_out
    for row in service.rows(answers):
        assert row.outcome == "ok"
        assert 0 < row.dollars <= most / 1e6


def test_a_client_hangs_up_in_the_middle_of_a_stream(service):
    question = one_question("river", seed=3)
    service.models.set_answers({question: PROSE})
    service.set_rules({"medium": {"fault": "hang", "events": 9}})
    service.received()
    body = adapter.chat(question) | {"stream": True, "max_tokens": 1000}
    with service.open(adapter.CHAT, body) as response:
        # The pieces come while the expert is still writing.
        begun = [json.loads(response.readline().removeprefix(b"data: "))]
        while len(begun) < 8:
            line = response.readline().strip()
            if line:
                begun.append(json.loads(line.removeprefix(b"data: ")))
        request_id = response.headers[adapter.REQUEST_ID]
    assert (PROSE).startswith(joined(begun))
    assert len(joined(begun)) > 20
    service.set_rules({})
    # The expert is let go, and what it has done is charged.
    (entry,) = service.received()
    wait_until(lambda: service.models.received("medium-model")[-1]["ended"] == "left")
    row = wait_until(lambda: service.all_rows().get(request_id))
    assert (row.expert, row.outcome, row.streamed) == ("medium", "cancelled", True)
    price_in, price_out = PRICES["medium"]
    assert 0 < row.dollars <= (len(json.dumps(entry["body"])) * price_in + 1000 * price_out) / 1e6
    # The gateway serves on, and the expert is not to blame.
    answer = service.post(adapter.CHAT, adapter.chat(question))
    assert (answer.status, answer.headers[adapter.EXPERT]) == (200, "medium")


def test_a_tool_is_called_and_its_result_is_given(service):
    schema = {
        "type": "object",
        "properties": {"town": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["town"],
        "additionalProperties": False,
    }
    tool = {"name": "weather", "description": 'The "weather".', "parameters": schema}
    body = adapter.chat(one_question("river")) | {
        "tools": [{"type": "function", "function": tool}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
    }
    given = {"town": 'Łódź "Ost"\n', "days": 3, "deep": {"list": [1, 2.5, None, True, "\\"]}}
    service.set_rules({"medium": {"tool": {"name": "weather", "arguments": given}}})
    service.received()
    whole = service.post(adapter.CHAT, body)
    stream = service.stream(adapter.CHAT, body)
    service.set_rules({})
    sent = {**body, "model": "medium-model"}
    # A stream is asked for its usage, whether or not the client wants it.
    streamed = {**sent, "stream": True, "stream_options": {"include_usage": True}}
    assert [entry["body"] for entry in service.received()] == [sent, streamed]
    (choice,) = whole.document["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert (call["type"], call["function"]["name"]) == ("function", "weather")
    assert json.loads(call["function"]["arguments"]) == given
    # The same call, in pieces.
    pieces = [
        piece
        for event in stream.document[:-1]
        for choice in event["choices"]
        for piece in choice["delta"].get("tool_calls", [])
    ]
    assert len(pieces) > 2
    assert (pieces[0]["id"], pieces[0]["function"]["name"]) == (call["id"], "weather")
    arguments = "".join(piece["function"].get("arguments", "") for piece in pieces)
    assert arguments == call["function"]["arguments"]

    # The result goes back, and an answer in words comes.
    result = {"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "blau"}'}
    turns = [*body["messages"], choice["message"], result]
    service.models.set_answers({result["content"]: PROSE})
    answers = [
        service.post(adapter.CHAT, body | {"messages": turns}),
        service.stream(adapter.CHAT, body | {"messages": turns}),
    ]
    assert adapter.said(answers[0].document) == joined(answers[1].document) == PROSE
    received = service.received()
    assert [entry["body"]["messages"] for entry in received] == [turns, turns]
    assert {entry["model"] for entry in received} == {"medium-model"}
    for row in service.rows([whole, stream, *answers]):
        assert (row.expert, row.outcome, row.tokens) == ("medium", "ok", TOKENS["medium"])
