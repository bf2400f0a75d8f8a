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
    copy_fields,
    cut_short,
    get_field,
    get_objects,
    get_optional,
    text_of,
    tool_call,
    type_error,
    unsupported_content,
    unsupported_tool,
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
    chat = request
    if endpoint in _TO_CHAT:
        chat = _TO_CHAT[endpoint](request)
    if api == "anthropic":
        return chat_to_messages(chat, max_tokens)
    return chat


def _messages_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    if request.get("system"):
        messages.append({"role": "system", "content": text_of(request["system"], "system")})
    for turn in get_objects(request, "messages", ""):
        role = turn.get("role")
        content = turn.get("content")
        if role not in ("user", "assistant", "system"):
            raise type_error("messages.role", "must be user, assistant or system")
        if isinstance(content, str):
            messages.append({"role": role, "content": content})
        elif role == "assistant":
            messages.append(_assistant_from_blocks(get_objects(turn, "content", "messages")))
        else:
            messages += _turns_from_blocks(role, get_objects(turn, "content", "messages"))
    chat: Document = {"model": request.get("model"), "messages": messages}
    copy_fields(request, chat, "max_tokens", "stream", *_SAMPLING, stop_sequences="stop")
    if request.get("tools"):
        chat["tools"] = [_tool_from_anthropic(tool) for tool in get_objects(request, "tools", "")]
    choice = get_optional(request, "tool_choice", dict)
    if choice is not None:
        chat["tool_choice"] = _choice_from_anthropic(choice)
        if choice.get("disable_parallel_tool_use"):
            chat["parallel_tool_calls"] = False
    config = get_optional(request, "output_config", dict)
    if config is not None:
        _add_output_config(chat, config)
    return chat


def _choice_from_anthropic(choice: Document) -> Any:
    """Anthropic's ``tool_choice`` as that of a chat."""
    kind = choice.get("type")
    if kind == "tool":
        name = get_field(choice, "name", str, "tool_choice")
        return {"type": "function", "function": {"name": name}}
    if kind == "any":
        return "required"
    if kind in ("auto", "none"):
        return kind
    raise type_error("tool_choice.type", "must be auto, any, tool or none")


