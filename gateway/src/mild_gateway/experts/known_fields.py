"""The fields of a request of which it is known what they may cost.

Looked at are the body, its turns, their parts, and its tools. What an endpoint takes besides is not known:
other models, other endpoints, searches. Endpoints that read names without regard to case would take
``Max_Tokens`` for ``max_tokens``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mild_gateway.experts.translation.fields import EMBEDDINGS, FIELDS, HARMLESS

# Whether these have a price depends on their value (``surcharged_fields``).
_SURCHARGED = {"service_tier", "speed", "inference_geo"}
# fmt: off
_BODY = {
    endpoint: frozenset().union(*groups.values(), _SURCHARGED) for endpoint, groups in FIELDS.items()
} | {EMBEDDINGS: frozenset(("dimensions", "encoding_format", "input", "model", "user"))}
# Fields that have a price of their own, or name what the endpoint keeps.
_UNPRICED = frozenset((
    "access_programs", "audio", "background", "compaction", "container", "conversation", "fallbacks",
    "fallback_credit_token", "mcp_servers", "modalities", "moderation", "previous_response_id", "thread",
    "web_search_options",
))
_TURN = frozenset((
    "arguments", "audio", "call_id", "content", "function_call", "id", "name", "output", "reasoning",
    "reasoning_content", "refusal", "role", "status", "summary", "tool_call_id", "tool_calls", "type",
))
_PART = frozenset((
    "annotations", "cache_control", "caller", "citations", "content", "context", "data", "detail",
    "error_code", "file", "file_data", "file_id", "file_url", "filename", "id", "image_url", "input",
    "input_audio", "is_error", "logprobs", "name", "reasoning", "refusal", "retrieved_at", "role",
    "signature", "source", "summary", "text", "thinking", "title", "tool_name", "tool_references",
    "tool_use_id", "type", "url", "video_url",
))
_TOOL = frozenset((
    "allowed_callers", "allowed_domains", "blocked_domains", "cache_control", "citations", "custom",
    "defer_loading", "description", "display_height_px", "display_number", "display_width_px",
    "eager_input_streaming", "enable_zoom", "format", "function", "input_examples", "input_schema",
    "max_characters", "max_content_tokens", "max_uses", "name", "parameters", "strict", "type",
))
# fmt: on
# Types of tools that the client runs, or that cost nothing but their tokens, and how others begin.
_FREE_TOOLS = (None, "function", "custom", "shell", "local_shell", "apply_patch")
_FREE_KINDS = ("bash_", "computer_", "memory_", "text_editor_", "tool_search_tool_", "web_fetch_")


def misspelled_field(endpoint: str, document: Mapping[str, Any]) -> str | None:
    """Path of a known field that is written in another case; None if there is none.

    >>> misspelled_field("/chat/completions", {"max_tokens": 1, "Max_Tokens": 9000})
    'Max_Tokens'
    """
    for path, holder, known in _holders(endpoint, document):
        if known.issuperset(holder):
            continue
        for name in holder:
            if name not in known and name.casefold() in known:
                return path + name
    return None


def unknown_fields(endpoint: str, document: Mapping[str, Any]) -> dict[str, str]:
    """Fields, and tools, that may cost what nobody knows: name and path of each.

    Turns may have fields of their own, such as those of an answer that is sent back.

    >>> unknown_fields("/chat/completions", {"models": ["dear"], "tools": [{"googleSearch": {}}]})
    {'models': 'models', 'googleSearch': 'tools[0].googleSearch'}
    """
    unknown: dict[str, str] = {}
    for path, holder, known in _holders(endpoint, document):
        if known is _TURN:
            continue
        if not path:
            known = known - _UNPRICED
        for name, value in holder.items():
            # An empty object may switch a search on.
            is_empty = value is None or value is False
            if name not in known and not is_empty and value != HARMLESS.get(name):
                unknown.setdefault(name, path + name)
        if known is _TOOL and not _is_free(holder.get("type")):
            unknown.setdefault(str(holder["type"]), f"{path}type")
    return unknown


def _is_free(kind: Any) -> bool:
    """Whether a type of tools has no price of its own."""
    return kind in _FREE_TOOLS or (isinstance(kind, str) and kind.startswith(_FREE_KINDS))


def _holders(
    endpoint: str, document: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], frozenset[str]]]:
    """The body and the objects in it: the path before their fields, and the fields that are known."""
    yield "", document, _BODY[endpoint]
    for path, tool in _objects("tools", document.get("tools")):
        yield path, tool, _TOOL
    parts: list[tuple[str, Mapping[str, Any]]] = []
    for name in ("messages", "input"):
        for path, turn in _objects(name, document.get(name)):
            yield path, turn, _TURN
            for inner in ("content", "output"):
                # Most are texts, and there may be very many turns.
                if isinstance(turn.get(inner), list | dict):
                    parts += _objects(path + inner, turn[inner])
    for name in ("system", "instructions"):
        parts += _objects(name, document.get(name))
    while parts:
        path, part = parts.pop()
        yield path, part, _PART
        parts += _objects(f"{path}content", part.get("content"))


def _objects(name: str, value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a list, or the one object in its place, each with the path before its fields."""
    if isinstance(value, dict):
        yield f"{name}.", value
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            if isinstance(entry, dict):
                yield f"{name}[{number}].", entry
