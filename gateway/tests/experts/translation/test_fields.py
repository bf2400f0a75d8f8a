"""Every field of every API is translated, ignored or refused."""

import json

import pytest

from mild_gateway.experts.translation.answers import translate_answer
from mild_gateway.experts.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    FIELDS,
    MESSAGES,
    RESPONSES,
    TranslationError,
)
from mild_gateway.experts.translation.requests import translate_request
from mild_gateway.experts.translation.streams import StreamTranslator

USER = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
REQUESTS = {
    CHAT: {"model": "m", "messages": USER},
    COMPLETIONS: {"model": "m", "prompt": "Hi"},
    MESSAGES: {"model": "m", "messages": USER, "max_tokens": 10},
    RESPONSES: {"model": "m", "input": "Hi"},
}
APIS = {CHAT: "anthropic", COMPLETIONS: "anthropic", MESSAGES: "openai", RESPONSES: "openai"}
PLAIN = {
    endpoint: translate_request(endpoint, REQUESTS[endpoint], api, 100)
    for endpoint, api in APIS.items()
}
CASES = [
    (endpoint, treatment, field)
    for endpoint, treatments in FIELDS.items()
    for treatment, fields in treatments.items()
    for field in fields
]


def translate(endpoint, **more):
    return translate_request(endpoint, REQUESTS[endpoint] | more, APIS[endpoint], 100)


def refusal(endpoint, **more):
    with pytest.raises(TranslationError) as found:
        translate(endpoint, **more)
    return found.value.code, found.value.parameter


@pytest.mark.parametrize(("endpoint", "treatment", "field"), CASES)
def test_a_field_is_treated_as_the_list_says(endpoint, treatment, field):
    if treatment == "refused":
        assert refusal(endpoint, **{field: {"some": "thing"}}) == ("unsupported_field", field)
        assert translate(endpoint, **{field: None}) == PLAIN[endpoint]
    elif treatment == "ignored":
        assert translate(endpoint, **{field: {"some": "thing"}}) == PLAIN[endpoint]


@pytest.mark.parametrize("endpoint", FIELDS)
def test_a_field_is_listed_once_and_unknown_ones_are_refused(endpoint):
    listed = [field for fields in FIELDS[endpoint].values() for field in fields]
    assert len(set(listed)) == len(listed)
    assert refusal(endpoint, vendor_extension=1) == ("unknown_field", "vendor_extension")
    assert translate(endpoint, vendor_extension=None) == PLAIN[endpoint]


def test_every_field_of_the_official_clients_is_listed():
    openai_chat = pytest.importorskip("openai.types.chat.completion_create_params")
    openai_responses = pytest.importorskip("openai.types.responses.response_create_params")
    openai_completions = pytest.importorskip("openai.types.completion_create_params")
    anthropic = pytest.importorskip("anthropic.types.message_create_params")
    beta = pytest.importorskip("anthropic.types.beta.message_create_params")
    official = {
        CHAT: openai_chat.CompletionCreateParamsBase.__annotations__,
        COMPLETIONS: openai_completions.CompletionCreateParamsBase.__annotations__,
        RESPONSES: openai_responses.ResponseCreateParamsBase.__annotations__,
        MESSAGES: {
            **anthropic.MessageCreateParamsBase.__annotations__,
            **beta.MessageCreateParamsBase.__annotations__,
        },
    }
    for endpoint, fields in official.items():
        listed = {field for fields in FIELDS[endpoint].values() for field in fields}
        # A header, not a field.
        assert fields.keys() - listed - {"betas"} == set(), endpoint


@pytest.mark.parametrize(
    ("endpoint", "more"),
    [
        (CHAT, {"n": 1, "modalities": ["text"], "logprobs": False, "frequency_penalty": 0.0}),
        (RESPONSES, {"background": False, "top_logprobs": 0, "tools": []}),
        (MESSAGES, {"mcp_servers": [], "top_k": None, "system": ""}),
    ],
)
def test_values_that_ask_for_nothing_are_not_refused(endpoint, more):
    assert translate(endpoint, **more) == PLAIN[endpoint]


def part(**more):
    return [{"role": "user", "content": [more]}]


