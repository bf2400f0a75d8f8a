"""Experts fail, before their first word or after it: who answers then, what is charged and written down."""

from __future__ import annotations

import json
import socket
from collections import Counter

import pytest

from journeys import adapter
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
from model_server import ModelServer

pytestmark = pytest.mark.slow

# A question for which the router chooses small.
SUM = one_question("plus")
MAX_TOKENS = 100
# What an expert has certainly not done, nobody pays for.
FREE_FAULTS = {
    "server error": {"status": 500},
    "overload": {"status": 529},
    "rate limit": {"status": 429},
    "wrong key": {"status": 401},
    "unknown model": {"status": 404},
}
# These may have been worked for.
BROKEN_ANSWERS = {
    "half of it": {"fault": "cut"},
    "not JSON": {"body": "<html>Welcome</html>"},
    "no answer in it": {"body": {"object": "chat.completion"}},
}
BROKEN_STREAMS = {
    "nothing of it": {"fault": "cut", "events": 0},
    "no stream": {"body": "<html>Welcome</html>"},
}
# Whether a stream that begins with an error has cost something is not said.
ERROR_AS_STREAM = {
    "body": 'data: {"error": {"message": "no"}}\n\n',
    "headers": {"content-type": "text/event-stream"},
}


@pytest.fixture(scope="module")
def models():
    with ModelServer() as models:
        models.set_answers({SUM: "Five apples and two pears."})
        yield models


@pytest.fixture(scope="module")
def service(tmp_path_factory, models):
    folder = tmp_path_factory.mktemp("fallback")
    fit_router(folder)
    adapter.write_config(folder, experts_of(models))
    with serving(folder, models) as service:
        yield service


def body_of(question, model=adapter.ROUTER_MODEL):
    return adapter.chat(question, model) | {"max_tokens": MAX_TOKENS}


def most_dollars(name):
    """What an attempt may cost that has answered nothing: no token is shorter than a byte."""
    price_in, price_out = PRICES[name]
    return (len(json.dumps(body_of(SUM))) * price_in + MAX_TOKENS * price_out) / 1e6


def ask(service, question, streamed, model=adapter.ROUTER_MODEL):
    send = service.stream if streamed else service.post
    return send(adapter.CHAT, body_of(question, model))


def check_another_answers(service, streamed, is_there=True):
    """Ask a sum while small fails, which is there or not; the row of the answer, which is another's."""
    service.received()
    answer = ask(service, SUM, streamed)
    name = answer.headers[adapter.EXPERT]
    assert answer.status == 200
    assert name != "small"
    said = joined(answer.document) if streamed else adapter.said(answer.document)
    assert said == "Five apples and two pears."
    (row,) = service.rows([answer])
    assert (row.chosen, row.expert, row.tokens) == ("small", name, TOKENS[name])
    assert (row.status, row.outcome, row.streamed) == (200, "ok", streamed)
    # Of the attempts of the row, all but the last were small's.
    assert row.attempts >= 2
    sent = Counter(entry["model"] for entry in service.received())
    assert sent.pop("small-model", 0) == (row.attempts - 1 if is_there else 0)
    assert sent == {f"{name}-model": 1}
    return row


def recover(service):
    """Small answers again; its failures are forgotten, and it is chosen as before."""
    service.set_rules({})
    for model in ("small", adapter.ROUTER_MODEL):
        assert ask(service, SUM, False, model).headers[adapter.EXPERT] == "small"


def test_another_expert_answers_for_one_that_fails(service):
    for streamed in (False, True):
        for fault in FREE_FAULTS.values():
            service.set_rules({"small": fault})
            row = check_another_answers(service, streamed)
            assert row.dollars == pytest.approx(DOLLARS[row.expert])
            recover(service)
        for fault in (BROKEN_STREAMS if streamed else BROKEN_ANSWERS).values():
            service.set_rules({"small": fault})
            row = check_another_answers(service, streamed)
            lost = row.dollars - DOLLARS[row.expert]
            assert 0 < lost <= (row.attempts - 1) * most_dollars("small")
            recover(service)
    service.set_rules({"small": ERROR_AS_STREAM})
    check_another_answers(service, streamed=True)
    recover(service)


