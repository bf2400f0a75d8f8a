"""What is charged is what may have been spent, whatever a request says and whenever its client leaves."""

from __future__ import annotations

import json
import socket
from urllib.parse import urlsplit

import pytest

from journeys import adapter
from journeys.service import PRICES, TOKENS, fit_router, joined, one_question, serving
from model_server import ModelServer
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow

# Questions for which the router chooses small, and medium.
SUM, RIVER = one_question("plus"), one_question("river")
#: Tokens of an answer to a request that names no limit, by expert.
LIMITS = {"small": 40, "medium": 30, "large": 50}
# What an expert writes if nobody limits it.
MANY_WORDS = 16_000
BUDGET = 10.0
# Seconds until the first event of a stream; a plain answer may take longer.
FIRST_EVENT = 1.0


def dollars(name, tokens_in, tokens_out):
    price_in, price_out = PRICES[name]
    return (tokens_in * price_in + tokens_out * price_out) / 1e6


@pytest.fixture(scope="module")
def models():
    with ModelServer() as models:
        yield models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("charges")
    fit_router(folder)
    return folder


@pytest.fixture(scope="module")
def service(folder, models):
    """Experts behind a budget that is not used up; medium speaks Anthropic's API."""
    experts = {
        name: adapter.limited_expert(models.url, f"{name}-model", prices, LIMITS[name])
        for name, prices in PRICES.items()
    }
    experts["medium"] |= {"api": "anthropic"}
    experts["large"] |= adapter.first_event(FIRST_EVENT) | adapter.allowed_fields("top_k")
    given = adapter.settings(experts, access={"budget_day": BUDGET})
    adapter.write_settings(folder, given)
    with serving(folder, models) as service:
        yield service


@pytest.fixture
def asked(service):
    """The gateway; what was asked before is not counted, and the experts answer as usual."""
    service.set_rules({})
    # Rows come in the order in which requests have ended.
    service.rows([service.post(adapter.CHAT, adapter.chat(SUM))])
    service.new_rows(1)
    service.received()
    return service


def spent(service):
    """Dollars in the account of all requests."""
    return adapter.spent_dollars(service.get(adapter.METRICS).document)[adapter.ALL_KEYS]


# The limit of an answer.

CHAT = {"messages": [{"role": "user", "content": SUM}]}
UNLIMITED = {
    adapter.CHAT: CHAT,
    adapter.COMPLETIONS: {"prompt": SUM},
    adapter.RESPONSES: {"input": SUM},
}


@pytest.mark.parametrize("name", ["small", "medium"])
@pytest.mark.parametrize("path", UNLIMITED)
def test_a_request_without_a_limit_is_answered_with_no_more_than_was_reserved(asked, path, name):
    asked.set_rules({name: {"words": MANY_WORDS, "tokens": None} for name in LIMITS})
    answer = asked.post(path, {"model": name, **UNLIMITED[path]})
    assert answer.status == 200
    (entry,) = asked.received()
    assert adapter.sent_limit(entry["body"]) == LIMITS[name]
    # The client sees that its answer was cut.
    assert adapter.finish(path, answer.document) == adapter.CUT[path]
    (row,) = asked.new_rows(1)
    assert row.dollars <= dollars(name, len(json.dumps(entry["body"])), LIMITS[name])


def test_streams_and_other_experts_get_their_limit_and_a_client_keeps_its_own(asked):
    words = {"words": MANY_WORDS, "tokens": None}
    asked.set_rules({"small": {"status": 500}, "medium": words, "large": words})
    answer = asked.stream(adapter.CHAT, adapter.chat(SUM))
    assert answer.headers[adapter.EXPERT] == "medium"
    assert joined(answer.document).split() == ["word"] * LIMITS["medium"]
    sent = [(entry["model"], adapter.sent_limit(entry["body"])) for entry in asked.received()]
    assert set(sent) == {("small-model", LIMITS["small"]), ("medium-model", LIMITS["medium"])}

    asked.set_rules({"small": words})
    for field in ("max_tokens", "max_completion_tokens"):
        answer = asked.post(adapter.CHAT, {**adapter.chat(SUM), field: 7})
        assert adapter.said(answer.document).split() == ["word"] * 7
        (entry,) = asked.received()
        assert adapter.sent_limit(entry["body"]) == 7
    # What limits nothing is no limit.
    for wrong in (-1, 0, None):
        answer = asked.post(adapter.CHAT, {**adapter.chat(SUM), "max_tokens": wrong})
        (entry,) = asked.received()
        assert adapter.sent_limit(entry["body"]) == LIMITS["small"]


