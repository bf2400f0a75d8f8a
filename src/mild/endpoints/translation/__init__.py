"""Translation between the APIs of clients and of experts, with chat completions in the middle.

A request in any shape becomes a chat completion request; for an expert that speaks Anthropic's API, that
becomes a Messages request. Answers and events go the same way back. Where client and expert speak the same
API, nothing is translated.

A field that is null, false, 0 or empty counts as not given. Of the others each is translated, ignored (the
answer is valid without it) or refused (it would not be), by ``FIELDS``. Unknown fields are refused.
"""

from __future__ import annotations

from mild.endpoints.translation.answers import (
    ECHOED,
    anthropic_error,
    chat_usage,
    message_to_chat,
    translate_answer,
    translate_error,
)
from mild.endpoints.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    FIELDS,
    MESSAGES,
    REQUIRED,
    RESPONSES,
    TranslationError,
)
from mild.endpoints.translation.requests import chat_to_messages, translate_request
from mild.endpoints.translation.streams import MessageReader, StreamTranslator

__all__ = [
    "CHAT",
    "COMPLETIONS",
    "ECHOED",
    "EMBEDDINGS",
    "FIELDS",
    "MESSAGES",
    "REQUIRED",
    "RESPONSES",
    "MessageReader",
    "StreamTranslator",
    "TranslationError",
    "anthropic_error",
    "chat_to_messages",
    "chat_usage",
    "is_native",
    "message_to_chat",
    "translate_answer",
    "translate_error",
    "translate_request",
    "upstream_endpoint",
]


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