@pytest.mark.parametrize("is_there", [True, False], ids=["too slow", "not there"])
def test_another_expert_answers_for_one_that_does_not(models, tmp_path, is_there):
    fit_router(tmp_path)
    experts = experts_of(models)
    with socket.socket() as nobody:
        # It is bound, and nobody listens.
        nobody.bind(("127.0.0.1", 0))
        if is_there:
            experts["small"] |= adapter.time_limits(2)
        else:
            experts["small"]["base_url"] = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1"
        adapter.write_config(tmp_path, experts)
        with serving(tmp_path, models) as service:
            service.set_rules({"small": {"fault": "hang"}})
            for streamed in (False, True):
                row = check_another_answers(service, streamed, is_there)
                # What was sent may have been worked on, and only that may cost something.
                lost = row.dollars - DOLLARS[row.expert]
                assert (0 < lost <= most_dollars("small")) if is_there else abs(lost) < 1e-9
            refused = service.post(adapter.CHAT, body_of(SUM, "small"))
            status, code = (504, "expert_timeout") if is_there else (502, "expert_connect")
            assert (refused.status, adapter.error_code(refused.document)) == (status, code)
            (row,) = service.rows([refused])
            assert (row.expert, row.outcome, row.status) == (None, "failed", status)
            assert (0 < row.dollars <= most_dollars("small")) if is_there else row.dollars == 0


def test_nobody_answers(service):
    for streamed in (False, True):
        for status, shown, code in (
            (500, 502, "expert_server"),
            (429, 429, "expert_rate"),
            (401, 502, "expert_credentials"),
        ):
            service.set_rules({name: {"status": status} for name in PRICES})
            service.received()
            refused = service.post(adapter.CHAT, body_of(SUM) | {"stream": streamed})
            assert (refused.status, adapter.error_code(refused.document)) == (shown, code)
            if status == 429:
                assert float(refused.headers["retry-after"]) > 0
            received = service.received()
            assert len({entry["model"] for entry in received}) > 1
            (row,) = service.rows([refused])
            assert (row.chosen, row.expert, row.outcome) == ("small", None, "failed")
            assert (row.status, row.attempts) == (shown, len(received))
            assert row.dollars == 0
            for name in PRICES:
                service.set_rules({})
                assert ask(service, SUM, False, name).status == 200


def test_whom_no_other_expert_replaces(service):
    # Who names an expert wants its answer, and no other.
    service.set_rules({"medium": {"status": 500}})
    service.received()
    refused = service.post(adapter.CHAT, body_of(SUM, "medium"))
    assert (refused.status, adapter.error_code(refused.document)) == (502, "expert_server")
    assert {entry["model"] for entry in service.received()} == {"medium-model"}

    # An expert that refuses the request itself has answered it.
    error = {"message": "too hot: 7719", "type": "invalid_request_error", "code": "hot"}
    service.set_rules({"small": {"status": 422, "body": {"error": error}}})
    told = service.post(adapter.CHAT, body_of(SUM))
    assert told.status == 422
    assert told.document["error"]["message"] == error["message"]
    assert adapter.error_code(told.document) == error["code"]
    assert [entry["model"] for entry in service.received()] == ["small-model"]
    rows = service.rows([refused, told])
    assert [(row.outcome, row.status, row.dollars) for row in rows] == [
        ("failed", 502, 0),
        ("failed", 422, 0),
    ]
    service.set_rules({})
    assert ask(service, SUM, False, "medium").status == 200


def test_a_stream_that_breaks_off_does_not_end_as_if_it_were_whole(service):
    for model in (adapter.ROUTER_MODEL, "small"):
        service.set_rules({"small": {"fault": "cut", "events": 4}})
        service.received()
        broken = service.stream(adapter.CHAT, body_of(SUM, model))
        assert broken.headers[adapter.EXPERT] == "small"
        *pieces, last = broken.document
        assert joined(pieces) == "Five apples and"
        assert adapter.error_code(last) == adapter.STREAM_CUT
        assert DONE not in pieces
        # The client has begun to read: nobody else is asked.
        assert [entry["model"] for entry in service.received()] == ["small-model"]
        (row,) = service.rows([broken])
        assert (row.expert, row.outcome, row.attempts) == ("small", "cut", 1)
        assert 0 < row.dollars <= most_dollars("small")
        recover(service)
