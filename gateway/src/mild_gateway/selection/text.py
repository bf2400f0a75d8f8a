"""The text of a request that is routed, and what else it holds.

Of a chat: the text of the last user turn, or of all user turns with an empty line between them, as the
settings say. Of a turn made of parts, the texts; images and the like are left out. A chat without a user
turn is routed by its last turn that has a text. The input of a Responses request is read like a chat. Of a
completion: its prompt, or its prompts one below the other. Prompts of token numbers have no text. What has
no text is routed as an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from mild_gateway.experts.translation.fields import cut_short

# Counted for an image or a recording, in bytes of text: 1,500 tokens where an estimate is charged.
ATTACHED = 4500
# Fields that bring input that is not in the request: kept by the endpoint, or fetched by it.
_REMOTE_FIELDS = (
    "previous_response_id", "conversation", "container", "mcp_servers", "web_search_options",
    "data_sources",
)  # fmt: skip
# Tools that the client runs; all others are hosted.
_CLIENT_TOOLS = (None, "function", "custom")
# Turns and parts whose tokens follow from their bytes.
_COUNTED_TURNS = (
    None, "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
    "custom_tool_call_output",
)  # fmt: skip
_COUNTED_PARTS = (
    "text", "input_text", "output_text", "refusal", "reasoning_text", "summary_text", "thinking",
    "redacted_thinking", "tool_use", "tool_result", "search_result",
)  # fmt: skip


def request_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a request of any shape.

    >>> request_text({"prompt": "one"}, "last"), request_text({"input": ["two", "three"]}, "last")
    ('one', 'two\\nthree')
    """
    if "messages" in document or ("prompt" not in document and turns_of(document)):
        return chat_text(document, which)
    prompt = document.get("prompt", document.get("input"))
    if isinstance(prompt, list):
        return "\n".join(part for part in prompt if isinstance(part, str))
    if isinstance(prompt, str):
        return prompt
    return ""


def turns_of(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of a chat, or the items of a Responses request."""
    return _objects_in(document.get("messages") or document.get("input"))


def parts_of(turn: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a turn that is made of parts."""
    return _objects_in(turn.get("content"))


def _objects_in(values: Any) -> list[dict[str, Any]]:
    """The objects in a list; none if it is no list."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]


def chat_text(document: Mapping[str, Any], which: Literal["last", "all"]) -> str:
    """The routed text of a chat.

    >>> turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"},
    ...          {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}]
    >>> chat_text({"messages": turns}, "last"), chat_text({"messages": turns}, "all")
    ('2 + 2?', 'Hello\\n\\n2 + 2?')
    """
    user_texts = []
    last_text = ""
    for turn in turns_of(document):
        text = turn_text(turn)
        if text:
            last_text = text
            if turn.get("role") == "user":
                user_texts.append(text)
    if not user_texts:
        return last_text
    if which == "all":
        return "\n\n".join(user_texts)
    return user_texts[-1]


def text_bytes(document: Mapping[str, Any], body: bytes) -> int:
    """Bytes of a request that an expert may count as input: attachments at a flat rate."""
    size = len(body)
    n_attached = 0
    for turn in turns_of(document):
        for part in parts_of(turn):
            # Parts of parts are those of results of tools.
            for inner in (part, *parts_of(part)):
                attachment_size = _attachment(inner)
                if attachment_size is not None:
                    size -= attachment_size
                    n_attached += 1
    return max(size, 0) + n_attached * ATTACHED


def turn_text(turn: Mapping[str, Any]) -> str:
    """The texts of a turn."""
    content = turn.get("content")
    if isinstance(content, str):
        return content
    texts = [part.get("text") for part in parts_of(turn)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _attachment(part: Mapping[str, Any]) -> int | None:
    """Length of the data of an image or a recording, 0 if only its address is given; None for others."""
    audio = part.get("input_audio")
    if audio is None and part.get("type") == "image":
        audio = part.get("source")  # Anthropic's
    url = _image_address(part)
    if isinstance(url, str) and url.startswith("data:"):
        return len(url)
    if isinstance(audio, dict) and isinstance(audio.get("data"), str):
        return len(audio["data"])
    if url or audio:
        return 0
    return None


def _image_address(part: Mapping[str, Any]) -> Any:
    """The address of an image in OpenAI's APIs, which may be its data."""
    image = part.get("image_url")
    if isinstance(image, dict):
        return image.get("url")
    return image


def uncountable_input(document: Mapping[str, Any]) -> str:
    """What the request brings as input whose tokens do not follow from its bytes; empty if nothing.

    Such are documents, recordings, images by address, what the endpoint keeps or fetches itself, and
    parts of types that are not known here.

    >>> part = {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}}
    >>> uncountable_input({"messages": [{"role": "user", "content": [part]}]})
    'content of type document'
    >>> uncountable_input({"messages": [{"role": "user", "content": "Hello"}]})
    ''
    """
    for field in _REMOTE_FIELDS:
        if document.get(field):
            return field
    if isinstance(document.get("prompt"), dict):
        return "prompt"  # one that the endpoint keeps
    for tool in _objects_at(document.get("tools")):
        if tool.get("type") not in _CLIENT_TOOLS:
            return f"a tool of type {cut_short(tool['type'])}"
    for turn in _objects_at(document.get("messages") or document.get("input")):
        if turn.get("type") not in _COUNTED_TURNS:
            return f"content of type {cut_short(turn['type'])}"
        if turn.get("audio"):
            return "audio"  # an earlier answer that the endpoint keeps
    for part in _all_parts(document):
        if not _is_counted(part):
            return f"content of type {cut_short(part.get('type'))}"
    return ""


def _all_parts(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Parts of all turns and of what stands before them, with the parts inside of parts."""
    parts = [*_objects_at(document.get("system")), *_objects_at(document.get("instructions"))]
    for turn in _objects_at(document.get("messages") or document.get("input")):
        parts += _objects_at(turn.get("content"))
        parts += _objects_at(turn.get("output"))
    while parts:
        part = parts.pop()
        yield part
        parts += _objects_at(part.get("content"))


def _objects_at(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, or the one object that stands in its place."""
    if isinstance(value, dict):
        return [value]
    return _objects_in(value)


def _is_counted(part: Mapping[str, Any]) -> bool:
    """Whether the tokens of a part follow from its bytes, or from those of the parts in it."""
    kind = part.get("type")
    if kind in _COUNTED_PARTS:
        return True
    if kind is None:
        # Some servers guess the type of a part by its keys.
        return part.keys() <= {"text", "role", "content", "cache_control"}
    source = part.get("source")
    if kind == "document":
        return isinstance(source, dict) and source.get("type") == "text"
    if kind == "image":
        return isinstance(source, dict) and source.get("type") == "base64"
    if kind in ("image_url", "input_image"):
        address = _image_address(part)
        return isinstance(address, str) and address.startswith("data:image/")
    return False
