"""Whole answers and errors: to a chat completion, and from there to the client's API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mild_gateway.experts.translation.fields import (
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    Document,
    TranslationError,
    is_count,
    tool_call,
)
from mild_gateway.experts.translation.requests import arguments_of

_TO_STOP_REASON = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
FINISH_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_DEFAULTS: Document = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}
#: Fields of a request that its answer depends on, or repeats.
ECHOED = (*_DEFAULTS, "stream_options")
_ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# What reading a document may fail with if an expert sends another shape than it should.
_SHAPE_ERRORS = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)


@contextmanager
def checking_shape(what: str) -> Iterator[None]:
    """Raise TranslationError where what an expert sent has another shape than it should."""
    try:
        yield
    except _SHAPE_ERRORS as error:
        raise TranslationError(f"{what} has another shape: {error!r}") from error


def translate_answer(endpoint: str, answer: Document, api: str, request: Document) -> Document:
    """An expert's whole answer in the shape of the client's endpoint."""
    with checking_shape("the answer"):
        chat = message_to_chat(answer) if api == "anthropic" else answer
        if endpoint == RESPONSES:
            return _chat_to_response(chat, request)
        if endpoint == MESSAGES:
            return _chat_to_message(chat)
        return _chat_to_completion(chat) if endpoint == COMPLETIONS else chat


def translate_error(endpoint: str, status: int, error: Document) -> Document:
    """An expert's error document in the shape of the client's endpoint."""
    found = error.get("error")
    inner = found if isinstance(found, dict) else {}
    message = inner.get("message") or (found if isinstance(found, str) else None)
    message = str(message or error.get("message") or "The expert refused the request.")
    if endpoint == MESSAGES:
        return anthropic_error(status, message, inner.get("code"))
    kind = inner.get("type") or "invalid_request_error"
    param, code = inner.get("param"), inner.get("code")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def anthropic_error(status: int, message: str, code: str | None = None) -> Document:
    """An error as Anthropic writes it, with our code besides.

    >>> anthropic_error(404, "There is no such model.", "model_not_found")["error"]["type"]
    'not_found_error'
    """
    other = "api_error" if status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_ERRORS.get(status, other)
    return {"type": "error", "error": {"type": kind, "message": message, "code": code}}


def message_to_chat(message: Document) -> Document:
    """Anthropic's message as a chat completion."""
    text, calls = [], []
    for block in message["content"]:
        if block["type"] == "text":
            text.append(block["text"])
        elif block["type"] == "tool_use":
            calls.append(tool_call(block["id"], block["name"], json.dumps(block["input"])))
    answer: Document = {"role": "assistant", "content": "".join(text) if text else None}
    if calls:
        answer["tool_calls"] = calls
    reason = FINISH_REASONS.get(message.get("stop_reason") or "", "stop")
    return {
        "id": message.get("id"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": message.get("model"),
        "choices": [{"index": 0, "message": answer, "logprobs": None, "finish_reason": reason}],
        "usage": chat_usage(message.get("usage")),
    }


def chat_usage(usage: Any) -> Document | None:
    """Anthropic's usage as that of a chat: tokens of the cache are tokens of the prompt.

    >>> chat_usage({"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 3})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'prompt_tokens': 25, 'completion_tokens': 3, 'total_tokens': 28,
     'prompt_tokens_details': {'cached_tokens': 20}}
    """
    if not isinstance(usage, dict):
        return None
    cached = _count(usage.get("cache_read_input_tokens"))
    written = _count(usage.get("cache_creation_input_tokens"))
    tokens_in = _count(usage.get("input_tokens")) + cached + written
    tokens_out = _count(usage.get("output_tokens"))
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _chat_to_message(chat: Document) -> Document:
    choice = chat["choices"][0]
    answer = choice["message"]
    blocks: list[Document] = []
    if text := answer.get("content") or answer.get("refusal"):
        blocks.append({"type": "text", "text": text})
    for call in answer.get("tool_calls") or ():
        function = call["function"]
        given = arguments_of(function["arguments"])
        block = {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}
        blocks.append(block)
    message = empty_message(chat.get("id"), chat.get("model"))
    reason = "refusal" if answer.get("refusal") else stop_reason(choice.get("finish_reason"))
    return message | {
        "content": blocks,
        "stop_reason": reason,
        "usage": message_usage(chat.get("usage")),
    }


def empty_message(number: Any, model: Any) -> Document:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": message_usage(None),
    }


def stop_reason(finish_reason: Any) -> str:
    return _TO_STOP_REASON.get(finish_reason or "stop", "end_turn")


def message_usage(usage: Any) -> Document:
    counts = usage if isinstance(usage, dict) else {}
    cached = _count((counts.get("prompt_tokens_details") or {}).get("cached_tokens"))
    return {
        "input_tokens": max(_count(counts.get("prompt_tokens")) - cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": _count(counts.get("completion_tokens")),
    }


def _chat_to_completion(chat: Document) -> Document:
    choice = chat["choices"][0]
    text = choice["message"].get("content") or ""
    reason = choice.get("finish_reason")
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return chat | {"object": "text_completion", "choices": [choice]}


def _chat_to_response(chat: Document, request: Document) -> Document:
    choice = chat["choices"][0]
    answer, number = choice["message"], chat.get("id")
    output: list[Document] = []
    if answer.get("refusal"):
        part = {"type": "refusal", "refusal": answer["refusal"]}
        output.append(message_item(f"msg_{number}", part))
    elif answer.get("content"):
        output.append(message_item(f"msg_{number}", text_part(answer["content"])))
    for place, call in enumerate(answer.get("tool_calls") or ()):
        function = call["function"]
        item = f"fc_{number}_{place}"
        output.append(call_item(item, call["id"], function["name"], function["arguments"]))
    made, model = chat.get("created"), chat.get("model")
    response = empty_response(number, made, model, request)
    reason = choice.get("finish_reason")
    return response | response_end(reason, output, chat.get("usage"))


def empty_response(number: Any, created: Any, model: Any, request: Document) -> Document:
    """A response without output, which repeats what the request said."""
    response: Document = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": created or int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": model,
        "output": [],
        "usage": None,
        "previous_response_id": None,
        "store": False,
    }
    for key, default in _DEFAULTS.items():
        given = request.get(key)
        response[key] = default if given is None else given
    return response


def response_end(reason: Any, output: list[Document], usage: Any) -> Document:
    incomplete = _INCOMPLETE.get(reason)
    return {
        "status": "incomplete" if incomplete else "completed",
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "output": output,
        "usage": _response_usage(usage),
    }


def _response_usage(usage: Any) -> Document | None:
    if not isinstance(usage, dict):
        return None
    read, made = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _count((read or {}).get("cached_tokens"))
    reasoning = _count((made or {}).get("reasoning_tokens"))
    tokens_in = _count(usage.get("prompt_tokens"))
    tokens_out = _count(usage.get("completion_tokens"))
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": tokens_in + tokens_out,
    }


def message_item(number: str, *parts: Document, status: str = "completed") -> Document:
    return {
        "id": number,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def text_part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(
    number: str, call_id: str, name: str, arguments: str, status: str = "completed"
) -> Document:
    return {
        "id": number,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _count(value: Any) -> int:
    return value if is_count(value) else 0
