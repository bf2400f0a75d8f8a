"""What a chat endpoint sent back: an answer, or why there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild_gateway.experts.errors import ExpertError, status_error
from mild_gateway.experts.prices import Usage, read_usage
from mild_gateway.experts.translation.answers import message_to_chat

_MAX_REASON = 300


@dataclass(frozen=True)
class Reply:
    """What an expert said; ``usage`` is None where it was not told."""

    text: str
    usage: Usage | None = None
    finish: str | None = None
    log_probability: float | None = None  # mean over its tokens, where they are told


def read_reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The answer in a response of a chat endpoint; raises ExpertError if there is none."""
    content = _parse_json(body)
    error = None
    if isinstance(content, dict):
        error = content.get("error")
    error_fields: dict[str, Any] = {}
    if isinstance(error, dict):
        error_fields = error
    code = error_fields.get("code")
    if 200 <= status < 300 and type(code) is int and 400 <= code < 600:
        # Relays pass errors of the models behind them on with status 200.
        status = code
    if not 200 <= status < 300:
        reason = f"HTTP {status}: {error_message(body)}"
        is_quota_spent = "insufficient_quota" in (code, error_fields.get("type"))
        if status == 405 or status < 400 or is_quota_spent:
            raise ExpertError("credentials", reason, status)
        raise status_error(status, reason, headers)
    if error:
        raise ExpertError("server", f"error in the reply: {error_message(body)}", may_cost=True)
    reply = _answer(content)
    if reply is None:
        raise ExpertError("garbled", "the reply is not a chat completion")
    return reply


def error_message(body: bytes) -> str:
    """What an endpoint says about an error, in one line.

    >>> error_message(b'{"error": {"message": "no such model"}}'), error_message(b"")
    ('no such model', 'no explanation')
    """
    message = _parse_json(body)
    for key in ("error", "message"):
        if isinstance(message, dict) and key in message:
            message = message[key]
    if not isinstance(message, str):
        message = body.decode("utf-8", "replace")
    line = " ".join(message.split())
    if not line:
        return "no explanation"
    if len(line) > _MAX_REASON:
        return line[:_MAX_REASON] + "..."
    return line


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _answer(content: Any) -> Reply | None:
    try:
        if "choices" not in content and content["type"] == "message":
            content = message_to_chat(content)
        choice = content["choices"][0]
        text = _text_of(choice["message"].get("content"))
        finish = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    if text is None:
        return None
    usage = read_usage(content.get("usage"), needs_out=True)
    finish = storable(finish) if isinstance(finish, str) else None
    log_probabilities = token_log_probabilities(choice)
    mean = None
    if log_probabilities:
        mean = math.fsum(log_probabilities) / len(log_probabilities)
    return Reply(storable(text), usage, finish, mean)


def _text_of(content: Any) -> str | None:
    """The text of a message, whole or in parts; None where it has another form."""
    if content is None:
        # A refusal, or nothing but reasoning: an answer without words.
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [
        part["text"]
        for part in content
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    return "".join(texts)


def token_log_probabilities(choice: Mapping[str, Any]) -> list[float]:
    """Log-probabilities of the tokens of a choice, or of a piece of one, as far as they are told.

    >>> token_log_probabilities({"logprobs": {"content": [{"logprob": -0.5}, {"logprob": None}]}})
    [-0.5]
    """
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, dict):
        return []
    values: list[Any] = [
        token.get("logprob") for token in logprobs.get("content") or () if isinstance(token, dict)
    ]
    values += logprobs.get("token_logprobs") or ()
    return [value for value in values if isinstance(value, int | float) and math.isfinite(value)]


def storable(text: str) -> str:
    """Text without halves of surrogate pairs, which a model that is cut off may end in."""
    return text.encode("utf-8", "replace").decode("utf-8")
