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


_FLAGS = {
    "vision": "takes no images",
    "tools": "takes no tools",
    "json_schema": "takes no JSON schema for its answer",
    "reasoning": "takes no reasoning_effort",
}


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request needs."""

    vision: bool = False  # it holds images
    tools: bool = False  # it holds tools, or their results
    json_schema: bool = False  # it has a schema for the answer
    reasoning: bool = False  # it names an effort of reasoning
    tokens_in: int = 0  # of the request, estimated
    tokens_out: int = 0  # that it allows an answer to have; 0 if it does not say


def request_needs(document: Mapping[str, Any], bytes_in: int) -> Needs:
    """Needs of a request in any of the APIs.

    ``bytes_in`` is the length of the request, attachments at a flat rate (``text_bytes``).

    >>> part = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    >>> request_needs({"messages": [{"role": "user", "content": [part]}], "max_tokens": 50}, 4000)
    Needs(vision=True, tools=False, json_schema=False, reasoning=False, tokens_in=1000, tokens_out=50)
    """
    tools = bool(document.get("tools") or document.get("functions"))
    parts = []
    for turn in turns_of(document):
        tools = tools or turn.get("role") == "tool" or bool(turn.get("tool_calls"))
        parts += [turn, *parts_of(turn)]
    kinds = {part["type"] for part in parts if isinstance(part.get("type"), str)}
    efforts = [document.get("reasoning_effort"), _inner(document, "reasoning", "effort")]
    efforts.append(_inner(document, "output_config", "effort"))
    return Needs(
        vision=bool(kinds & IMAGES),
        tools=tools or bool(kinds & TOOLS),
        json_schema="json_schema" in answer_formats(document),
        reasoning=any(effort not in (None, "none") for effort in efforts)
        or _inner(document, "thinking", "type") in ("enabled", "adaptive"),
        tokens_in=tokens_in_bytes(bytes_in),
        tokens_out=asked_tokens(document),
    )


def answer_formats(document: Mapping[str, Any]) -> list[str]:
    """Types of the formats that a request in any of the APIs asks its answer to have.

    >>> answer_formats({"response_format": {"type": "json_object"}})
    ['json_object']
    """
    forms = [document.get("response_format")]
    forms += [_inner(document, name, "format") for name in ("text", "output_config")]
    types = [form.get("type") for form in forms if isinstance(form, dict)]
    return [one for one in types if isinstance(one, str)]


def _inner(document: Mapping[str, Any], name: str, key: str) -> Any:
    holder = document.get(name)
    return holder.get(key) if isinstance(holder, dict) else None


def missing_of(expert: Expert, needs: Needs) -> str:
    """What an expert lacks for a request, in words; empty if it can serve it.

    >>> expert = Expert("small", "http://x/v1", "m", vision=False, context=8000)
    >>> missing_of(expert, Needs(vision=True, tokens_in=9000))
    'takes no images; takes 8,000 tokens; the request has about 9,000'
    >>> missing_of(expert, Needs(tools=True))
    ''
    """
    missing = [
        words
        for name, words in _FLAGS.items()
        if getattr(needs, name) and getattr(expert, name) is False
    ]
    if expert.context is not None and needs.tokens_in > expert.context:
        has = f"the request has about {needs.tokens_in:,}"
        missing.append(f"takes {expert.context:,} tokens; {has}")
    if expert.max_output is not None and needs.tokens_out > expert.max_output:
        asks = f"the request asks for {needs.tokens_out:,}"
        missing.append(f"answers with up to {expert.max_output:,} tokens; {asks}")
    return "; ".join(missing)
