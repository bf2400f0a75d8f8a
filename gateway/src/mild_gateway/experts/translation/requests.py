"""Requests: from every client's API to a chat completion request, and from there to Anthropic's API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mild_gateway.experts.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    RESPONSES,
    Document,
    TranslationError,
    check_fields,
    cut_short,
    get,
    given,
    objects,
    text_of,
    tool_call,
    unsupported_content,
    unsupported_tool,
    with_given,
    wrong,
)

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)
_SAMPLING = ("temperature", "top_p")
_EFFORTS_TO_ANTHROPIC = {"minimal": "low"}
_EFFORTS_TO_OPENAI = {"max": "xhigh"}


def translate_request(endpoint: str, request: Document, api: str, max_tokens: int) -> Document:
    """A client's request as an expert of the other API takes it; ``max_tokens`` where none is given.

    TranslationError names the field, with the code ``unsupported_field``, ``unknown_field``,
    ``unsupported_content`` or ``invalid_type``.

    >>> translate_request("/responses", {"model": "m", "input": "Hi"}, "openai", 100)
    {'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}]}
    """
    if endpoint == EMBEDDINGS:
        raise TranslationError("Anthropic's API has no embeddings.", code="unsupported_endpoint")
    check_fields(endpoint, request)
    chat = _TO_CHAT[endpoint](request) if endpoint in _TO_CHAT else request
    return chat_to_messages(chat, max_tokens) if api == "anthropic" else chat


def _messages_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    if request.get("system"):
        messages.append({"role": "system", "content": text_of(request["system"], "system")})
    for turn in objects(request, "messages", ""):
        role, content = turn.get("role"), turn.get("content")
        if role not in ("user", "assistant", "system"):
            raise wrong("messages.role", "must be user, assistant or system")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            messages.append(_assistant_from_blocks(objects(turn, "content", "messages")))
        else:
            messages += _turns_from_blocks(role, objects(turn, "content", "messages"))
    chat: Document = {"model": request.get("model"), "messages": messages}
    with_given(chat, request, "max_tokens", "stream", *_SAMPLING, stop_sequences="stop")
    if request.get("tools"):
        chat["tools"] = [_tool_from_anthropic(tool) for tool in objects(request, "tools", "")]
    if choice := given(request, "tool_choice", dict):
        kind = choice.get("type")
        if kind == "tool":
            name = get(choice, "name", str, "tool_choice")
            chat["tool_choice"] = {"type": "function", "function": {"name": name}}
        elif kind in ("auto", "any", "none"):
            chat["tool_choice"] = "required" if kind == "any" else kind
        else:
            raise wrong("tool_choice.type", "must be auto, any, tool or none")
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    if config := given(request, "output_config", dict):
        if config.get("effort"):
            chat["reasoning_effort"] = _EFFORTS_TO_OPENAI.get(
                str(config["effort"]), config["effort"]
            )
        if form := given(config, "format", dict, "output_config"):
            schema = get(form, "schema", dict, "output_config.format")
            schema = {"name": "answer", "schema": schema, "strict": True}
            chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat


def _assistant_from_blocks(blocks: list[Document]) -> Document:
    """An assistant's message; what it thought is left out."""
    texts, calls = [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(get(block, "text", str, "content"))
        elif kind == "tool_use":
            name, number = get(block, "name", str, "content"), get(block, "id", str, "content")
            calls.append(tool_call(number, name, json.dumps(block.get("input") or {})))
        elif kind not in ("thinking", "redacted_thinking"):
            raise unsupported_content(kind)
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
            inner = [{"type": "text", "text": content}]
            if not isinstance(content, str):
                inner = objects(block, "content", "tool_result")
            # A tool's message holds text alone: its images go into the user's.
            texts = [part for part in inner if part.get("type") == "text"]
            parts += [_part_from_block(part) for part in inner if part.get("type") != "text"]
            yield {
                "role": "tool",
                "tool_call_id": get(block, "tool_use_id", str, "tool_result"),
                "content": "\n".join(get(part, "text", str, "tool_result") for part in texts),
            }
        else:
            parts.append(_part_from_block(block))
    if parts:
        yield {"role": role, "content": parts}


def _part_from_block(block: Document) -> Document:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": get(block, "text", str, "content")}
    if kind != "image":
        raise unsupported_content(kind)
    source = get(block, "source", dict, "image")
    if source.get("type") == "url":
        url = get(source, "url", str, "image.source")
    elif source.get("type") == "base64":
        data = get(source, "data", str, "image.source")
        url = f"data:{get(source, 'media_type', str, 'image.source')};base64,{data}"
    else:
        raise unsupported_content(f"image of {cut_short(source.get('type'))}")
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_from_anthropic(tool: Document) -> Document:
    if tool.get("type") not in (None, "custom"):
        raise unsupported_tool(tool)
    name, schema = get(tool, "name", str, "tools"), get(tool, "input_schema", dict, "tools")
    function = with_given({"name": name, "parameters": schema}, tool, "description", "strict")
    return {"type": "function", "function": function}


def _responses_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    if instructions := given(request, "instructions", str):
        messages.append({"role": "system", "content": instructions})
    if isinstance(request.get("input"), str):
        messages.append({"role": "user", "content": request["input"]})
    else:
        for item in objects(request, "input", ""):
            _add_item(messages, item)
    chat: Document = {"model": request.get("model"), "messages": messages}
    with_given(chat, request, "stream", *_SAMPLING, max_output_tokens="max_tokens")
    if request.get("parallel_tool_calls") is False and request.get("tools"):
        chat["parallel_tool_calls"] = False
    if effort := (given(request, "reasoning", dict) or {}).get("effort"):
        chat["reasoning_effort"] = effort
    if text := given(request, "text", dict):
        if text.get("verbosity"):
            chat["verbosity"] = text["verbosity"]
        form = dict(given(text, "format", dict, "text") or {})
        kind = form.pop("type", "text")
        if kind == "json_schema":
            chat["response_format"] = {"type": kind, "json_schema": form}
        elif kind != "text":
            chat["response_format"] = {"type": kind}
    if request.get("tools"):
        tools = objects(request, "tools", "")
        for tool in tools:
            if tool.get("type") != "function":
                raise unsupported_tool(tool)
        names = ("name", "description", "parameters", "strict")
        functions = [with_given({}, tool, *names) for tool in tools]
        chat["tools"] = [{"type": "function", "function": function} for function in functions]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise unsupported_tool(choice)
        name = get(choice, "name", str, "tool_choice")
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
            content = [_part_from_input(part) for part in objects(item, "content", "input")]
            if item.get("role") == "assistant":
                content = "\n".join(part.get("text", "") for part in content)
        role = get(item, "role", str, "input")
        # The older name, which every server knows.
        role = "system" if role == "developer" else role
        messages.append({"role": role, "content": content})
    elif kind == "function_call":
        number, name = get(item, "call_id", str, "input"), get(item, "name", str, "input")
        if not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": None})
        calls = messages[-1].setdefault("tool_calls", [])
        calls.append(tool_call(number, name, get(item, "arguments", str, "input")))
    elif kind == "function_call_output":
        output = item.get("output")
        parts = [{"type": "input_text", "text": output}]
        if not isinstance(output, str):
            parts = objects(item, "output", "input")
        images = [part for part in parts if part.get("type") != "input_text"]
        text = text_of([part for part in parts if part not in images], "input.output")
        number = get(item, "call_id", str, "input")
        messages.append({"role": "tool", "tool_call_id": number, "content": text})
        if images:
            messages.append({"role": "user", "content": [*map(_part_from_input, images)]})
    elif kind != "reasoning":
        raise unsupported_content(kind)


def _part_from_input(part: Document) -> Document:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "refusal"):
        key = "refusal" if kind == "refusal" else "text"
        return {"type": "text", "text": get(part, key, str, "input.content")}
    if kind != "input_image" or part.get("file_id"):
        raise unsupported_content(kind if kind != "input_image" else "image of a file")
    image = {"url": get(part, "image_url", str, "input.content")}
    return {"type": "image_url", "image_url": with_given(image, part, "detail")}


def _completion_request_to_chat(request: Document) -> Document:
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise wrong("prompt", "must be one text for an expert that speaks Anthropic's API")
    chat = {key: value for key, value in request.items() if key != "prompt"}
    return chat | {"messages": [{"role": "user", "content": prompt}]}


_TO_CHAT = {
    RESPONSES: _responses_request_to_chat,
    MESSAGES: _messages_request_to_chat,
    COMPLETIONS: _completion_request_to_chat,
}


def chat_to_messages(chat: Document, max_tokens: int) -> Document:
    check_fields(CHAT, chat)
    system: list[str] = []
    messages: list[Document] = []
    for message in objects(chat, "messages", ""):
        role = message.get("role")
        if role in ("system", "developer"):
            system.append(text_of(message.get("content"), "messages.content"))
            continue
        if role not in ("user", "assistant", "tool"):
            raise wrong("messages.role", "must be system, developer, user, assistant or tool")
        blocks = _blocks_of(message)
        if not blocks:
            continue  # Anthropic takes no empty messages
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
    with_given(request, chat, "stream", *_SAMPLING)
    if isinstance(request.get("temperature"), int | float):
        request["temperature"] = min(request["temperature"], 1)
    if stop := chat.get("stop"):
        request["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    if chat.get("tools"):
        request["tools"] = [_tool_to_anthropic(tool) for tool in objects(chat, "tools", "")]
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
        number = get(message, "tool_call_id", str, "messages")
        text = text_of(content, "messages.content")
        return [{"type": "tool_result", "tool_use_id": number, "content": text}]
    blocks: list[Document] = []
    if isinstance(content, str):
        blocks += [{"type": "text", "text": content}] if content else []
    elif content is not None:
        blocks += [_block_of(part) for part in objects(message, "content", "messages")]
    for call in objects(message, "tool_calls", "messages") if message.get("tool_calls") else ():
        function = get(call, "function", dict, "tool_calls")
        arguments = arguments_of(get(function, "arguments", str, "tool_calls"))
        number = get(call, "id", str, "tool_calls")
        name = get(function, "name", str, "tool_calls")
        blocks.append({"type": "tool_use", "id": number, "name": name, "input": arguments})
    return blocks


def _block_of(part: Document) -> Document:
    kind = part.get("type")
    if kind in ("text", "refusal"):
        return {"type": "text", "text": get(part, kind, str, "messages.content")}
    if kind != "image_url":
        raise unsupported_content(kind)
    url = get(get(part, "image_url", dict, "messages.content"), "url", str, "image_url")
    source = {"type": "url", "url": url}
    if url.startswith("data:"):
        found = _DATA_URL.fullmatch(url)
        if found is None:
            raise wrong("messages.content.image_url", "must be an address, or data in base64")
        source = {"type": "base64", "media_type": found[1], "data": found[2]}
    return {"type": "image", "source": source}


def _tool_to_anthropic(tool: Document) -> Document:
    if tool.get("type") != "function":
        raise unsupported_tool(tool)
    function = get(tool, "function", dict, "tools")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    found = {"name": get(function, "name", str, "tools.function"), "input_schema": schema}
    return with_given(found, function, "description", "strict")


def _choice_to_anthropic(choice: Any) -> Document:
    if not choice:
        return {}
    if isinstance(choice, str) and choice in ("auto", "none", "required"):
        return {"type": "any" if choice == "required" else choice}
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = get(choice, "function", dict, "tool_choice")
        return {"type": "tool", "name": get(function, "name", str, "tool_choice")}
    message = "tool_choice must be auto, none, required or a function."
    raise TranslationError(message, parameter="tool_choice", code="unsupported_field")


def _output_config(chat: Document) -> Document:
    config: Document = {}
    effort = chat.get("reasoning_effort")
    if effort and effort != "none":
        config["effort"] = _EFFORTS_TO_ANTHROPIC.get(str(effort), effort)
    if form := given(chat, "response_format", dict):
        if form.get("type") == "json_schema":
            schema = get(form, "json_schema", dict, "response_format")
            schema = get(schema, "schema", dict, "response_format.json_schema")
            config["format"] = {"type": "json_schema", "schema": schema}
        elif form.get("type") != "text":
            message = "response_format must be json_schema or text for this expert."
            raise TranslationError(message, parameter="response_format", code="unsupported_field")
    return config


def arguments_of(text: str) -> Document:
    """The arguments of a tool call; models do not always write the JSON object that they should.

    >>> arguments_of('{"city": "Rome"}'), arguments_of("Rome")
    ({'city': 'Rome'}, {'invalid_json': 'Rome'})
    """
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"invalid_json": text}
