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
    error = content.get("error") if isinstance(content, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    if 200 <= status < 300 and error and type(code) is int and 400 <= code < 600:
        # Relays pass errors of the models behind them on with status 200.
        status = code
    if not 200 <= status < 300:
        reason = f"HTTP {status}: {error_message(body)}"
        said = (code, error.get("type")) if isinstance(error, dict) else ()
        if status == 405 or status < 400 or "insufficient_quota" in said:
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
    found = _parse_json(body)
    for key in ("error", "message"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    said = found if isinstance(found, str) else body.decode("utf-8", "replace")
    line = " ".join(said.split())
    return line[:_MAX_REASON] + ("..." if len(line) > _MAX_REASON else "") or "no explanation"


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
        message = choice["message"]
        said = message.get("content")
        finish = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    if isinstance(said, list):
        parts = [part.get("text") for part in said if isinstance(part, dict)]
        said = "".join(part for part in parts if isinstance(part, str))
    if said is None:
        # A refusal, or nothing but reasoning: an answer without words.
        said = ""
    if not isinstance(said, str):
        return None
    usage = read_usage(content.get("usage"), needs_out=True)
    finish = storable(finish) if isinstance(finish, str) else None
    values = token_log_probabilities(choice)
    sure = math.fsum(values) / len(values) if values else None
    return Reply(storable(said), usage, finish, sure)


def token_log_probabilities(choice: Mapping[str, Any]) -> list[float]:
    """Log-probabilities of the tokens of a choice, or of a piece of one, as far as they are told.

    >>> token_log_probabilities({"logprobs": {"content": [{"logprob": -0.5}, {"logprob": None}]}})
    [-0.5]
    """
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return []
    found = [one.get("logprob") for one in told.get("content") or () if isinstance(one, dict)]
    found += told.get("token_logprobs") or ()
    return [one for one in found if isinstance(one, int | float) and math.isfinite(one)]


def storable(text: str) -> str:
    """Text without halves of surrogate pairs, which a model that is cut off may end in."""
    return text.encode("utf-8", "replace").decode("utf-8")
