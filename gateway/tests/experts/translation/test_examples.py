"""The same conversation in every API: each recorded form is translated into each other one."""

import json
from pathlib import Path

import pytest

from mild_gateway.experts.translation.answers import translate_answer, translate_error
from mild_gateway.experts.translation.fields import CHAT, COMPLETIONS, MESSAGES, RESPONSES
from mild_gateway.experts.translation.requests import translate_request
from mild_gateway.experts.translation.streams import StreamTranslator

EXAMPLES = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (Path(__file__).parent / "examples").glob("*.json")
}
ENDPOINTS = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
SPEAKS = {"chat": "openai", "messages": "anthropic"}
# Every pair that needs translation: what the client speaks, and what the expert.
PAIRS = [
    ("messages", "chat"),
    ("responses", "chat"),
    ("chat", "messages"),
    ("responses", "messages"),
]
CONVERSATIONS = ("text", "tools", "images")
# Names and times differ, and so do remarks that only one API has.
OWN = ("chatcmpl", "msg_", "resp_", "fc_")
REMARKS = (
    "created", "created_at", "item_id", "model", "system_fingerprint", "service_tier", "logprobs",
    "sequence_number", "completion_tokens_details", "prompt_tokens_details",
)  # fmt: skip


def core(value):
    """What a document says, without ids, remarks, and what is empty."""
    if isinstance(value, list):
        return [core(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: core(one) for key, one in value.items() if key not in REMARKS}
    return {
        key: one
        for key, one in found.items()
        if one not in (None, [], {}, 0, "") and not (key == "id" and one.startswith(OWN))
    }


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize(("client", "expert"), PAIRS)
def test_a_request_is_translated(name, client, expert):
    example = EXAMPLES[name]
    request = example[client]["request"]
    before = json.dumps(request)
    found = translate_request(ENDPOINTS[client], request, SPEAKS[expert], 4096)
    assert core(_as_parts(found)) == core(_as_parts(example[expert]["request"]))
    assert json.dumps(request) == before


def _as_parts(request):
    """A chat's texts as parts: both ways say the same."""
    turns = [
        {**one, "content": [{"type": "text", "text": one["content"]}]}
        if isinstance(one.get("content"), str) and one["role"] in ("user", "assistant")
        else one
        for one in request["messages"]
    ]
    return {**request, "messages": turns}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize(("client", "expert"), PAIRS)
def test_an_answer_is_translated(name, client, expert):
    example = EXAMPLES[name]
    answer, request = example[expert]["answer"], example[client]["request"]
    found = translate_answer(ENDPOINTS[client], answer, SPEAKS[expert], request)
    assert core(found) == core(example[client]["answer"])


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_message_comes_back_as_it_was(name):
    message, request = EXAMPLES[name]["messages"]["answer"], EXAMPLES[name]["messages"]["request"]
    chat = translate_answer(CHAT, message, "anthropic", request)
    assert core(translate_answer(MESSAGES, chat, "openai", request)) == core(message)


def streamed(client, expert, name, **more):
    """The client's events as documents, and the usage."""
    example = EXAMPLES[name]
    request = example[client]["request"] | more
    translator = StreamTranslator(ENDPOINTS[client], SPEAKS[expert], "small", request)
    content = b"".join(translator.feed(event) for event in example[expert]["events"])
    assert translator.reader.finished
    content += translator.finish()
    data = [
        line.removeprefix(b"data: ") for line in content.split(b"\n") if line.startswith(b"data: ")
    ]
    return [json.loads(one) for one in data if one != b"[DONE]"], translator, content


@pytest.mark.parametrize("name", ["text", "tools"])
@pytest.mark.parametrize("expert", ["chat", "messages"])
def test_a_stream_of_responses(name, expert):
    found, _, content = streamed("responses", expert, name)
    wanted = EXAMPLES[name]["responses"]["events"]
    assert [event["type"] for event in found] == [event["type"] for event in wanted]
    assert core(found[2:-1]) == core(wanted[2:-1])
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    first, last = found[0]["response"], found[-1]["response"]
    assert (first["status"], last["status"], last["model"]) == ("in_progress", "completed", "small")
    items = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert last["output"] == items
    recorded = EXAMPLES[name]["responses"]["answer"]["usage"]
    assert core(last["usage"]) == core(recorded)
    assert b"[DONE]" not in content
    named = [line for line in content.split(b"\n") if line.startswith(b"event: ")]
    assert named == [f"event: {event['type']}".encode() for event in found]


@pytest.mark.parametrize("name", ["text", "tools"])
def test_a_stream_of_messages(name):
    found, _, _ = streamed("messages", "chat", name)
    wanted = [one for one in EXAMPLES[name]["messages"]["events"] if one["type"] != "ping"]
    assert core(found[1:-2]) == core(wanted[1:-2])
    assert [event["type"] for event in found] == [event["type"] for event in wanted]
    assert found[0]["message"]["model"] == "small"
    delta, usage = found[-2]["delta"], found[-2]["usage"]
    assert delta == wanted[-2]["delta"]
    assert core(usage) == core(EXAMPLES[name]["messages"]["answer"]["usage"])


@pytest.mark.parametrize("name", ["text", "tools"])
def test_a_stream_of_a_chat(name):
    options = {"stream_options": {"include_usage": True}}
    found, translator, content = streamed("chat", "messages", name, **options)
    wanted = EXAMPLES[name]["chat"]["events"]
    assert core(found) == core(wanted)
    assert found[-1]["usage"]["prompt_tokens"] == wanted[-1]["usage"]["prompt_tokens"]
    assert {event["model"] for event in found} == {"small"}
    assert content.endswith(b"data: [DONE]\n\n")
    without, _, _ = streamed("chat", "messages", name)
    assert without == [*found[:-1]]
    assert translator.reader.usage["completion_tokens"] == wanted[-1]["usage"]["completion_tokens"]


def test_a_completion_of_an_anthropic_expert():
    request = {"model": "m", "prompt": "Say hi.", "max_tokens": 5, "stop": "."}
    found = translate_request(COMPLETIONS, request, "anthropic", 4096)
    assert found == {
        "model": "m",
        "max_tokens": 5,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Say hi."}]}],
        "stop_sequences": ["."],
    }
    answer = EXAMPLES["text"]["messages"]["answer"]
    completion = translate_answer(COMPLETIONS, answer, "anthropic", request)
    assert completion["object"] == "text_completion"
    assert completion["choices"][0]["text"] == "Hi there!"
    translator = StreamTranslator(COMPLETIONS, "anthropic", "small", request)
    events = EXAMPLES["text"]["messages"]["events"]
    lines = b"".join(translator.feed(event) for event in events).split(b"\n\n")
    chunks = [json.loads(line.removeprefix(b"data: ")) for line in lines if line]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "Hi there!"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_errors_are_translated():
    chat, message = EXAMPLES["errors"]["chat"], EXAMPLES["errors"]["messages"]
    found = translate_error(MESSAGES, 400, chat)
    assert found["type"] == "error"
    assert found["error"] == {
        "type": "invalid_request_error",
        "message": chat["error"]["message"],
        "code": "context_length_exceeded",
    }
    for endpoint in (CHAT, RESPONSES):
        error = translate_error(endpoint, 400, message)["error"]
        assert error["message"] == message["error"]["message"]
        assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize("odd", [{}, {"error": "no"}, {"error": [1]}, {"message": "no"}])
def test_errors_of_any_shape_have_a_message(odd):
    assert translate_error(CHAT, 400, odd)["error"]["message"]
    assert translate_error(MESSAGES, 400, odd)["error"]["message"]
