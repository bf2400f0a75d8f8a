"""What every endpoint's request holds, and how a field is read or refused."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

from mild.errors import InvalidInputError

Document = dict[str, Any]
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
_HARMLESS: Document = {"n": 1, "best_of": 1, "modalities": ["text"], "verbosity": "medium"}
_REMEDIES = {
    "background": "Leave it out and wait for the answer.",
    "conversation": "The gateway stores no conversations; send every message.",
    "previous_response_id": "The gateway stores no responses; send the whole conversation as input.",
    "prompt": "The gateway stores no prompts; send the text as input.",
}
_KINDS: dict[type, str] = {str: "a string", dict: "an object", list: "a list"}


class TranslationError(InvalidInputError):
    """A request, or an answer, that cannot be said in the other API."""

    code = "invalid_request"


def is_native(endpoint: str, api: str) -> bool:
    """Whether an expert serves an endpoint of the gateway without translation.

    >>> is_native("/messages", "anthropic"), is_native("/responses", "openai")
    (True, False)
    """
    return endpoint == MESSAGES if api == "anthropic" else endpoint not in (RESPONSES, MESSAGES)


def upstream_endpoint(endpoint: str, api: str) -> str:
    """The path at which an expert is asked."""
    if is_native(endpoint, api):
        return endpoint
    return MESSAGES if api == "anthropic" else CHAT


def check_fields(endpoint: str, request: Document) -> None:
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
        message = f"{cut_short(name)} is not a field of {endpoint} that can be translated."
        raise TranslationError(message, parameter=cut_short(name), code="unknown_field")


def get(holder: Document, key: str, kind: type[T], where: str) -> T:
    return _checked(holder.get(key), kind, f"{where}.{key}" if where else key)


def given(holder: Document, key: str, kind: type[T], where: str = "") -> T | None:
    """A field of a kind; None where it is not given."""
    return get(holder, key, kind, where) if holder.get(key) else None


def _checked(value: Any, kind: type[T], where: str) -> T:
    if not isinstance(value, kind):
        raise wrong(where, f"must be {_KINDS[kind]}")
    return value


def objects(holder: Document, key: str, where: str) -> list[Document]:
    name = f"{where}.{key}" if where else key
    return [_checked(one, dict, name) for one in get(holder, key, list, where)]


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value is a number of tokens or answers: whole, and at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def text_of(content: Any, where: str) -> str:
    """The text of a content that must be text, in one piece or in several."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise wrong(where, "must be a string, or a list of strings")
    return "\n".join(get(_checked(part, dict, where), "text", str, where) for part in content)


def with_given(document: Document, source: Document, *names: str, **renamed: str) -> Document:
    """Add the fields that are given, some of them under other names."""
    for name, other in {**dict.fromkeys(names), **renamed}.items():
        if source.get(name) is not None:
            document[other or name] = source[name]
    return document


def wrong(where: str, rule: str) -> TranslationError:
    return TranslationError(f"{where} {rule}.", parameter=where, code="invalid_type")


def unsupported_content(kind: Any) -> TranslationError:
    message = f"Content of type {cut_short(kind)} cannot be translated for this expert."
    return TranslationError(message, parameter="content", code="unsupported_content")


def unsupported_tool(tool: Document) -> TranslationError:
    message = f"Tools of type {cut_short(tool.get('type'))} cannot be translated for this expert."
    return TranslationError(message, parameter="tools", code="unsupported_tool")


def cut_short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def tool_call(number: str, name: str, arguments: str) -> Document:
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
