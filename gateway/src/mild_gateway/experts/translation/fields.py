"""What every endpoint's request holds, and how a field is read or refused."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from mild.errors import InvalidInputError

Document = dict[str, Any]
T = TypeVar("T")
CHAT = "/chat/completions"
COMPLETIONS = "/completions"
EMBEDDINGS = "/embeddings"
RESPONSES = "/responses"
MESSAGES = "/messages"
#: What a request to an endpoint must have.
REQUIRED = {
    CHAT: ("messages",),
    COMPLETIONS: ("prompt",),
    EMBEDDINGS: ("input",),
    RESPONSES: ("input",),
    MESSAGES: ("messages", "max_tokens"),
}
#: Where the answer of an expert's endpoint has its content.
ANSWERS = {CHAT: "choices", COMPLETIONS: "choices", EMBEDDINGS: "data", MESSAGES: "content"}
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
#: Values with which fields say no more than without them.
HARMLESS: Document = {"n": 1, "best_of": 1, "modalities": ["text"], "verbosity": "medium"}
_REMEDIES = {
    "background": "Leave it out and wait for the answer.",
    "conversation": "The gateway stores no conversations; send every message.",
    "previous_response_id": "The gateway stores no responses; send the whole conversation as input.",
    "prompt": "The gateway stores no prompts; send the text as input.",
}
_KINDS: dict[type, str] = {str: "a string", dict: "an object", list: "a list"}
# Characters that an error quotes of a value.
_MAX_QUOTED = 80


class TranslationError(InvalidInputError):
    """A request, or an answer, that cannot be said in the other API."""

    code = "invalid_request"


def is_native(endpoint: str, api: str) -> bool:
    """Whether an expert serves an endpoint of the gateway without translation.

    >>> is_native("/messages", "anthropic"), is_native("/responses", "openai")
    (True, False)
    """
    if api == "anthropic":
        return endpoint == MESSAGES
    return endpoint not in (RESPONSES, MESSAGES)


def upstream_endpoint(endpoint: str, api: str) -> str:
    """The path at which an expert is asked."""
    if is_native(endpoint, api):
        return endpoint
    if api == "anthropic":
        return MESSAGES
    return CHAT


def check_fields(endpoint: str, request: Document) -> None:
    """Refuse a request with a field that cannot be translated."""
    known = FIELDS[endpoint]
    for name, value in request.items():
        if not value or name in known["translated"] or name in known["ignored"]:
            continue
        if name in known["refused"]:
            if value == HARMLESS.get(name):
                continue
            remedy = _REMEDIES.get(name, "Leave it out, or name an expert that takes it.")
            message = f"{name} is not supported here. {remedy}"
            raise TranslationError(message, parameter=name, code="unsupported_field")
        message = f"{cut_short(name)} is not a field of {endpoint} that can be translated."
        raise TranslationError(message, parameter=cut_short(name), code="unknown_field")


def get_field(holder: Document, key: str, kind: type[T], where: str) -> T:
    """A field that must be there and be of this kind; ``where`` says in errors what holds it."""
    return _checked(holder.get(key), kind, _full_name(where, key))


def get_optional(holder: Document, key: str, kind: type[T], where: str = "") -> T | None:
    """A field that must be of this kind; None if it is missing or empty."""
    if not holder.get(key):
        return None
    return get_field(holder, key, kind, where)


def get_objects(holder: Document, key: str, where: str) -> list[Document]:
    """A field that must be there and be a list of objects."""
    name = _full_name(where, key)
    return [_checked(entry, dict, name) for entry in get_field(holder, key, list, where)]


def _full_name(where: str, key: str) -> str:
    if not where:
        return key
    return f"{where}.{key}"


def _checked(value: Any, kind: type[T], where: str) -> T:
    if not isinstance(value, kind):
        raise type_error(where, f"must be {_KINDS[kind]}")
    return value


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a number of tokens or answers: whole, and at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def text_of(content: Any, where: str) -> str:
    """The text of a content that must be text, in one piece or in several."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise type_error(where, "must be a string, or a list of strings")
    texts = []
    for entry in content:
        part = _checked(entry, dict, where)
        texts.append(get_field(part, "text", str, where))
    return "\n".join(texts)


def copy_fields(source: Document, target: Document, *names: str, **renamed: str) -> None:
    """Copy the fields that the source has, some of them under other names.

    >>> target = {}
    >>> copy_fields({"top_p": 0.5, "stop_sequences": ["."]}, target, "top_p", stop_sequences="stop")
    >>> target
    {'top_p': 0.5, 'stop': ['.']}
    """
    new_names = {name: name for name in names} | renamed
    for name, new_name in new_names.items():
        if source.get(name) is not None:
            target[new_name] = source[name]


def type_error(where: str, rule: str) -> TranslationError:
    return TranslationError(f"{where} {rule}.", parameter=where, code="invalid_type")


def unsupported_content(kind: Any) -> TranslationError:
    message = f"Content of type {cut_short(kind)} cannot be translated for this expert."
    return TranslationError(message, parameter="content", code="unsupported_content")


def unsupported_tool(tool: Document) -> TranslationError:
    message = f"Tools of type {cut_short(tool.get('type'))} cannot be translated for this expert."
    return TranslationError(message, parameter="tools", code="unsupported_tool")


def cut_short(value: Any) -> str:
    """A value as text for a message: its beginning if it is long."""
    text = str(value)
    if len(text) <= _MAX_QUOTED:
        return text
    return text[: _MAX_QUOTED - 3] + "..."


def tool_call(number: str, name: str, arguments: str) -> Document:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