# The usage that an expert reports.


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("usage", "tokens_out"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 3015}, 3005),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "completion_tokens_details": {"reasoning_tokens": 3000},
            },
            3005,
        ),
        # Here the reasoning is counted already.
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 3005,
                "total_tokens": 3015,
                "completion_tokens_details": {"reasoning_tokens": 3000},
            },
            3005,
        ),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 3}, 5),
    ],
)
def test_reasoning_is_charged_wherever_it_is_reported(asked, usage, tokens_out, streamed):
    asked.set_rules({"small": {"tokens": usage, "text": "four"}})
    ask = asked.stream if streamed else asked.post
    assert ask(adapter.CHAT, adapter.chat(SUM)).status == 200
    (row,) = asked.new_rows(1)
    assert row.tokens == (10, tokens_out)
    assert row.dollars == pytest.approx(dollars("small", 10, tokens_out))


# Fields of a request.

UNKNOWN_FIELDS = {
    "models": ["openai/o1-pro"],
    "route": "fallback",
    "plugins": [{"id": "web"}],
    "fallbacks": ["large"],
    "api_base": "https://example.com",
    "modalities": ["audio"],
    "search_parameters": {"mode": "on"},
    "enable_search": True,
    "file_ids": ["file-1"],
    "attachments": [{"file_id": "file-1"}],
    "top_k": 40,
}


def chat_of(*parts, **more):
    """A chat request for small whose only turn has these parts, behind a text."""
    turn = {"role": "user", "content": [{"type": "text", "text": SUM}, *parts]}
    return {"model": "small", "messages": [turn], **more}


def refused(service, body, path=adapter.CHAT):
    """Code and field of a refusal that was given before anybody was asked."""
    answer = service.post(path, body)
    assert answer.status == 400, answer
    assert service.received() == []
    return adapter.error_code(answer.document), answer.document["error"].get("param")


@pytest.mark.parametrize("name", UNKNOWN_FIELDS)
def test_under_a_budget_fields_without_a_known_price_are_refused(asked, name):
    body = chat_of(**{name: UNKNOWN_FIELDS[name]})
    assert refused(asked, body) == (adapter.NOT_ALLOWED, name)


def test_so_are_those_of_tools_and_of_parts(asked):
    tool = {"type": "function", "function": {"name": "f"}}
    body = chat_of(tools=[tool, {**tool, "file_ids": ["file-1"]}])
    assert refused(asked, body) == (adapter.NOT_ALLOWED, "tools[1].file_ids")
    body = chat_of(tools=[{"googleSearch": {}}])
    assert refused(asked, body) == (adapter.NOT_ALLOWED, "tools[0].googleSearch")
    body = chat_of({"type": "text", "text": "a", "file_ids": ["file-1"]})
    assert refused(asked, body) == (adapter.NOT_ALLOWED, "messages[0].content[1].file_ids")


def test_an_expert_may_allow_a_field_and_known_ones_are_sent(asked):
    body = {**chat_of(top_k=40, seed=7, user="u", service_tier="auto"), "model": "large"}
    assert asked.post(adapter.CHAT, body).status == 200
    (entry,) = asked.received()
    assert {name: entry["body"][name] for name in ("top_k", "seed", "user")} == {
        "top_k": 40,
        "seed": 7,
        "user": "u",
    }


def test_searches_have_no_price_and_are_refused_under_a_budget(asked):
    for options in ({}, {"search_context_size": "low"}):
        body = chat_of(web_search_options=options)
        assert refused(asked, body) == (adapter.NOT_ALLOWED, "web_search_options")
    for kind in ("web_search_20250305", "code_execution_20250825"):
        body = {
            "model": "medium",
            "max_tokens": 9,
            "messages": CHAT["messages"],
            "tools": [{"type": kind, "name": "web_search"}],
        }
        answer = asked.post(adapter.MESSAGES, body)
        assert (answer.status, adapter.error_code(answer.document)) == (400, adapter.NOT_ALLOWED)
    assert asked.received() == []


MISSPELLED = [
    {"max_tokens": 1, "Max_Tokens": MANY_WORDS},
    {"Model": "o1-pro"},
    {"N": 50},
    {"max_to\u212aens": MANY_WORDS},
    {"Max_Tokens": None},
]


def check_misspelled(service):
    for fields in MISSPELLED:
        (name,) = fields.keys() - {"max_tokens"}
        assert refused(service, chat_of(**fields)) == (adapter.MISSPELLED, name)
    turn = {"role": "user", "content": SUM, "Content": "What else?"}
    assert refused(service, {"model": "small", "messages": [turn]}) == (
        adapter.MISSPELLED,
        "messages[0].Content",
    )
    part = {"type": "text", "text": "a", "Image_URL": {"url": "https://example.com/a.png"}}
    assert refused(service, chat_of(part)) == (
        adapter.MISSPELLED,
        "messages[0].content[1].Image_URL",
    )


def test_known_fields_in_another_case_are_refused(asked):
    check_misspelled(asked)


