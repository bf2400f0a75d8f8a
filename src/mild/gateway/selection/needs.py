"""What a request needs of an expert, and which experts have it.

What a configuration does not say about an expert, it is assumed to have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mild.endpoints.expert import Expert
from mild.endpoints.prices import asked_tokens, tokens_in_bytes

# Types of parts and items in the APIs.
IMAGES = frozenset(("image_url", "input_image", "image"))
TOOLS = frozenset(("function_call", "function_call_output", "tool_use", "tool_result"))


@dataclass(frozen=True, slots=True)
class Needs:
    """What a request needs.

    Attributes
    ----------
    vision, tools, json_schema, reasoning : whether it holds images, tools or their results, a schema for
        the answer, an effort of reasoning
    tokens_in : of the request, estimated
    tokens_out : that it allows an answer to have; 0 if it does not say
    """

    vision: bool = False
    tools: bool = False
    json_schema: bool = False
    reasoning: bool = False
    tokens_in: int = 0
    tokens_out: int = 0


def request_needs(document: Mapping[str, Any], bytes_in: int) -> Needs:
    """Needs of a request in any of the APIs.

    ``bytes_in`` is the length of the request, attachments at a flat rate (``text_bytes``).

    Examples
    --------
    >>> part = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
    >>> request_needs({"messages": [{"role": "user", "content": [part]}], "max_tokens": 50}, 4000)
    Needs(vision=True, tools=False, json_schema=False, reasoning=False, tokens_in=1000, tokens_out=50)
    """
    tools = bool(document.get("tools") or document.get("functions"))
    parts: list[Any] = []
    turns = document.get("messages") or document.get("input")
    for turn in turns if isinstance(turns, list) else ():
        if not isinstance(turn, dict):
            continue
        tools = tools or turn.get("role") == "tool" or bool(turn.get("tool_calls"))
        parts.append(turn)
        content = turn.get("content")
        parts += content if isinstance(content, list) else []
    kinds = {part.get("type") for part in parts if isinstance(part, dict) and _is_text(part)}
    forms = [document.get("response_format")]
    forms += [_inner(document, name, "format") for name in ("text", "output_config")]
    efforts = [document.get("reasoning_effort"), _inner(document, "reasoning", "effort")]
    efforts.append(_inner(document, "output_config", "effort"))
    return Needs(
        vision=bool(kinds & IMAGES),
        tools=tools or bool(kinds & TOOLS),
        json_schema=any(
            isinstance(form, dict) and form.get("type") == "json_schema" for form in forms
        ),
        reasoning=any(effort not in (None, "none") for effort in efforts)
        or _inner(document, "thinking", "type") in ("enabled", "adaptive"),
        tokens_in=tokens_in_bytes(bytes_in),
        tokens_out=asked_tokens(document),
    )


def _is_text(part: Mapping[str, Any]) -> bool:
    return isinstance(part.get("type"), str)


def _inner(document: Mapping[str, Any], name: str, key: str) -> Any:
    holder = document.get(name)
    return holder.get(key) if isinstance(holder, dict) else None


def missing_of(expert: Expert, needs: Needs) -> str:
    """What an expert lacks for a request, in words; empty if it can serve it.

    Examples
    --------
    >>> expert = Expert("small", "http://x/v1", "m", vision=False, context=8000)
    >>> missing_of(expert, Needs(vision=True, tokens_in=9000))
    'takes no images; takes 8,000 tokens; the request has about 9,000'
    >>> missing_of(expert, Needs(tools=True))
    ''
    """
    return "; ".join(_missing(expert, needs))


def _missing(expert: Expert, needs: Needs) -> Iterator[str]:
    if needs.vision and expert.vision is False:
        yield "takes no images"
    if needs.tools and expert.tools is False:
        yield "takes no tools"
    if needs.json_schema and expert.json_schema is False:
        yield "takes no JSON schema for its answer"
    if needs.reasoning and expert.reasoning is False:
        yield "takes no reasoning_effort"
    if expert.context is not None and needs.tokens_in > expert.context:
        yield f"takes {expert.context:,} tokens; the request has about {needs.tokens_in:,}"
    if expert.max_output is not None and needs.tokens_out > expert.max_output:
        yield (
            f"answers with up to {expert.max_output:,} tokens; the request asks for "
            f"{needs.tokens_out:,}"
        )


def declares_limits(expert: Expert) -> bool:
    """Whether there are requests that an expert cannot serve."""
    flags = (expert.vision, expert.tools, expert.json_schema, expert.reasoning)
    return False in flags or expert.context is not None or expert.max_output is not None
