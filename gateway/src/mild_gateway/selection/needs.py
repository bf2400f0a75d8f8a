"""What a request needs of an expert, and which experts have it.

What a configuration does not say about an expert, it is assumed to have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import asked_tokens, tokens_in_bytes
from mild_gateway.selection.text import parts_of, turns_of

# Types of parts and items in the APIs.
IMAGES = frozenset(("image_url", "input_image", "image"))
TOOLS = frozenset(("function_call", "function_call_output", "tool_use", "tool_result"))

# What is said about an expert that lacks a capability.
_LACKS = {
    "images": "takes no images",
    "tools": "takes no tools",
    "json_schema": "takes no JSON schema for its answer",
    "reasoning": "takes no reasoning_effort",
}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request needs."""

    capabilities: frozenset[str] = frozenset()  # of those that an expert may not support
    tokens_in: int = 0  # of the request, estimated
    tokens_out: int = 0  # that it allows an answer to have; 0 if it does not say


def request_needs(document: Mapping[str, Any], bytes_in: int) -> Needs:
    """Needs of a request in any of the APIs.

    ``bytes_in`` is the length of the request, attachments at a flat rate (``text_bytes``).

    >>> part = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    >>> request_needs({"messages": [{"role": "user", "content": [part]}], "max_tokens": 50}, 4000)
    Needs(capabilities=frozenset({'images'}), tokens_in=1000, tokens_out=50)
    """
    types = _part_types(document)
    capabilities = set()
    if types & IMAGES:
        capabilities.add("images")
    if types & TOOLS or _has_tools(document):
        capabilities.add("tools")
    if "json_schema" in answer_formats(document):
        capabilities.add("json_schema")
    if _asks_for_reasoning(document):
        capabilities.add("reasoning")
    return Needs(
        capabilities=frozenset(capabilities),
        tokens_in=tokens_in_bytes(bytes_in),
        tokens_out=asked_tokens(document),
    )


def _part_types(document: Mapping[str, Any]) -> set[str]:
    """Types of all turns of a request and of their parts."""
    types = set()
    for turn in turns_of(document):
        for part in (turn, *parts_of(turn)):
            if isinstance(part.get("type"), str):
                types.add(part["type"])
    return types


def _has_tools(document: Mapping[str, Any]) -> bool:
    """Whether a request has tools, calls of them, or a turn of a tool."""
    if document.get("tools") or document.get("functions"):
        return True
    return any(turn.get("role") == "tool" or turn.get("tool_calls") for turn in turns_of(document))


def _asks_for_reasoning(document: Mapping[str, Any]) -> bool:
    """Whether a request names an effort of reasoning, or switches thinking on."""
    efforts = (
        document.get("reasoning_effort"),
        _inner(document, "reasoning", "effort"),
        _inner(document, "output_config", "effort"),
    )
    if any(effort not in (None, "none") for effort in efforts):
        return True
    return _inner(document, "thinking", "type") in ("enabled", "adaptive")


def answer_formats(document: Mapping[str, Any]) -> list[str]:
    """Types of the formats that a request in any of the APIs asks its answer to have.

    >>> answer_formats({"response_format": {"type": "json_object"}})
    ['json_object']
    """
    formats = (
        document.get("response_format"),
        _inner(document, "text", "format"),
        _inner(document, "output_config", "format"),
    )
    types = [
        answer_format["type"]
        for answer_format in formats
        if isinstance(answer_format, dict) and isinstance(answer_format.get("type"), str)
    ]
    return types


def _inner(document: Mapping[str, Any], name: str, key: str) -> Any:
    """A field of a field that is an object; None if there is none."""
    holder = document.get(name)
    if not isinstance(holder, dict):
        return None
    return holder.get(key)


def missing_of(expert: Expert, needs: Needs) -> str:
    """What an expert lacks for a request, in words; empty if it can serve it.

    >>> expert = Expert("small", "http://x/v1", "m", unsupported=["images"], context=8000)
    >>> missing_of(expert, Needs(frozenset({"images"}), tokens_in=9000))
    'takes no images; takes 8,000 tokens; the request has about 9,000'
    >>> missing_of(expert, Needs(frozenset({"tools"})))
    ''
    """
    missing = []
    for capability, words in _LACKS.items():
        if capability in needs.capabilities and capability in expert.unsupported:
            missing.append(words)
    if expert.context is not None and needs.tokens_in > expert.context:
        missing.append(
            f"takes {expert.context:,} tokens; the request has about {needs.tokens_in:,}"
        )
    if expert.max_output is not None and needs.tokens_out > expert.max_output:
        missing.append(
            f"answers with up to {expert.max_output:,} tokens; "
            f"the request asks for {needs.tokens_out:,}"
        )
    return "; ".join(missing)
