"""The text of a request that is routed.

Of a chat: the text of the last user turn, or of all user turns with an empty line between them, as the
settings say. Of a turn made of parts, the texts; images and the like are left out. A chat without a user
turn is routed by its last turn that has a text. The input of a Responses request is read like a chat. Of a
completion: its prompt, or its prompts one below the other. Prompts of token numbers have no text. What has
no text is routed as an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

# Counted for an image or a recording, in bytes of text: 1,500 tokens where an estimate is charged.
ATTACHED = 4500


def request_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a request of any shape.

    >>> request_text({"prompt": "one"}, "last"), request_text({"input": ["two", "three"]}, "last")
    ('one', 'two\\nthree')
    """
    if "messages" in document or ("prompt" not in document and turns_of(document)):
        return chat_text(document, which)
    given = document.get("prompt", document.get("input"))
    if isinstance(given, list):
        return "\n".join(part for part in given if isinstance(part, str))
    return given if isinstance(given, str) else ""


def turns_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of a chat, or the items of a Responses request."""
    turns = document.get("messages") or document.get("input")
    return [turn for turn in turns if isinstance(turn, dict)] if isinstance(turns, list) else []


def parts_of(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a turn that is made of parts."""
    parts = turn.get("content")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def chat_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a chat.

    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"},
    ...          {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
    >>> chat_text({"messages": turns}, "last"), chat_text({"messages": turns}, "all")
    ('2 + 2?', 'Hello\\n\\n2 + 2?')
    """
    texts = [(turn.get("role"), turn_text(turn)) for turn in turns_of(document)]
    found = [text for role, text in texts if role == "user" and text]
    found = found or [text for _, text in texts if text][-1:]
    return "\n\n".join(found if which == "all" else found[-1:])


def text_bytes(document: Mapping[str, Any], body: bytes) -> int:
    """Bytes of a request that an expert may count as input: attachments at a flat rate."""
    parts = [part for turn in turns_of(document) for part in parts_of(turn)]
    parts += [inner for part in parts for inner in parts_of(part)]  # of results of tools
    attached = [size for part in parts if (size := _attachment(part)) is not None]
    return max(len(body) - sum(attached), 0) + len(attached) * ATTACHED


def turn_text(turn: Mapping[str, Any]) -> str:
    """The texts of a turn."""
    content = turn.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in parts_of(turn)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _attachment(part: Mapping[str, Any]) -> int | None:
    """Length of the data of an image or a recording, 0 if only its address is given; None for others."""
    image, audio = part.get("image_url"), part.get("input_audio")
    if audio is None and part.get("type") == "image":
        audio = part.get("source")  # Anthropic's
    url = image.get("url") if isinstance(image, dict) else image
    data = audio.get("data") if isinstance(audio, dict) else None
    if isinstance(url, str) and url.startswith("data:"):
        return len(url)
    if isinstance(data, str):
        return len(data)
    return 0 if url or audio else None
