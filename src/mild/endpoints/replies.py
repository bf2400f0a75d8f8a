"""What an endpoint sent back: an answer, or why there is none and whether to ask again."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild.endpoints.prices import Usage
from mild.endpoints.translation import message_to_chat

__all__ = ["NoAnswerError", "Reply", "read_reply", "retry_after"]

# The endpoint itself is refused: a wrong key, no money, a wrong address.
_CLOSED = {401, 402, 403, 404, 405}
_AGAIN = {408, 409, 425, 429}
_MOST_REASON = 300


@dataclass(frozen=True)
class Reply:
    """What an expert said; ``usage`` is None where it was not told."""

    text: str
    usage: Usage | None = None
    finish: str | None = None


class NoAnswerError(Exception):
    """No answer, and what follows from that.

    Parameters
    ----------
    reason : one line
    again : whether the same request may succeed later
    closed : whether the expert will refuse every request
    wait : seconds after which the expert wants to be asked again
    paid : whether the request may have been paid for all the same
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool = False,
        closed: bool = False,
        wait: float | None = None,
        paid: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.closed = closed
        self.wait = wait
        self.paid = paid


def read_reply(status: int, headers: Mapping[str, str], body: bytes) -> Reply:
    """The answer in a response of a chat endpoint; raises NoAnswerError if there is none."""
    text = body.decode("utf-8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not 200 <= status < 300:
        raise _refused(status, headers, content, text)
    error = content.get("error") if isinstance(content, dict) else None
    if error:
        # Relays pass errors of the models behind them on with status 200.
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int) and 400 <= code < 600:
            raise _refused(code, headers, content, text)
        raise NoAnswerError(f"error in the reply: {_message(content, text)}", again=True, paid=True)
    reply = _answer(content)
    if reply is None:
        raise NoAnswerError("the reply is not a chat completion", again=True, paid=True)
    return reply


def retry_after(value: str | None, now: float | None = None) -> float | None:
    """Seconds that a Retry-After header asks for: a number, or a date.

    Examples
    --------
    >>> retry_after("2.5"), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=10.0), retry_after("soon")
    (2.5, 50.0, None)
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = email.utils.parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        seconds = date.timestamp() - (time.time() if now is None else now)
    return max(0.0, seconds) if seconds == seconds else None


def _refused(status: int, headers: Mapping[str, str], content: Any, text: str) -> NoAnswerError:
    reason = f"HTTP {status}: {_message(content, text)}"
    if status in _CLOSED or 300 <= status < 400 or _out_of_money(content):
        return NoAnswerError(reason, closed=True)
    if status in _AGAIN or status >= 500:
        return NoAnswerError(reason, again=True, wait=retry_after(headers.get("Retry-After")))
    return NoAnswerError(reason)


def _out_of_money(content: Any) -> bool:
    error = content.get("error") if isinstance(content, dict) else None
    return isinstance(error, dict) and "insufficient_quota" in (
        error.get("code"),
        error.get("type"),
    )


def _message(content: Any, text: str) -> str:
    """What the endpoint says about it, in one line."""
    found = content
    for key in ("error", "message"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    said = found if isinstance(found, str) else text
    line = " ".join(said.split())
    return line[:_MOST_REASON] + ("..." if len(line) > _MOST_REASON else "") or "no explanation"


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
    return Reply(said, _usage(content.get("usage")), finish if isinstance(finish, str) else None)


def _usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    counts: list[Any] = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    if not all(type(count) is int and 0 <= count < 2**53 for count in counts):
        return None
    return Usage(counts[0], counts[1])
