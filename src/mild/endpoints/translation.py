"""Translation between the APIs of clients and of experts, with chat completions in the middle.

A request in any shape becomes a chat completion request; for an expert that speaks Anthropic's API, that
becomes a Messages request. Answers and events go the same way back. Where client and expert speak the same
API, nothing is translated.

A field that is null, false, 0 or empty counts as not given. Of the others each is translated, ignored (the
answer is valid without it) or refused (it would not be), by ``FIELDS``. Unknown fields are refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

from mild.errors import InvalidInputError

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "EMBEDDINGS",
    "FIELDS",
    "MESSAGES",
    "REQUIRED",
    "RESPONSES",
    "MessageReader",
    "StreamTranslator",
    "TranslationError",
    "anthropic_error",
    "chat_to_messages",
    "chat_usage",
    "is_native",
    "message_to_chat",
    "translate_answer",
    "translate_error",
    "translate_request",
    "upstream_endpoint",
]

Document = dict[str, Any]
Api = Literal["openai", "anthropic"]
T = TypeVar("T")

CHAT, COMPLETIONS, EMBEDDINGS = "/chat/completions", "/completions", "/embeddings"
RESPONSES, MESSAGES = "/responses", "/messages"

#: What a request to an endpoint must have.
REQUIRED = {
    CHAT: ("messages",),
    COMPLETIONS: ("prompt",),
    EMBEDDINGS: ("input",),
    RESPONSES: ("input",),
    MESSAGES: ("messages", "max_tokens"),
}
#: What becomes of every field of a request that is translated.
# fmt: off
FIELDS: dict[str, dict[str, list[str]]] = {
    RESPONSES: {
        "translated": [
            "input", "instructions", "max_output_tokens", "model", "parallel_tool_calls",
            "reasoning", "stream", "temperature", "text", "tool_choice", "tools", "top_p",
        ],
        "ignored": [
            "include", "max_tool_calls", "metadata", "prompt_cache_key", "prompt_cache_options",
            "prompt_cache_retention", "safety_identifier", "service_tier", "store",
            "stream_options", "truncation", "user",
        ],
        "refused": [
            "access_programs", "background", "context_management", "conversation", "image",
            "moderation", "previous_response_id", "prompt", "top_logprobs",
        ],
    },
    MESSAGES: {
        "translated": [
            "max_tokens", "messages", "model", "output_config", "stop_sequences", "stream",
            "system", "temperature", "tool_choice", "tools", "top_p",
        ],
        "ignored": [
            "cache_control", "context_management", "diagnostics", "metadata", "service_tier",
            "speed", "thinking", "user_profile_id", "workspace_id",
        ],
        "refused": [
            "compaction", "container", "fallback_credit_token", "fallbacks", "inference_geo",
            "mcp_servers", "thread", "top_k",
        ],
    },
    CHAT: {
        "translated": [
            "max_completion_tokens", "max_tokens", "messages", "model", "parallel_tool_calls",
            "reasoning_effort", "response_format", "stop", "stream", "stream_options",
            "temperature", "tool_choice", "tools", "top_p",
        ],
        "ignored": [
            "metadata", "prediction", "prompt_cache_key", "prompt_cache_options",
            "prompt_cache_retention", "safety_identifier", "seed", "service_tier", "store", "user",
        ],
        "refused": [
            "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
            "modalities", "moderation", "n", "presence_penalty", "top_logprobs", "verbosity",
            "web_search_options",
        ],
    },
    COMPLETIONS: {
        "translated": [
            "max_tokens", "model", "prompt", "stop", "stream", "stream_options", "temperature",
            "top_p",
        ],
        "ignored": ["seed", "user"],
        "refused": [
            "best_of", "echo", "frequency_penalty", "logit_bias", "logprobs", "n",
            "presence_penalty", "suffix",
        ],
    },
}
# fmt: on
_HARMLESS: Document = {"n": 1, "best_of": 1, "modalities": ["text"], "verbosity": "medium"}
_REMEDIES = {
    "background": "Leave it out and wait for the answer.",
    "conversation": "The gateway stores no conversations; send every message.",
    "previous_response_id": "The gateway stores no responses; send the whole conversation as input.",
    "prompt": "The gateway stores no prompts; send the text as input.",
}
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)
_KINDS: dict[type, str] = {str: "a text", dict: "an object", list: "a list"}
_TO_STOP_REASON = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_TO_FINISH_REASON = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
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
_EFFORTS_TO_ANTHROPIC = {"minimal": "low"}
_EFFORTS_TO_OPENAI = {"max": "xhigh"}
# Of an answer that is streamed: a longer one is broken off.
MAX_CHARACTERS = 64_000_000
# What a changed document may fail with if an expert sends another shape than it should.
_SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class TranslationError(InvalidInputError):
    """A request, or an answer, that cannot be said in the other API."""

    code = "invalid_request"


def is_native(endpoint: str, api: str) -> bool:
    """Whether an expert serves an endpoint of the gateway without translation.

    Examples
    --------
    >>> is_native("/messages", "anthropic"), is_native("/responses", "openai")
    (True, False)
    """
    return endpoint == MESSAGES if api == "anthropic" else endpoint not in (RESPONSES, MESSAGES)


def upstream_endpoint(endpoint: str, api: str) -> str:
    """The path at which an expert is asked."""
    if is_native(endpoint, api):
        return endpoint
    return MESSAGES if api == "anthropic" else CHAT


def translate_request(endpoint: str, request: Document, api: str, max_tokens: int) -> Document:
    """A client's request as an expert of the other API takes it; ``max_tokens`` where none is given.

    Raises
    ------
    TranslationError
        with the field and the code: ``unsupported_field``, ``unknown_field``, ``unsupported_content`` or
        ``invalid_type``

    Examples
    --------
    >>> translate_request("/responses", {"model": "m", "input": "Hi"}, "openai", 100)
    {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}
    """
    if endpoint == EMBEDDINGS:
        raise TranslationError("Anthropic's API has no embeddings.", code="unsupported_endpoint")
    _check_fields(endpoint, request)
    chat = _TO_CHAT[endpoint](request) if endpoint in _TO_CHAT else request
    return chat_to_messages(chat, max_tokens) if api == "anthropic" else chat


def translate_answer(endpoint: str, answer: Document, api: str, request: Document) -> Document:
    """An expert's whole answer in the shape of the client's endpoint."""
    try:
        chat = message_to_chat(answer) if api == "anthropic" else answer
        if endpoint == RESPONSES:
            return _chat_to_response(chat, request)
        if endpoint == MESSAGES:
            return _chat_to_message(chat)
        return _chat_to_completion(chat) if endpoint == COMPLETIONS else chat
    except _SHAPE_ERRORS as error:
        raise TranslationError(f"the answer has another shape: {error!r}") from error


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

    Examples
    --------
    >>> anthropic_error(404, "There is no such model.", "model_not_found")["error"]["type"]
    'not_found_error'
    """
    other = "api_error" if status >= 500 else "invalid_request_error"
    kind = _ANTHROPIC_ERRORS.get(status, other)
    return {"type": "error", "error": {"type": kind, "message": message, "code": code}}