@pytest.mark.parametrize(
    ("endpoint", "more", "code"),
    [
        (CHAT, {"messages": part(type="input_audio", input_audio={})}, "unsupported_content"),
        (CHAT, {"messages": part(type="file", file={})}, "unsupported_content"),
        (CHAT, {"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "unsupported_tool"),
        (CHAT, {"response_format": {"type": "json_object"}}, "unsupported_field"),
        (CHAT, {"tools": [TOOL], "tool_choice": {"type": "allowed_tools"}}, "unsupported_field"),
        (MESSAGES, {"messages": part(type="document", source={})}, "unsupported_content"),
        (MESSAGES, {"messages": part(type="image", source={"type": "file"})}, "unsupported_content"),
        (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "unsupported_tool"),
        (RESPONSES, {"input": part(type="input_file", file_id="f")}, "unsupported_content"),
        (RESPONSES, {"input": part(type="input_image", file_id="f")}, "unsupported_content"),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "unsupported_content"),
        (RESPONSES, {"tools": [{"type": "web_search"}]}, "unsupported_tool"),
        (RESPONSES, {"tool_choice": {"type": "file_search"}}, "unsupported_tool"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, "invalid_type"),
    ],
)  # fmt: skip
def test_content_without_a_counterpart_is_refused(endpoint, more, code):
    assert refusal(endpoint, **more)[0] == code


ODD = [7, "x", True, [7], ["x"], [[]], {"a": 1}, [{}], [{"role": "user"}], [{"role": "user", "content": 7}],
       [{"role": "user", "content": [7]}], [{"role": "user", "content": [{"type": "text"}]}],
       [{"role": "assistant", "content": [{"type": "tool_use"}]}], [{"role": 5, "content": "x"}],
       [{"role": "assistant", "tool_calls": [{"id": 1}]}], [{"role": "tool", "content": "x"}],
       [{"role": "user", "content": [{"type": "tool_result", "content": 7}]}],
       [{"role": "user", "content": [{"type": "image", "source": 7}]}],
       [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}],
       [{"type": "function_call", "call_id": 1}], [{"type": "function_call_output", "output": 7}],
       [{"type": 7}]]  # fmt: skip


CODES = {"invalid_type", "unsupported_content", "unsupported_field", "unsupported_tool"}


@pytest.mark.parametrize("endpoint", FIELDS)
@pytest.mark.parametrize("odd", ODD, ids=json.dumps)
def test_odd_values_are_refused_or_passed_on_and_never_an_error(endpoint, odd):
    codes = set()
    for field in FIELDS[endpoint]["translated"]:
        for api in {APIS[endpoint], "anthropic"} if endpoint != MESSAGES else {"openai"}:
            try:
                translate_request(endpoint, REQUESTS[endpoint] | {field: odd}, api, 100)
            except TranslationError as error:
                codes.add(error.code)
    assert codes or endpoint == COMPLETIONS
    assert codes <= CODES


@pytest.mark.parametrize("endpoint", FIELDS)
@pytest.mark.parametrize("odd", [{}, {"choices": []}, {"choices": [7]}, {"content": 7}, {"content": [{}]},
                                 {"choices": [{"message": 7}]}, {"type": "message"}])  # fmt: skip
def test_an_answer_of_another_shape_is_an_error(endpoint, odd):
    with pytest.raises(TranslationError):
        translate_answer(endpoint, odd, APIS[endpoint], REQUESTS[endpoint])


@pytest.mark.parametrize("endpoint", [MESSAGES, RESPONSES])
@pytest.mark.parametrize(
    "delta",
    [
        7,
        {"content": 7},
        {"tool_calls": [7]},
        {"tool_calls": [{"function": {"arguments": "{}"}}]},
        {"tool_calls": [{"id": "a", "function": {"name": 7}}]},
    ],
)
def test_an_event_of_another_shape_is_an_error(endpoint, delta):
    translator = StreamTranslator(endpoint, "openai", "small", REQUESTS[endpoint])
    with pytest.raises(TranslationError):
        translator.feed({"choices": [{"delta": delta}]})


def test_calls_that_share_an_index_are_told_apart_by_their_ids():
    translator = StreamTranslator(MESSAGES, "openai", "small", REQUESTS[MESSAGES])
    found = b""
    for number in ("a", "b"):
        function = {"name": "f", "arguments": "{}"}
        call = {"index": 0, "id": number, "function": function}
        found += translator.feed({"choices": [{"delta": {"tool_calls": [call]}}]})
    assert found.count(b'"content_block_start"') == 2


