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

# Counted for an image or a recording that is sent along, in bytes of text.
ATTACHED = 1500


def request_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a request of any shape.

    Examples
    --------
    >>> request_text({"prompt": "one"}, "last"), request_text({"input": "two"}, "last")
    ('one', 'two')
    """
    if "messages" in document:
        return chat_text(document, which)
    if "prompt" in document:
        return completion_text(document)
    given = document.get("input")
    if isinstance(given, list) and not any(isinstance(item, dict) for item in given):
        return completion_text({"prompt": given})
    turns = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return chat_text({"messages": turns}, which)


def chat_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a chat.

    Examples
    --------
    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"},
    ...          {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
    >>> chat_text({"messages": turns}, "last"), chat_text({"messages": turns}, "all")
    ('2 + 2?', 'Hello\\n\\n2 + 2?')
    """
    turns = document.get("messages")
    if not isinstance(turns, list):
        return ""
    found: list[str] = []
    for turn in reversed(turns):
        if isinstance(turn, dict) and turn.get("role") == "user":
            text = _content_text(turn.get("content"))
            if text:
                found.append(text)
                if which == "last":
                    return text
    if found:
        return "\n\n".join(reversed(found))
    for turn in reversed(turns):
        text = _content_text(turn.get("content")) if isinstance(turn, dict) else ""
        if text:
            return text
    return ""


def completion_text(document: Mapping[str, Any]) -> str:
    """The routed text of a completion.

    Examples
    --------
    >>> completion_text({"prompt": ["one", "two"]}), completion_text({"prompt": [1, 2]})
    ('one\\ntwo', '')
    """
    prompt = document.get("prompt")
    if isinstance(prompt, list):
        return "\n".join(part for part in prompt if isinstance(part, str))
    return prompt if isinstance(prompt, str) else ""


def text_bytes(document: Mapping[str, Any], body: bytes) -> int:
    """Bytes of a request that an expert may count as input: attachments in the body at a flat rate."""
    if b"data:" not in body and b"input_audio" not in body and b"base64" not in body:
        return len(body)
    size, attached = len(body), 0
    turns = document.get("messages") or document.get("input")
    for turn in turns if isinstance(turns, list) else ():
        parts = turn.get("content") if isinstance(turn, dict) else None
        for part in parts if isinstance(parts, list) else ():
            long = _attachment(part)
            if long:
                size -= long
                attached += 1
    return max(size, 0) + attached * ATTACHED


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _attachment(part: Any) -> int:
    """Length of the data in a part, 0 if it has none."""
    if not isinstance(part, dict):
        return 0
    image, audio = part.get("image_url"), part.get("input_audio")
    url = image.get("url") if isinstance(image, dict) else image
    if isinstance(url, str) and url.startswith("data:"):
        return len(url)
    if audio is None and part.get("type") == "image":
        audio = part.get("source")  # Anthropic's
    data = audio.get("data") if isinstance(audio, dict) else None
    return len(data) if isinstance(data, str) else 0