def test_also_without_a_budget_where_unknown_fields_are_passed_on(tmp_path, models):
    fit_router(tmp_path)
    experts = {
        name: adapter.limited_expert(models.url, f"{name}-model", prices, LIMITS[name])
        for name, prices in PRICES.items()
    }
    adapter.write_settings(tmp_path, adapter.settings(experts))
    with serving(tmp_path, models) as service:
        service.received()
        check_misspelled(service)
        body = chat_of(top_k=40, models=["a"])
        assert service.post(adapter.CHAT, body).status == 200
        (entry,) = service.received()
        assert entry["body"] == {**body, "model": "small-model"}


def test_headers_that_spend_or_mix_up_tenants_are_not_passed_on(asked):
    headers = {
        "idempotency-key": "k1",
        "anthropic-beta": "context-1m-2025-08-07",
        "openai-beta": "trial=v1",
        "anthropic-version": "2023-06-01",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    for name in ("small", "medium"):
        assert asked.post(adapter.CHAT, adapter.chat(SUM, name), headers).status == 200
        (entry,) = asked.received()
        assert not entry["headers"].keys() & set(list(headers)[:3])
        assert entry["headers"]["anthropic-version"] == "2023-06-01"
        assert entry["headers"]["traceparent"] == headers["traceparent"]


# Clients that leave, and answers that take long.


def leave(service, body, after=b""):
    """Send a request, and leave when these bytes have come; at once without any, when it is asked."""
    address = urlsplit(service.gateway.address)
    content = json.dumps(body).encode()
    head = f"POST {adapter.CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n"
    n_asked = len(service.models.received())
    with socket.create_connection((address.hostname, address.port), PATIENCE) as connection:
        connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + content)
        found = b""
        while after not in found:
            piece = connection.recv(65536)
            assert piece
            found += piece
        wait_until(lambda: len(service.models.received()) > n_asked)


def test_a_client_that_leaves_is_charged_what_the_expert_has_done(asked):
    before = spent(asked)
    late = {"delay": 1.0}
    asked.set_rules(dict.fromkeys(LIMITS, late))
    # One after the other: the rows come in this order.
    rows = []
    for name in ("small", "medium"):
        for streamed in (False, True):
            leave(asked, {**adapter.chat(SUM, name), "stream": streamed})
            rows += asked.new_rows(1)
            assert (rows[-1].expert, rows[-1].streamed) == (name, streamed)
    asked.set_rules({"small": {"pause": 0.1, "text": "one two three four five"}})
    leave(asked, {**adapter.chat(SUM, "small"), "stream": True}, after=b"two")
    rows += asked.new_rows(1)
    assert {row.outcome for row in rows} == {"cancelled"}
    assert [row.tokens for row in rows] == [TOKENS[row.expert] for row in rows]
    charged = sum(row.dollars for row in rows)
    assert charged == pytest.approx(sum(dollars(row.expert, *row.tokens) for row in rows))
    wait_until(lambda: spent(asked) == pytest.approx(before + charged))


def test_without_a_usage_it_is_charged_what_was_reserved_and_nobody_else_is_asked(asked):
    before = spent(asked)
    asked.set_rules({"small": {"fault": "hang"}, "large": {"fault": "hang", "events": 2}})
    body = {**adapter.chat(SUM), "max_tokens": 1000}
    leave(asked, body)
    leave(asked, {**body, "stream": True})
    leave(asked, {**body, "model": "large", "stream": True}, after=b"data")
    rows = asked.new_rows(3)
    assert {row.outcome for row in rows} == {"cancelled"}
    for row in rows:
        name = "large" if row.asked == "large" else "small"
        least = dollars(name, 0, 1000)
        assert least <= row.dollars <= least + dollars(name, len(json.dumps(body)) + 100, 0)
    assert len(asked.received()) == 3
    charged = sum(row.dollars for row in rows)
    wait_until(lambda: spent(asked) == pytest.approx(before + charged))
    # Their reservations have ended.
    asked.set_rules({})
    assert asked.post(adapter.CHAT, adapter.chat(SUM)).status == 200


def test_a_client_that_leaves_is_not_served_by_another_expert(asked):
    asked.set_rules({"small": {"status": 500, "delay": 1.0}})
    leave(asked, adapter.chat(SUM))
    (row,) = asked.new_rows(1)
    assert (row.outcome, row.attempts) == ("cancelled", 1)
    assert [entry["model"] for entry in asked.received()] == ["small-model"]
    assert row.dollars == 0


def test_a_plain_answer_may_take_longer_than_the_first_event_of_a_stream(asked):
    asked.set_rules({"large": {"delay": 3 * FIRST_EVENT}})
    answer = asked.post(adapter.CHAT, adapter.chat(SUM, "large"))
    assert answer.status == 200
    (row,) = asked.new_rows(1)
    assert (row.attempts, row.tokens) == (1, TOKENS["large"])
    assert len(asked.received()) == 1
    body = {**adapter.chat(SUM, "large"), "stream": True}
    refusal = asked.post(adapter.CHAT, body)
    assert (refusal.status, adapter.error_code(refusal.document)) == (504, "expert_timeout")