def test_an_answer_without_end_is_broken_off(monkeypatch):
    monkeypatch.setattr("mild_gateway.experts.translation.streams.MAX_CHARACTERS", 5)
    translator = StreamTranslator(RESPONSES, "openai", "small", REQUESTS[RESPONSES])
    translator.feed({"choices": [{"delta": {"content": "12345"}}]})
    with pytest.raises(TranslationError):
        translator.feed({"choices": [{"delta": {"content": "6"}}]})


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
def test_stop_reasons(stop_reason, finish_reason):
    message = {"content": [{"type": "text", "text": "x"}], "stop_reason": stop_reason}
    chat = translate_answer(CHAT, message, "anthropic", REQUESTS[CHAT])
    assert chat["choices"][0]["finish_reason"] == finish_reason


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason", "status"),
    [
        ("stop", "end_turn", ("completed", None)),
        ("length", "max_tokens", ("incomplete", {"reason": "max_output_tokens"})),
        ("tool_calls", "tool_use", ("completed", None)),
        ("content_filter", "refusal", ("incomplete", {"reason": "content_filter"})),
        ("another", "end_turn", ("completed", None)),
    ],
)
def test_finish_reasons(finish_reason, stop_reason, status):
    choice = {"message": {"content": "x"}, "finish_reason": finish_reason}
    message = translate_answer(MESSAGES, {"choices": [choice]}, "openai", REQUESTS[MESSAGES])
    assert message["stop_reason"] == stop_reason
    response = translate_answer(RESPONSES, {"choices": [choice]}, "openai", REQUESTS[RESPONSES])
    assert (response["status"], response["incomplete_details"]) == status


def test_a_refusal_is_told():
    choice = {"message": {"content": None, "refusal": "I will not."}, "finish_reason": "stop"}
    message = translate_answer(MESSAGES, {"choices": [choice]}, "openai", REQUESTS[MESSAGES])
    assert message["stop_reason"] == "refusal"
    assert message["content"][0]["text"] == "I will not."
    response = translate_answer(RESPONSES, {"choices": [choice]}, "openai", REQUESTS[RESPONSES])
    assert response["output"][0]["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_results_of_tools_with_images_become_two_messages():
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    content = [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "a", "content": content}
    turns = [{"role": "user", "content": [result, {"type": "text", "text": "And?"}]}]
    tool, user = translate(MESSAGES, messages=turns)["messages"]
    assert tool == {"role": "tool", "tool_call_id": "a", "content": "see"}
    assert [one["type"] for one in user["content"]] == ["image_url", "text"]
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    output = [{"type": "input_text", "text": "see"}, image]
    item = {"type": "function_call_output", "call_id": "a", "output": output}
    tool, user = translate(RESPONSES, input=[item])["messages"]
    assert tool == {"role": "tool", "tool_call_id": "a", "content": "see"}
    assert user["content"][0]["image_url"]["url"] == image["image_url"]


def test_thinking_is_left_out():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "4"},
    ]
    turns = [*USER, {"role": "assistant", "content": blocks}, *USER]
    assert translate(MESSAGES, messages=turns)["messages"][1] == {
        "role": "assistant",
        "content": "4",
    }
    message = {"content": blocks, "stop_reason": "end_turn"}
    chat = translate_answer(CHAT, message, "anthropic", REQUESTS[CHAT])
    assert chat["choices"][0]["message"]["content"] == "4"


@pytest.mark.parametrize(
    ("anthropic", "openai"), [("auto", "auto"), ("any", "required"), ("none", "none")]
)
def test_tool_choices(anthropic, openai):
    tool = {"type": "function", "function": {"name": "f"}}
    found = translate(CHAT, tools=[tool], tool_choice=openai)
    assert found["tool_choice"] == {"type": anthropic}
    assert found["tools"][0]["input_schema"] == {"type": "object", "properties": {}}
    found = translate(MESSAGES, tool_choice={"type": anthropic})
    assert found["tool_choice"] == openai


def test_settings_that_differ_in_range_are_brought_into_it():
    assert translate(CHAT, temperature=1.7)["temperature"] == 1
    assert translate(CHAT, reasoning_effort="minimal")["output_config"] == {"effort": "low"}
    assert "output_config" not in translate(CHAT, reasoning_effort="none")
    found = translate(MESSAGES, output_config={"effort": "max"})
    assert found["reasoning_effort"] == "xhigh"
    assert translate(CHAT)["max_tokens"] == 100
    assert translate(CHAT, max_completion_tokens=7)["max_tokens"] == 7


def test_arguments_that_are_no_object_are_kept_as_text():
    call = {"id": "a", "function": {"name": "f", "arguments": "Rome"}}
    choice = {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    message = translate_answer(MESSAGES, {"choices": [choice]}, "openai", REQUESTS[MESSAGES])
    assert message["content"][0]["input"] == {"invalid_json": "Rome"}


def test_embeddings_are_never_translated():
    with pytest.raises(TranslationError) as found:
        translate_request(EMBEDDINGS, {"input": "x"}, "anthropic", 100)
    assert found.value.code == "unsupported_endpoint"