def _add_output_config(chat: Document, config: Document) -> None:
    """Add what Anthropic's ``output_config`` says about reasoning and the form of the answer."""
    effort = config.get("effort")
    if effort:
        chat["reasoning_effort"] = _EFFORTS_TO_OPENAI.get(str(effort), effort)
    answer_format = get_optional(config, "format", dict, "output_config")
    if answer_format is not None:
        schema = get_field(answer_format, "schema", dict, "output_config.format")
        json_schema = {"name": "answer", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": json_schema}


def _assistant_from_blocks(blocks: list[Document]) -> Document:
    """An assistant's message; what it thought is left out."""
    texts = []
    calls = []
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(get_field(block, "text", str, "content"))
        elif kind == "tool_use":
            name = get_field(block, "name", str, "content")
            call_id = get_field(block, "id", str, "content")
            calls.append(tool_call(call_id, name, json.dumps(block.get("input") or {})))
        elif kind not in ("thinking", "redacted_thinking"):
            raise unsupported_content(kind)
    message: Document = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    return message


def _turns_from_blocks(role: str, blocks: list[Document]) -> Iterator[Document]:
    """The results of tools, each a message, and one message of everything else."""
    other_parts: list[Document] = []
    for block in blocks:
        if block.get("type") != "tool_result":
            other_parts.append(_part_from_block(block))
            continue
        texts = []
        for inner in _blocks_of_result(block):
            # A tool's message holds text alone: its images go into the user's.
            if inner.get("type") == "text":
                texts.append(get_field(inner, "text", str, "tool_result"))
            else:
                other_parts.append(_part_from_block(inner))
        yield {
            "role": "tool",
            "tool_call_id": get_field(block, "tool_use_id", str, "tool_result"),
            "content": "\n".join(texts),
        }
    if other_parts:
        yield {"role": role, "content": other_parts}


def _blocks_of_result(block: Document) -> list[Document]:
    """The blocks in the result of a tool, which may also be one text."""
    content = block.get("content") or ""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return get_objects(block, "content", "tool_result")


def _part_from_block(block: Document) -> Document:
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": get_field(block, "text", str, "content")}
    if kind != "image":
        raise unsupported_content(kind)
    source = get_field(block, "source", dict, "image")
    if source.get("type") == "url":
        url = get_field(source, "url", str, "image.source")
    elif source.get("type") == "base64":
        data = get_field(source, "data", str, "image.source")
        media_type = get_field(source, "media_type", str, "image.source")
        url = f"data:{media_type};base64,{data}"
    else:
        raise unsupported_content(f"image of {cut_short(source.get('type'))}")
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_from_anthropic(tool: Document) -> Document:
    if tool.get("type") not in (None, "custom"):
        raise unsupported_tool(tool)
    function = {
        "name": get_field(tool, "name", str, "tools"),
        "parameters": get_field(tool, "input_schema", dict, "tools"),
    }
    copy_fields(tool, function, "description", "strict")
    return {"type": "function", "function": function}


def _responses_request_to_chat(request: Document) -> Document:
    messages: list[Document] = []
    instructions = get_optional(request, "instructions", str)
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    if isinstance(request.get("input"), str):
        messages.append({"role": "user", "content": request["input"]})
    else:
        for item in get_objects(request, "input", ""):
            _add_item(messages, item)
    chat: Document = {"model": request.get("model"), "messages": messages}
    copy_fields(request, chat, "stream", *_SAMPLING, max_output_tokens="max_tokens")
    if request.get("parallel_tool_calls") is False and request.get("tools"):
        chat["parallel_tool_calls"] = False
    reasoning = get_optional(request, "reasoning", dict)
    if reasoning is not None and reasoning.get("effort"):
        chat["reasoning_effort"] = reasoning["effort"]
    text_options = get_optional(request, "text", dict)
    if text_options is not None:
        _add_text_options(chat, text_options)
    if request.get("tools"):
        chat["tools"] = [_tool_from_response(tool) for tool in get_objects(request, "tools", "")]
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise unsupported_tool(choice)
        name = get_field(choice, "name", str, "tool_choice")
        choice = {"type": "function", "function": {"name": name}}
    if choice:
        chat["tool_choice"] = choice
    return chat


def _add_text_options(chat: Document, options: Document) -> None:
    """Add what ``text`` of a Responses request says about length and form of the answer."""
    if options.get("verbosity"):
        chat["verbosity"] = options["verbosity"]
    answer_format = dict(get_optional(options, "format", dict, "text") or {})
    kind = answer_format.pop("type", "text")
    if kind == "json_schema":
        chat["response_format"] = {"type": kind, "json_schema": answer_format}
    elif kind != "text":
        chat["response_format"] = {"type": kind}


def _tool_from_response(tool: Document) -> Document:
    if tool.get("type") != "function":
        raise unsupported_tool(tool)
    function: Document = {}
    copy_fields(tool, function, "name", "description", "parameters", "strict")
    return {"type": "function", "function": function}


def _add_item(messages: list[Document], item: Document) -> None:
    """Add an input item of a Responses request to the messages of a chat."""
    kind = item.get("type", "message")
    if kind == "message":
        messages.append(_message_from_item(item))
    elif kind == "function_call":
        _add_call(messages, item)
    elif kind == "function_call_output":
        messages += _turns_from_output(item)
    elif kind != "reasoning":
        raise unsupported_content(kind)


def _message_from_item(item: Document) -> Document:
    content = item.get("content")
    if not isinstance(content, str):
        content = [_part_from_input(part) for part in get_objects(item, "content", "input")]
        if item.get("role") == "assistant":
            content = "\n".join(part.get("text", "") for part in content)
    role = get_field(item, "role", str, "input")
    if role == "developer":
        # The older name, which every server knows.
        role = "system"
    return {"role": role, "content": content}


def _add_call(messages: list[Document], item: Document) -> None:
    """Add the call of a tool to the assistant's last message."""
    call_id = get_field(item, "call_id", str, "input")
    name = get_field(item, "name", str, "input")
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    calls = messages[-1].setdefault("tool_calls", [])
    calls.append(tool_call(call_id, name, get_field(item, "arguments", str, "input")))


def _turns_from_output(item: Document) -> Iterator[Document]:
    """The result of a tool as a message of text, and a message of its images if it has any."""
    output = item.get("output")
    if isinstance(output, str):
        output_parts = [{"type": "input_text", "text": output}]
    else:
        output_parts = get_objects(item, "output", "input")
    text_parts = []
    image_parts = []
    for part in output_parts:
        if part.get("type") == "input_text":
            text_parts.append(part)
        else:
            image_parts.append(part)
    text = text_of(text_parts, "input.output")
    call_id = get_field(item, "call_id", str, "input")
    yield {"role": "tool", "tool_call_id": call_id, "content": text}
    if image_parts:
        yield {"role": "user", "content": [_part_from_input(part) for part in image_parts]}


def _part_from_input(part: Document) -> Document:
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": get_field(part, "text", str, "input.content")}
    if kind == "refusal":
        return {"type": "text", "text": get_field(part, "refusal", str, "input.content")}
    if kind != "input_image":
        raise unsupported_content(kind)
    if part.get("file_id"):
        raise unsupported_content("image of a file")
    image = {"url": get_field(part, "image_url", str, "input.content")}
    copy_fields(part, image, "detail")
    return {"type": "image_url", "image_url": image}


def _completion_request_to_chat(request: Document) -> Document:
    prompt = request.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise type_error("prompt", "must be one text for an expert that speaks Anthropic's API")
    chat = dict(request)
    del chat["prompt"]
    chat["messages"] = [{"role": "user", "content": prompt}]
    return chat


_TO_CHAT = {
    RESPONSES: _responses_request_to_chat,
    MESSAGES: _messages_request_to_chat,
    COMPLETIONS: _completion_request_to_chat,
}


def chat_to_messages(chat: Document, max_tokens: int) -> Document:
    """A chat completion request as Anthropic's; ``max_tokens`` where it names no limit."""
    check_fields(CHAT, chat)
    system_texts, messages = _messages_from_chat(chat)
    limit = chat.get("max_completion_tokens") or chat.get("max_tokens") or max_tokens
    request: Document = {"model": chat.get("model"), "max_tokens": limit, "messages": messages}
    if system_texts:
        request["system"] = "\n\n".join(system_texts)
    copy_fields(chat, request, "stream", *_SAMPLING)
    if isinstance(request.get("temperature"), int | float):
        request["temperature"] = min(request["temperature"], 1)
    stop = chat.get("stop")
    if stop and isinstance(stop, str):
        stop = [stop]
    if stop:
        request["stop_sequences"] = stop
    if chat.get("tools"):
        request["tools"] = [_tool_to_anthropic(tool) for tool in get_objects(chat, "tools", "")]
        choice = _choice_to_anthropic(chat.get("tool_choice"))
        if chat.get("parallel_tool_calls") is False and choice.get("type") != "none":
            choice = {"type": "auto", **choice, "disable_parallel_tool_use": True}
        if choice:
            request["tool_choice"] = choice
    config = _output_config(chat)
    if config:
        request["output_config"] = config
    return request


def _messages_from_chat(chat: Document) -> tuple[list[str], list[Document]]:
    """The texts of a chat's system messages, and its other messages as Anthropic's."""
    system_texts: list[str] = []
    messages: list[Document] = []
    for message in get_objects(chat, "messages", ""):
        role = message.get("role")
        if role in ("system", "developer"):
            system_texts.append(text_of(message.get("content"), "messages.content"))
            continue
        if role not in ("user", "assistant", "tool"):
            raise type_error("messages.role", "must be system, developer, user, assistant or tool")
        blocks = _blocks_of(message)
        if not blocks:
            continue  # Anthropic takes no empty messages
        if role == "tool":
            role = "user"
        # Results of several tools must stand in one message.
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return system_texts, messages


def _blocks_of(message: Document) -> list[Document]:
    """The content of a chat message as Anthropic's blocks."""
    content = message.get("content")
    if message["role"] == "tool":
        call_id = get_field(message, "tool_call_id", str, "messages")
        text = text_of(content, "messages.content")
        return [{"type": "tool_result", "tool_use_id": call_id, "content": text}]
    blocks: list[Document] = []
    if isinstance(content, str):
        # Anthropic takes no empty texts.
        if content:
            blocks.append({"type": "text", "text": content})
    elif content is not None:
        blocks.extend(_block_of(part) for part in get_objects(message, "content", "messages"))
    if message.get("tool_calls"):
        blocks.extend(
            _tool_use_block(call) for call in get_objects(message, "tool_calls", "messages")
        )
    return blocks


def _tool_use_block(call: Document) -> Document:
    function = get_field(call, "function", dict, "tool_calls")
    arguments = arguments_of(get_field(function, "arguments", str, "tool_calls"))
    return {
        "type": "tool_use",
        "id": get_field(call, "id", str, "tool_calls"),
        "name": get_field(function, "name", str, "tool_calls"),
        "input": arguments,
    }


def _block_of(part: Document) -> Document:
    kind = part.get("type")
    if kind in ("text", "refusal"):
        return {"type": "text", "text": get_field(part, kind, str, "messages.content")}
    if kind != "image_url":
        raise unsupported_content(kind)
    image = get_field(part, "image_url", dict, "messages.content")
    url = get_field(image, "url", str, "image_url")
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    data_url = _DATA_URL.fullmatch(url)
    if data_url is None:
        raise type_error("messages.content.image_url", "must be an address, or data in base64")
    source = {"type": "base64", "media_type": data_url[1], "data": data_url[2]}
    return {"type": "image", "source": source}


def _tool_to_anthropic(tool: Document) -> Document:
    if tool.get("type") != "function":
        raise unsupported_tool(tool)
    function = get_field(tool, "function", dict, "tools")
    anthropic_tool = {
        "name": get_field(function, "name", str, "tools.function"),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
    copy_fields(function, anthropic_tool, "description", "strict")
    return anthropic_tool


def _choice_to_anthropic(choice: Any) -> Document:
    if not choice:
        return {}
    if choice == "required":
        return {"type": "any"}
    if choice in ("auto", "none"):
        return {"type": choice}
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = get_field(choice, "function", dict, "tool_choice")
        return {"type": "tool", "name": get_field(function, "name", str, "tool_choice")}
    message = "tool_choice must be auto, none, required or a function."
    raise TranslationError(message, parameter="tool_choice", code="unsupported_field")


def _output_config(chat: Document) -> Document:
    config: Document = {}
    effort = chat.get("reasoning_effort")
    if effort and effort != "none":
        config["effort"] = _EFFORTS_TO_ANTHROPIC.get(str(effort), effort)
    answer_format = get_optional(chat, "response_format", dict)
    if answer_format is None or answer_format.get("type") == "text":
        return config
    if answer_format.get("type") != "json_schema":
        message = "response_format must be json_schema or text for this expert."
        raise TranslationError(message, parameter="response_format", code="unsupported_field")
    json_schema = get_field(answer_format, "json_schema", dict, "response_format")
    schema = get_field(json_schema, "schema", dict, "response_format.json_schema")
    config["format"] = {"type": "json_schema", "schema": schema}
    return config


def arguments_of(text: str) -> Document:
    """The arguments of a tool call; models do not always write the JSON object that they should.

    >>> arguments_of('{"city": "Rome"}'), arguments_of("Rome")
    ({'city': 'Rome'}, {'invalid_json': 'Rome'})
    """
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return {"invalid_json": text}
    return arguments