# Requests


def _check_fields(endpoint: str, request: Document) -> None:
    known = FIELDS[endpoint]
    for name, value in request.items():
        if not value or name in known["translated"] or name in known["ignored"]:
            continue
        if name in known["refused"]:
            if value == _HARMLESS.get(name):
                continue
            remedy = _REMEDIES.get(name, "Leave it out, or name an expert that takes it.")
            message = f"{name} is not supported here. {remedy}"
            raise TranslationError(message, parameter=name, code="unsupported_field")
        message = f"{_short(name)} is not a field of {endpoint} that can be translated."
        raise TranslationError(message, parameter=_short(name), code="unknown_field")


def _messages_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    if request.get("system"):
        messages.append({"role": "system", "content": _text_of(request["system"], "system")})
    for turn in _objects(request, "messages", ""):
        role, content = turn.get("role"), turn.get("content")
        if role not in ("user", "assistant", "system"):
            raise _wrong("messages.role", "must be user, assistant or system")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            messages.append(_assistant_from_blocks(_objects(turn, "content", "messages")))
        else:
            messages += _turns_from_blocks(role, _objects(turn, "content", "messages"))
    chat = _with_given(
        {"model": request.get("model"), "messages": messages},
        request,
        {"max_tokens": "max_tokens", "stop_sequences": "stop", "stream": "stream",
         "temperature": "temperature", "top_p": "top_p"},
    )  # fmt: skip
    if request.get("tools"):
        chat["tools"] = [_tool_from_anthropic(tool) for tool in _objects(request, "tools", "")]
    if request.get("tool_choice"):
        choice = _get(request, "tool_choice", dict, "")
        kind = choice.get("type")
        if kind == "tool":
            name = _get(choice, "name", str, "tool_choice")
            chat["tool_choice"] = {"type": "function", "function": {"name": name}}
        elif kind in ("auto", "any", "none"):
            chat["tool_choice"] = "required" if kind == "any" else kind
        else:
            raise _wrong("tool_choice.type", "must be auto, any, tool or none")
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    if request.get("output_config"):
        config = _get(request, "output_config", dict, "")
        if config.get("effort"):
            chat["reasoning_effort"] = _renamed(_EFFORTS_TO_OPENAI, config["effort"])
        if config.get("format"):
            form = _get(config, "format", dict, "output_config")
            schema = _get(form, "schema", dict, "output_config.format")
            schema = {"name": "answer", "schema": schema, "strict": True}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def _assistant_from_blocks(blocks: list[Document]) -> Document:
    """An assistant's message; what it thought is left out."""
    texts, calls = [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(_get(block, "text", str, "content"))
        elif kind == "tool_use":
            name, number = _get(block, "name", str, "content"), _get(block, "id", str, "content")
            calls.append(_call(number, name, json.dumps(block.get("input") or {})))
        elif kind not in ("thinking", "redacted_thinking"):
            raise _unsupported_content(kind)
    message: Document = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    return message


def _turns_from_blocks(role: str, blocks: list[Document]) -> Iterator[Document]:
    """The results of tools, each a message, and one message of everything else."""
    parts: list[Document] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_result":
            content = block.get("content") or ""
            inner = [{"type": "text", "text": content}] if isinstance(content, str) else None
            inner = _objects(block, "content", "tool_result") if inner is None else inner
            # A tool's message holds text alone: its images go into the user's.
            texts = [part for part in inner if part.get("type") == "text"]
            parts += [_part_from_block(part) for part in inner if part.get("type") != "text"]
            yield {
                "role": "tool",
                "tool_call_id": _get(block, "tool_use_id", str, "tool_result"),
                "content": "\n".join(_get(part, "text", str, "tool_result") for part in texts),
            }
        else:
            parts.append(_part_from_block(block))
    if parts:
        yield {"role": role, "content": parts}


def _part_from_block(block: Document) -> Document:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": _get(block, "text", str, "content")}
    if kind != "image":
        raise _unsupported_content(kind)
    source = _get(block, "source", dict, "image")
    if source.get("type") == "url":
        url = _get(source, "url", str, "image.source")
    elif source.get("type") == "base64":
        data = _get(source, "data", str, "image.source")
        url = f"data:{_get(source, 'media_type', str, 'image.source')};base64,{data}"
    else:
        raise _unsupported_content(f"image of {_short(source.get('type'))}")
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_from_anthropic(tool: Document) -> Document:
    if tool.get("type") not in (None, "custom"):
        raise _unsupported_tool(tool)
    function = {
        "name": _get(tool, "name", str, "tools"),
        "parameters": _get(tool, "input_schema", dict, "tools"),
    }
    function = _with_given(function, tool, {"description": "description", "strict": "strict"})
    return {"type": "function", "function": function}


def _responses_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    if request.get("instructions"):
        content = _get(request, "instructions", str, "")
        messages.append({"role": "system", "content": content})
    if isinstance(request.get("input"), str):
        messages.append({"role": "user", "content": request["input"]})
    else:
        for item in _objects(request, "input", ""):
            _add_item(messages, item)
    chat = _with_given(
        {"model": request.get("model"), "messages": messages},
        request,
        {"max_output_tokens": "max_tokens", "stream": "stream", "temperature": "temperature",
         "top_p": "top_p"},
    )  # fmt: skip
    if request.get("parallel_tool_calls") is False and request.get("tools"):
        chat["parallel_tool_calls"] = False
    if request.get("reasoning"):
        effort = _get(request, "reasoning", dict, "").get("effort")
        if effort:
            chat["reasoning_effort"] = effort
    if request.get("text"):
        text = _get(request, "text", dict, "")
        if text.get("verbosity"):
            chat["verbosity"] = text["verbosity"]
        form = dict(text.get("format") or {})
        kind = form.pop("type", "text")
        if kind == "json_schema":
            chat["response_format"] = {"type": kind, "json_schema": form}
        elif kind != "text":
            chat["response_format"] = {"type": kind}
    if request.get("tools"):
        tools = _objects(request, "tools", "")
        for tool in tools:
            if tool.get("type") != "function":
                raise _unsupported_tool(tool)
        names = ("name", "description", "parameters", "strict")
        chat["tools"] = [
            {"type": "function", "function": {key: tool[key] for key in names if key in tool}}
            for tool in tools
        ]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise _unsupported_tool(choice)
        name = _get(choice, "name", str, "tool_choice")
        choice = {"type": "function", "function": {"name": name}}
    if choice:
        chat["tool_choice"] = choice
    return chat


def _add_item(messages: list[Document], item: Document) -> None:
    """Add an input item of a Responses request to the messages of a chat."""
    kind = item.get("type", "message")
    if kind == "message":
        content = item.get("content")
        if not isinstance(content, str):
            content = [_part_from_input(part) for part in _objects(item, "content", "input")]
            if item.get("role") == "assistant":
                content = "\n".join(part.get("text", "") for part in content)
        messages.append({"role": _get(item, "role", str, "input"), "content": content})
    elif kind == "function_call":
        number, name = _get(item, "call_id", str, "input"), _get(item, "name", str, "input")
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        calls = messages[-1].setdefault("tool_calls", [])
        calls.append(_call(number, name, _get(item, "arguments", str, "input")))
    elif kind == "function_call_output":
        output = item.get("output")
        parts = [] if isinstance(output, str) else _objects(item, "output", "input")
        images = [part for part in parts if part.get("type") != "input_text"]
        text = output if isinstance(output, str) else _text_of(
            [part for part in parts if part.get("type") == "input_text"], "input.output"
        )  # fmt: skip
        number = _get(item, "call_id", str, "input")
        messages.append({"role": "tool", "tool_call_id": number, "content": text})
        if images:
            messages.append({"role": "user", "content": [*map(_part_from_input, images)]})
    elif kind != "reasoning":
        raise _unsupported_content(kind)


def _part_from_input(part: Document) -> Document:
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": _get(part, "text", str, "input.content")}
    if kind == "refusal":
        return {"type": "text", "text": _get(part, "refusal", str, "input.content")}
    if kind != "input_image" or part.get("file_id"):
        raise _unsupported_content(kind if kind != "input_image" else "image of a file")
    image = {"url": _get(part, "image_url", str, "input.content")}
    return {"type": "image_url", "image_url": _with_given(image, part, {"detail": "detail"})}


def _completion_request_to_chat(request: Document) -> Document:
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise _wrong("prompt", "must be one text for an expert that speaks Anthropic's API")
    chat = {key: value for key, value in request.items() if key != "prompt"}
    return chat | {"messages": [{"role": "user", "content": prompt}]}


_TO_CHAT = {
    RESPONSES: _responses_request_to_chat,
    MESSAGES: _messages_request_to_chat,
    COMPLETIONS: _completion_request_to_chat,
}


def chat_to_messages(chat: Document, max_tokens: int) -> Document:
    """A chat completion request as a Messages request.

    Examples
    --------
    >>> chat_to_messages({"model": "m", "messages": [{"role": "system", "content": "Hi"}]}, 100)
    {'model': 'm', 'max_tokens': 100, 'messages': [], 'system': 'Hi'}
    """
    _check_fields(CHAT, chat)
    system: list[str] = []
    messages: list[Document] = []
    for message in _objects(chat, "messages", ""):
        role = message.get("role")
        if role in ("system", "developer"):
            system.append(_text_of(message.get("content"), "messages.content"))
            continue
        if role not in ("user", "assistant", "tool"):
            raise _wrong("messages.role", "must be system, developer, user, assistant or tool")
        blocks = _blocks_of(message)
        role = "assistant" if role == "assistant" else "user"
        # Results of several tools must stand in one message.
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    limit = chat.get("max_completion_tokens") or chat.get("max_tokens") or max_tokens
    request: Document = {"model": chat.get("model"), "max_tokens": limit, "messages": messages}
    if system:
        request["system"] = "\n\n".join(system)
    names = {"stream": "stream", "temperature": "temperature", "top_p": "top_p"}
    _with_given(request, chat, names)
    if isinstance(request.get("temperature"), int | float):
        request["temperature"] = min(request["temperature"], 1)
    if stop := chat.get("stop"):
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if chat.get("tools"):
        request["tools"] = [_tool_to_anthropic(tool) for tool in _objects(chat, "tools", "")]
        choice = _choice_to_anthropic(chat.get("tool_choice"))
        if chat.get("parallel_tool_calls") is False and choice.get("type") != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
        if choice:
            request["tool_choice"] = choice
    if config := _output_config(chat):
        request["output_config"] = config
    return request


def _blocks_of(message: Document) -> list[Document]:
    """The content of a chat message as Anthropic's blocks."""
    content = message.get("content")
    if message["role"] == "tool":
        number = _get(message, "tool_call_id", str, "messages")
        text = _text_of(content, "messages.content")
        return [{"type": "tool_result", "tool_use_id": number, "content": text}]
    blocks: list[Document] = []
    if isinstance(content, str):
        blocks += [{"type": "text", "text": content}] if content else []
    elif content is not None:
        blocks += [_block_of(part) for part in _objects(message, "content", "messages")]
    for call in _objects(message, "tool_calls", "messages") if message.get("tool_calls") else ():
        function = _get(call, "function", dict, "tool_calls")
        try:
            given = json.loads(_get(function, "arguments", str, "tool_calls") or "{}")
        except (ValueError, RecursionError) as error:
            raise _wrong("messages.tool_calls.arguments", "must be JSON") from error
        number, name = (
            _get(call, "id", str, "tool_calls"),
            _get(function, "name", str, "tool_calls"),
        )
        blocks.append({"type": "tool_use", "id": number, "name": name, "input": given})
    return blocks


def _block_of(part: Document) -> Document:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": _get(part, "text", str, "messages.content")}
    if kind == "refusal":
        return {"type": "text", "text": _get(part, "refusal", str, "messages.content")}
    if kind != "image_url":
        raise _unsupported_content(kind)
    url = _get(_get(part, "image_url", dict, "messages.content"), "url", str, "image_url")
    source = {"type": "url", "url": url}
    if url.startswith("data:"):
        found = _DATA_URL.fullmatch(url)
        if found is None:
            raise _wrong("messages.content.image_url", "must be an address, or data in base64")
        source = {"type": "base64", "media_type": found[1], "data": found[2]}
    return {"type": "image", "source": source}


def _tool_to_anthropic(tool: Document) -> Document:
    if tool.get("type") != "function":
        raise _unsupported_tool(tool)
    function = _get(tool, "function", dict, "tools")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    found = {"name": _get(function, "name", str, "tools.function"), "input_schema": schema}
    return _with_given(found, function, {"description": "description", "strict": "strict"})


def _choice_to_anthropic(choice: Any) -> Document:
    if not choice:
        return {}
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return {"type": "any" if choice == "required" else choice}
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = _get(choice, "function", dict, "tool_choice")
        return {"type": "tool", "name": _get(function, "name", str, "tool_choice")}
    message = "tool_choice must be auto, none, required or a function."
    raise TranslationError(message, parameter="tool_choice", code="unsupported_field")


def _output_config(chat: Document) -> Document:
    config: Document = {}
    effort = chat.get("reasoning_effort")
    if effort and effort != "none":
        config["effort"] = _renamed(_EFFORTS_TO_ANTHROPIC, effort)
    if chat.get("response_format"):
        form = _get(chat, "response_format", dict, "")
        if form.get("type") == "json_schema":
            schema = _get(form, "json_schema", dict, "response_format")
            schema = _get(schema, "schema", dict, "response_format.json_schema")
            config["format"] = {"type": "json_schema", "schema": schema}
        elif form.get("type") != "text":
            message = "response_format must be json_schema or text for this expert."
            raise TranslationError(message, parameter="response_format", code="unsupported_field")
    return config


# Answers


def message_to_chat(message: Document) -> Document:
    """Anthropic's message as a chat completion."""
    text, calls = [], []
    for block in message["content"]:
        if block["type"] == "text":
            text.append(block["text"])
        elif block["type"] == "tool_use":
            calls.append(_call(block["id"], block["name"], json.dumps(block["input"])))
    answer: Document = {"role": "assistant", "content": "".join(text) if text else None}
    if calls:
        answer["tool_calls"] = calls
    reason = _TO_FINISH_REASON.get(message.get("stop_reason") or "", "stop")
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

    Examples
    --------
    >>> chat_usage({"input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 3})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'prompt_tokens': 25, 'completion_tokens': 3, 'total_tokens': 28,
     'prompt_tokens_details': {'cached_tokens': 20}}
    """
    if not isinstance(usage, dict):
        return None
    cached, written = (
        _count(usage.get(f"cache_{verb}_input_tokens")) for verb in ("read", "creation")
    )
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
        given = json.loads(function.get("arguments") or "{}")
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}
        )
    message = _empty_message(chat.get("id"), chat.get("model"))
    reason = "refusal" if answer.get("refusal") else _stop_reason(choice.get("finish_reason"))
    return message | {
        "content": blocks,
        "stop_reason": reason,
        "usage": _message_usage(chat.get("usage")),
    }


def _empty_message(number: Any, model: Any) -> Document:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _message_usage(None),
    }


def _stop_reason(finish_reason: Any) -> str:
    return _TO_STOP_REASON.get(finish_reason or "stop", "end_turn")


def _message_usage(usage: Any) -> Document:
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
        output.append(_message_item(f"msg_{number}", part))
    elif answer.get("content"):
        output.append(_message_item(f"msg_{number}", _text_part(answer["content"])))
    for place, call in enumerate(answer.get("tool_calls") or ()):
        function = call["function"]
        item = f"fc_{number}_{place}"
        output.append(_call_item(item, call["id"], function["name"], function["arguments"]))
    made, model = chat.get("created"), chat.get("model")
    response = _empty_response(number, made, model, request)
    reason = choice.get("finish_reason")
    return response | _response_end(reason, output, chat.get("usage"))


def _empty_response(number: Any, created: Any, model: Any, request: Document) -> Document:
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
    defaults: Document = {
        "instructions": None, "max_output_tokens": None, "metadata": {}, "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None}, "temperature": None,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": None,
        "truncation": "disabled",
    }  # fmt: skip
    for key, default in defaults.items():
        given = request.get(key)
        response[key] = default if given is None else given
    return response


def _response_end(reason: Any, output: list[Document], usage: Any) -> Document:
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
    tokens_in, tokens_out = (
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
    )
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": tokens_in + tokens_out,
    }


def _message_item(number: str, *parts: Document, status: str = "completed") -> Document:
    return {
        "id": number,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def _text_part(text: str) -> Document:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(
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


# Streams


class MessageReader:
    """Events of Anthropic's stream as chunks of a chat.

    Attributes
    ----------
    usage : as of a chat, so far
    done : whether the stream has ended as it should
    """

    def __init__(self) -> None:
        self.done = False
        self._usage: Document = {}
        self._base: Document = {}
        self._calls = -1

    @property
    def usage(self) -> Document | None:
        return chat_usage(self._usage) if self._usage else None

    @property
    def finished(self) -> bool:
        """Whether the answer is whole: only its last event says so."""
        return self.done

    def read(self, event: Document) -> Iterator[Document]:
        """The chunks of one event."""
        kind = event.get("type")
        if kind == "message_start":
            message = event["message"]
            self._usage.update(message.get("usage") or {})
            self._base = {
                "id": message.get("id"),
                "object": "chat.completion.chunk",
                "created": int(time.time()),
                "model": message.get("model"),
            }
            yield self._chunk({"role": "assistant", "content": ""})
        elif kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
            self._calls += 1
            block = event["content_block"]
            call = {"index": self._calls, **_call(block["id"], block["name"], "")}
            yield self._chunk({"tool_calls": [call]})
        elif kind == "content_block_delta":
            delta = event["delta"]
            if delta["type"] == "text_delta":
                yield self._chunk({"content": delta["text"]})
            elif delta["type"] == "input_json_delta" and self._calls >= 0:
                call = {"index": self._calls, "function": {"arguments": delta["partial_json"]}}
                yield self._chunk({"tool_calls": [call]})
        elif kind == "message_delta":
            given = event.get("usage") or {}
            self._usage.update((key, value) for key, value in given.items() if value is not None)
            if reason := event["delta"].get("stop_reason"):
                yield self._chunk({}, _TO_FINISH_REASON.get(reason, "stop"))
        elif kind == "message_stop":
            self.done = True

    def observe(self, event: Document) -> None:
        """Note what an event says, without its chunks; TranslationError if it has another shape."""
        try:
            for _ in self.read(event):
                pass
        except _SHAPE_ERRORS as error:
            raise TranslationError(f"an event has another shape: {error!r}") from error

    def _chunk(self, delta: Document, finish_reason: str | None = None) -> Document:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return {**self._base, "choices": [choice]}


class _ChatReader:
    """Events of a chat, which are its chunks."""

    def __init__(self) -> None:
        self.finished = self.done = False
        self.usage: Document | None = None

    def read(self, event: Document) -> Iterator[Document]:
        if event.get("usage"):
            self.usage = event["usage"]
        self.finished |= any(choice.get("finish_reason") for choice in event.get("choices") or ())
        yield event


class _Writer(Protocol):
    def write(self, chunk: Document) -> bytes: ...

    def finish(self, usage: Document | None) -> bytes: ...


class _ChatWriter:
    """Chunks as events of a chat, or of a completion."""

    def __init__(self, endpoint: str, include_usage: bool) -> None:
        self._completes = endpoint == COMPLETIONS
        self._include_usage = include_usage
        self._base: Document = {}

    def write(self, chunk: Document) -> bytes:
        self._base = {key: chunk.get(key) for key in ("id", "object", "created", "model")}
        if not self._completes:
            return _event(chunk)
        self._base["object"] = "text_completion"
        choice = chunk["choices"][0]
        text, reason = choice["delta"].get("content") or "", choice["finish_reason"]
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return _event(self._base | {"choices": [choice]})

    def finish(self, usage: Document | None) -> bytes:
        last = b"data: [DONE]\n\n"
        if not self._include_usage:
            return last
        return _event(self._base | {"choices": [], "usage": usage}) + last


class _Pieces:
    """Cuts chunks of a chat into texts, beginnings of tool calls, and parts of their arguments."""

    def __init__(self) -> None:
        self._index: Any = None
        self._id: Any = None
        self._characters = 0
        self.finish_reason: str | None = None

    def cut(self, chunk: Document) -> Iterator[tuple[str, str, str]]:
        """Triples: ("text", text, ""), ("call", id, name), ("arguments", text, "")."""
        for choice in (chunk.get("choices") or [])[:1]:
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            delta = choice.get("delta") or {}
            if text := delta.get("content") or delta.get("refusal"):
                yield "text", self._counted(text), ""
            for call in delta.get("tool_calls") or ():
                function = call.get("function") or {}
                index, number = call.get("index"), call.get("id") or self._id
                # Some servers count every call as 0 and tell them apart by their ids.
                if (index, number) != (self._index, self._id):
                    self._index, self._id = index, number
                    yield "call", self._counted(number), self._counted(function["name"])
                if arguments := function.get("arguments"):
                    yield "arguments", self._counted(arguments), ""

    def _counted(self, text: Any) -> str:
        if not isinstance(text, str):
            raise TypeError(f"{text!r} is not a text")
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise ValueError("the answer is too long")
        return text


class _MessageWriter:
    """Chunks as events of Anthropic's stream."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._started = False
        self._index = -1
        self._open: str | None = None

    def write(self, chunk: Document) -> bytes:
        events = []
        if not self._started:
            self._started = True
            message = _empty_message(chunk.get("id"), chunk.get("model"))
            events.append(_named_event({"type": "message_start", "message": message}))
        for kind, value, name in self._pieces.cut(chunk):
            if kind == "text":
                if self._open != "text":
                    events.append(self._start("text", {"type": "text", "text": ""}))
                events.append(self._delta({"type": "text_delta", "text": value}))
            elif kind == "call":
                block = {"type": "tool_use", "id": value, "name": name, "input": {}}
                events.append(self._start("tool_use", block))
            else:
                events.append(self._delta({"type": "input_json_delta", "partial_json": value}))
        return b"".join(events)

    def finish(self, usage: Document | None) -> bytes:
        reason = _stop_reason(self._pieces.finish_reason)
        delta = {"stop_reason": reason, "stop_sequence": None}
        last = {"type": "message_delta", "delta": delta, "usage": _message_usage(usage)}
        return self._stop() + _named_event(last) + _named_event({"type": "message_stop"})

    def _start(self, kind: str, block: Document) -> bytes:
        before = self._stop()
        self._index += 1
        self._open = kind
        event = {"type": "content_block_start", "index": self._index, "content_block": block}
        return before + _named_event(event)

    def _delta(self, delta: Document) -> bytes:
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return _named_event(event)

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _named_event({"type": "content_block_stop", "index": self._index})


class _ResponseWriter:
    """Chunks as events of a Responses stream."""

    def __init__(self, request: Document) -> None:
        self._request = request
        self._pieces = _Pieces()
        self._response: Document = {}
        self._output: list[Document] = []
        self._said: list[str] = []
        self._is_open = False
        self._events = 0

    def write(self, chunk: Document) -> bytes:
        events = []
        if not self._response:
            number, made = chunk.get("id"), chunk.get("created")
            self._response = _empty_response(number, made, chunk.get("model"), self._request)
            for kind in ("created", "in_progress"):
                events.append(self._event(f"response.{kind}", response=self._response))
        for kind, value, name in self._pieces.cut(chunk):
            number = self._response["id"].removeprefix("resp_")
            if kind == "text":
                if not self._is_open or self._item["type"] != "message":
                    number = f"msg_{number}_{len(self._output)}"
                    events.append(self._start(_message_item(number, status="in_progress")))
                    part = _text_part("")
                    events.append(self._part_event("response.content_part.added", part=part))
                more = {"delta": value, "logprobs": []}
                events.append(self._part_event("response.output_text.delta", **more))
                self._said.append(value)
            elif kind == "call":
                item = f"fc_{number}_{len(self._output)}"
                events.append(self._start(_call_item(item, value, name, "", "in_progress")))
            else:
                kind = "response.function_call_arguments.delta"
                events.append(self._item_event(kind, delta=value))
                self._said.append(value)
        return b"".join(events)

    def finish(self, usage: Document | None) -> bytes:
        closing = self._stop()
        end = _response_end(self._pieces.finish_reason, self._output, usage)
        response = self._response | end
        return closing + self._event(f"response.{end['status']}", response=response)

    @property
    def _item(self) -> Document:
        return self._output[-1]

    def _start(self, item: Document) -> bytes:
        before = self._stop()
        self._output.append(item)
        self._is_open = True
        place = len(self._output) - 1
        return before + self._event("response.output_item.added", output_index=place, item=item)

    def _stop(self) -> bytes:
        """Close the item that is open."""
        if not self._is_open:
            return b""
        text = "".join(self._said)
        self._said.clear()
        self._is_open = False
        events = []
        if self._item["type"] == "message":
            part = _text_part(text)
            more = {"text": text, "logprobs": []}
            events.append(self._part_event("response.output_text.done", **more))
            events.append(self._part_event("response.content_part.done", part=part))
            self._item["content"] = [part]
        else:
            kind, name = "response.function_call_arguments.done", self._item["name"]
            events.append(self._item_event(kind, arguments=text, name=name))
            self._item["arguments"] = text
        self._item["status"] = "completed"
        place = len(self._output) - 1
        last = self._event("response.output_item.done", output_index=place, item=self._item)
        return b"".join([*events, last])

    def _part_event(self, kind: str, **more: Any) -> bytes:
        return self._item_event(kind, content_index=0, **more)

    def _item_event(self, kind: str, **more: Any) -> bytes:
        place = len(self._output) - 1
        return self._event(kind, item_id=self._item["id"], output_index=place, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        event = {"type": kind, "sequence_number": self._events, **more}
        self._events += 1
        return _named_event(event)


class StreamTranslator:
    """Events of an expert's stream in the shape of the client's endpoint.

    Parameters
    ----------
    endpoint, api : of the client, and of the expert
    model : the name that the client is told
    request : of the client
    """

    def __init__(self, endpoint: str, api: str, model: str, request: Document) -> None:
        self._reader = MessageReader() if api == "anthropic" else _ChatReader()
        self._model = model
        options = request.get("stream_options")
        include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        self._writer: _Writer
        if endpoint == RESPONSES:
            self._writer = _ResponseWriter(request)
        elif endpoint == MESSAGES:
            self._writer = _MessageWriter()
        else:
            self._writer = _ChatWriter(endpoint, include_usage)

    @property
    def usage(self) -> Document | None:
        """Usage so far, as that of a chat."""
        return self._reader.usage

    @property
    def finished(self) -> bool:
        """Whether the answer is whole."""
        return self._reader.finished

    @property
    def done(self) -> bool:
        """Whether the expert has said that nothing follows."""
        return self._reader.done

    def feed(self, event: Document, raw: bytes = b"") -> bytes:
        """The client's events for one of the expert's; TranslationError if it has another shape."""
        try:
            chunks = self._reader.read(event)
            return b"".join(self._writer.write({**one, "model": self._model}) for one in chunks)
        except _SHAPE_ERRORS as error:
            raise TranslationError(f"an event has another shape: {error!r}") from error

    def finish(self) -> bytes:
        """The last events, of a stream that ended as it should."""
        return self._writer.finish(self.usage)


# Small parts


def _with_given(document: Document, source: Mapping[str, Any], names: dict[str, str]) -> Document:
    """Add the fields that are given, under their other names."""
    for name, other in names.items():
        if source.get(name) is not None:
            document[other] = source[name]
    return document


def _call(number: str, name: str, arguments: str) -> Document:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text_of(content: Any, where: str) -> str:
    """The text of a content that must be text, in one piece or in several."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _wrong(where, "must be a text, or a list of texts")
    return "\n".join(_get(_checked(part, dict, where), "text", str, where) for part in content)


def _get(holder: Document, key: str, kind: type[T], where: str) -> T:
    return _checked(holder.get(key), kind, f"{where}.{key}" if where else key)


def _checked(value: Any, kind: type[T], where: str) -> T:
    if not isinstance(value, kind):
        raise _wrong(where, f"must be {_KINDS[kind]}")
    return value


def _objects(holder: Document, key: str, where: str) -> list[Document]:
    """A list of objects."""
    name = f"{where}.{key}" if where else key
    return [_checked(one, dict, name) for one in _get(holder, key, list, where)]


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _renamed(names: Mapping[str, str], value: Any) -> Any:
    return names.get(value, value) if isinstance(value, str) else value


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _wrong(where: str, rule: str) -> TranslationError:
    return TranslationError(f"{where} {rule}.", parameter=where, code="invalid_type")


def _unsupported_content(kind: Any) -> TranslationError:
    message = f"Content of type {_short(kind)} cannot be translated for this expert."
    return TranslationError(message, parameter="content", code="unsupported_content")


def _unsupported_tool(tool: Document) -> TranslationError:
    message = f"Tools of type {_short(tool.get('type'))} cannot be translated for this expert."
    return TranslationError(message, parameter="tools", code="unsupported_tool")


def _event(document: Document) -> bytes:
    return b"data: " + json.dumps(document).encode("ascii") + b"\n\n"


def _named_event(document: Document) -> bytes:
    return b"event: " + document["type"].encode("ascii") + b"\n" + _event(document)
