"""What a stand-in answers to requests with tools, schemas and several choices."""

import asyncio
import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_cases import chat, events, said
from mild_gateway.demo.answers import STAND_INS
from mild_gateway.demo.stand_in import StandIn, make_instance

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TIME = {"type": "function", "function": {"name": "read_clock"}}


def post(document, path="/v1/chat/completions", stand_in="rules"):
    """Status and body that a stand-in answers with."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    sent = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"x")],
        "asgi": {"spec_version": "2.4"},
    }
    asyncio.run(StandIn("model", STAND_INS[stand_in])(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


def answered(document, **more):
    status, body = post(document, **more)
    assert status == 200
    return json.loads(body)


@pytest.mark.parametrize(
    ("stop", "content"),
    [("9", "3"), (["x", "1"], "39"), ([], "391"), (None, "391"), ("", "391"), (["91", "3"], "")],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_ends_before_the_stop_sequence(stop, content, streamed):
    document = chat("What is 17 * 23?", stop=stop, stream=streamed)
    if streamed:
        assert said(post(document)[1]) == content
    else:
        assert choice_of(document) == ("stop", {"role": "assistant", "content": content})


def choice_of(document, **more):
    (choice,) = answered(document, **more)["choices"]
    return choice["finish_reason"], choice["message"]


def streamed(document, **more):
    """The chunks of a stream, without its end."""
    *data, end = events(post(chat(stream=True, **document), **more)[1])
    assert end == "[DONE]"
    return [json.loads(one) for one in data]


def test_the_first_chunk_of_a_stream_has_the_role_and_the_last_the_reason():
    chunks = streamed({})
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert deltas[1:] == [{"content": "4"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_a_stream_has_the_text_of_the_plain_answer():
    text = "Who are you?"
    _, message = choice_of(chat(text), stand_in="gemma3")
    _, body = post(chat(text, stream=True), stand_in="gemma3")
    assert said(body) == message["content"]


def test_usage_is_streamed_where_it_is_asked_for():
    assert all("usage" not in chunk for chunk in streamed({}))
    *_, last = streamed({"stream_options": {"include_usage": True}})
    plain = answered(chat())
    assert (last["choices"], last["usage"]) == ([], plain["usage"])
    assert plain["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}


@pytest.mark.parametrize(
    ("text", "more", "tool"),
    [
        ("How is the weather in Rome?", {}, "get_weather"),
        ("How is the weather in Rome?", {"tool_choice": "auto"}, "get_weather"),
        ("How is the weather in Rome?", {"tool_choice": "none"}, None),
        ("What is 2 + 2?", {}, None),
        ("What is 2 + 2?", {"tool_choice": "required"}, "get_weather"),
        (
            "What is 2 + 2?",
            {"tool_choice": {"type": "function", "function": {"name": "read_clock"}}},
            "read_clock",
        ),
    ],
)
def test_a_tool_is_called_where_it_is_forced_or_named_by_the_text(text, more, tool):
    reason, message = choice_of(chat(text, tools=[WEATHER, TIME], **more))
    if tool is None:
        assert (reason, "tool_calls" in message) == ("stop", False)
        return
    (call,) = message["tool_calls"]
    assert (reason, message["content"], call["type"]) == ("tool_calls", None, "function")
    assert call["function"]["name"] == tool
    arguments = {"city": text} if tool == "get_weather" else {}
    assert json.loads(call["function"]["arguments"]) == arguments


def test_a_streamed_call_has_its_name_first_and_its_arguments_in_pieces():
    text = "How is the weather in Rome?"
    document = {"messages": [{"role": "user", "content": text}], "tools": [WEATHER], "stream": True}
    *data, _ = events(post(document)[1])
    deltas = [json.loads(one)["choices"][0] for one in data]
    calls = [choice["delta"]["tool_calls"][0] for choice in deltas[:-1]]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert [call["index"] for call in calls] == [0] * len(calls)
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": text}
    assert deltas[-1]["finish_reason"] == "tool_calls"


def after_call(**more):
    """A conversation in which the weather was asked for and told."""
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "get_weather", "arguments": "{}"},
    }
    turns = [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "It rains."},
    ]
    return {"messages": turns, "tools": [WEATHER, TIME], **more}


def test_behind_the_result_of_a_tool_the_result_is_the_answer():
    assert choice_of(after_call()) == ("stop", {"role": "assistant", "content": "It rains."})


def test_a_forced_call_is_of_a_tool_that_was_not_called_yet():
    _, message = choice_of(after_call(tool_choice="required"))
    assert message["tool_calls"][0]["function"]["name"] == "read_clock"


def test_a_schema_is_answered_with_an_instance():
    schema = {"type": "object", "properties": {"total": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "sum", "schema": schema}}
    _, message = choice_of(chat("What is 17 * 23?", response_format=form))
    assert json.loads(message["content"]) == {"total": 391}
    _, message = choice_of(chat("What is 17 * 23?", response_format={"type": "json_object"}))
    assert json.loads(message["content"]) == {"answer": "391"}


def test_several_choices():
    document = answered(chat(n=3))
    assert [choice["index"] for choice in document["choices"]] == [0, 1, 2]
    chunks = streamed({"n": 2})
    finished = [c["choices"][0] for c in chunks if c["choices"][0]["finish_reason"]]
    assert [choice["index"] for choice in finished] == [0, 1]


def test_a_long_answer_is_cut_at_max_tokens():
    reason, message = choice_of(chat("Who?", max_tokens=2), stand_in="gemma3")
    assert (reason, message["content"]) == ("length", "I am a s")
    assert choice_of(chat("2 + 2", max_completion_tokens=1))[0] == "stop"


def test_completions_are_plain_and_streamed():
    prompt = {"prompt": "What is 2 + 2?"}
    (choice,) = answered(prompt, path="/v1/completions")["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("4", "stop")
    _, body = post({**prompt, "stream": True}, path="/v1/completions")
    chunks = [json.loads(one) for one in events(body)[:-1]]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["4", ""]


def test_embeddings_are_unit_vectors_of_the_text_in_both_encodings():
    plain = answered({"input": ["a", "b", "a"], "dimensions": 5}, path="/v1/embeddings")
    rows = np.array([one["embedding"] for one in plain["data"]])
    assert rows.shape == (3, 5)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.array_equal(rows[0], rows[2])
    assert not np.array_equal(rows[0], rows[1])
    coded = answered(
        {"input": "a", "dimensions": 5, "encoding_format": "base64"}, path="/v1/embeddings"
    )
    (one,) = coded["data"]
    assert np.frombuffer(base64.b64decode(one["embedding"]), "<f4").tolist() == rows[0].tolist()
    assert len(answered({"input": [1, 2, 3]}, path="/v1/embeddings")["data"]) == 1


def test_a_body_that_cannot_be_read_is_refused():
    status, body = post(b"{")
    assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "it is 12.5"),
        ({"type": "number"}, 12.5),
        ({"type": "integer"}, 12),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "string"]}, None),
        ({"enum": ["a", "b"]}, "a"),
        ({"const": 7}, 7),
        ({"type": "integer", "default": 3}, 3),
        ({"type": "array", "items": {"type": "boolean"}}, [True]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 12),
        ({"$defs": {"A": {"const": 1}}, "allOf": [{"$ref": "#/$defs/A"}]}, 1),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}),
        ({"type": "object"}, {}),
        ({}, "it is 12.5"),
    ],
)
def test_instances(schema, value):
    assert make_instance(schema, "it is 12.5") == value


def test_a_schema_that_contains_itself_has_an_instance():
    node = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            "children": {"type": "array", "items": {"$ref": "#"}},
        },
        "required": ["value"],
    }
    made = make_instance(node, "3")
    depth = 0
    while isinstance(made, dict) and made["value"] is not None:
        assert made["value"] == 3
        made, depth = made["next"], depth + 1
    assert 1 < depth < 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "anyOf", "enum", "$ref", "required", "minItems"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


FIELDS = [
    "messages",
    "tools",
    "tool_choice",
    "response_format",
    "n",
    "max_tokens",
    "stream_options",
    "stream",
]


@settings(max_examples=50)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)))
def test_every_request_is_answered_or_refused(document):
    schema = {"type": "json_schema", "json_schema": {"schema": document.get("response_format")}}
    for form in (document.get("response_format"), schema):
        status, body = post({**document, "response_format": form})
        assert status in (200, 400)
        if status == 400:
            assert json.loads(body)["error"]["code"] == "invalid_body"


@pytest.mark.parametrize("odd", [3, [{"function": []}], [{"function": {"name": []}}]])
def test_odd_tools_are_refused(odd):
    assert post(chat(tools=odd, tool_choice="required"))[0] == 400
    assert post(chat(tools=[WEATHER], tool_choice={"function": odd}))[0] == 400


@pytest.mark.parametrize("none", [None, [], [{"type": "web_search"}]])
def test_without_functions_no_tool_is_called(none):
    assert choice_of(chat(tools=none, tool_choice="required"))[0] == "stop"
