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
def checking_shape(subject: str) -> Iterator[None]:
    """Raise TranslationError where what an expert sent has another shape than it should."""
    try:
        yield
    except _SHAPE_ERRORS as error:
        raise TranslationError(f"{subject} has another shape: {error!r}") from error


def translate_answer(endpoint: str, answer: Document, api: str, request: Document) -> Document:
    """An expert's whole answer in the shape of the client's endpoint."""
    with checking_shape("the answer"):
        chat = answer
        if api == "anthropic":
            chat = message_to_chat(answer)
        if endpoint == RESPONSES:
            return _chat_to_response(chat, request)
        if endpoint == MESSAGES:
            return _chat_to_message(chat)
        if endpoint == COMPLETIONS:
            return _chat_to_completion(chat)
        return chat


def translate_error(endpoint: str, status: int, error: Document) -> Document:
    """An expert's error document in the shape of the client's endpoint."""
    details = error.get("error")
    if isinstance(details, str):
        details = {"message": details}
    if not isinstance(details, dict):
        details = {}
    message = details.get("message") or error.get("message") or "The expert refused the request."
    if endpoint == MESSAGES:
        return anthropic_error(status, str(message), details.get("code"))
    return {
        "error": {
            "message": str(message),
            "type": details.get("type") or "invalid_request_error",
            "param": details.get("param"),
            "code": details.get("code"),
        }
    }


def anthropic_error(status: int, message: str, code: str | None = None) -> Document:
    """An error as Anthropic writes it, with our code besides.

    >>> anthropic_error(404, "There is no such model.", "model_not_found")["error"]["type"]
    'not_found_error'
    """
    other_kind = "invalid_request_error"
    if status >= 500:
        other_kind = "api_error"
    kind = _ANTHROPIC_ERRORS.get(status, other_kind)
    return {"type": "error", "error": {"type": kind, "message": message, "code": code}}


def message_to_chat(message: Document) -> Document:
    """Anthropic's message as a chat completion."""
    texts = []
    calls = []
    for block in message["content"]:
        if block["type"] == "text":
            texts.append(block["text"])
        elif block["type"] == "tool_use":
            calls.append(tool_call(block["id"], block["name"], json.dumps(block["input"])))
    answer: Document = {"role": "assistant", "content": None}
    if texts:
        answer["content"] = "".join(texts)
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
     'prompt_tokens_details': {'cached_tokens': 20, 'cache_write_tokens': 0}}
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
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    }


def _chat_to_message(chat: Document) -> Document:
    choice = chat["choices"][0]
    answer = choice["message"]
    blocks: list[Document] = []
    text = answer.get("content") or answer.get("refusal")
    if text:
        blocks.append({"type": "text", "text": text})
    for call in answer.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": call["id"],
                "name": function["name"],
                "input": arguments_of(function["arguments"]),
            }
        )
    reason = stop_reason(choice.get("finish_reason"))
    if answer.get("refusal"):
        reason = "refusal"
    message = empty_message(chat.get("id"), chat.get("model"))
    return message | {
        "content": blocks,
        "stop_reason": reason,
        "usage": message_usage(chat.get("usage")),
    }


def empty_message(chat_id: Any, model: Any) -> Document:
    """Anthropic's message without content, as a stream begins with it."""
    return {
        "id": f"msg_{chat_id}",
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
    """The usage of a chat as Anthropic's; all counts are 0 where none was reported."""
    counts = {}
    if isinstance(usage, dict):
        counts = usage
    details = counts.get("prompt_tokens_details") or {}
    cached = _count(details.get("cached_tokens"))
    written = _count(details.get("cache_write_tokens"))
    return {
        "input_tokens": max(_count(counts.get("prompt_tokens")) - cached - written, 0),
        "cache_creation_input_tokens": written,
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
    answer = choice["message"]
    chat_id = chat.get("id")
    output: list[Document] = []
    if answer.get("refusal"):
        part = {"type": "refusal", "refusal": answer["refusal"]}
        output.append(message_item(f"msg_{chat_id}", [part]))
    elif answer.get("content"):
        output.append(message_item(f"msg_{chat_id}", [text_part(answer["content"])]))
    for index, call in enumerate(answer.get("tool_calls") or ()):
        function = call["function"]
        item_id = f"fc_{chat_id}_{index}"
        output.append(call_item(item_id, call["id"], function["name"], function["arguments"]))
    response = empty_response(chat, request)
    reason = choice.get("finish_reason")
    return response | response_end(reason, output, chat.get("usage"))


def empty_response(chat: Document, request: Document) -> Document:
    """The response for a chat, or for the first chunk of one, without output.

    It repeats what the request said.
    """
    response: Document = {
        "id": f"resp_{chat.get('id')}",
        "object": "response",
        "created_at": chat.get("created") or int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": chat.get("model"),
        "output": [],
        "usage": None,
        "previous_response_id": None,
        "store": False,
    }
    for key, default in _DEFAULTS.items():
        response[key] = default
        if request.get(key) is not None:
            response[key] = request[key]
    return response


def response_end(reason: Any, output: list[Document], usage: Any) -> Document:
    """The fields that a response gets at its end."""
    end: Document = {
        "status": "completed",
        "incomplete_details": None,
        "output": output,
        "usage": _response_usage(usage),
    }
    if reason in _INCOMPLETE:
        end["status"] = "incomplete"
        end["incomplete_details"] = {"reason": _INCOMPLETE[reason]}
    return end


def _response_usage(usage: Any) -> Document | None:
    if not isinstance(usage, dict):
        return None
    input_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    cached = _count(input_details.get("cached_tokens"))
    written = _count(input_details.get("cache_write_tokens"))
    reasoning = _count(output_details.get("reasoning_tokens"))
    tokens_in = _count(usage.get("prompt_tokens"))
    tokens_out = _count(usage.get("completion_tokens"))
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": tokens_in + tokens_out,
    }


def message_item(item_id: str, content: list[Document], status: str = "completed") -> Document:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def text_part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(
    item_id: str, call_id: str, name: str, arguments: str, status: str = "completed"
) -> Document:
    return {
        "id": item_id,
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def _count(value: Any) -> int:
    """A number of tokens; 0 if it is none."""
    if is_count(value):
        return value
    return 0
