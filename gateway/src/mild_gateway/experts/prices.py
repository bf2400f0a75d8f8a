"""What an answer costs: tokens reported, estimated or possible at most, and the price of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from mild_gateway.experts.translation.answers import chat_usage
from mild_gateway.experts.translation.fields import CHAT, COMPLETIONS, MESSAGES, RESPONSES, is_count

# Prices of models are given for so many tokens.
MILLION = 1_000_000
# A token of English text is about four bytes long.
BYTES_PER_TOKEN = 4
# Fewer bytes count as a token where an answer without usage is charged: rather too much than too little.
CHARGED_BYTES_PER_TOKEN = 3
# No answer has longer tokens on average: a usage that says so is not that of the whole answer.
_MAX_BYTES_PER_TOKEN = 32
# What chat templates and servers put around the messages, at most.
TEMPLATE_TOKENS = 64
# Characters that are kept of the name of a model, and of its fingerprint.
_MAX_NAME = 100
# More answers at a time, or tokens in one, are not counted.
_MAX_COUNT = 10_000_000
# Tokens that a model takes and gives at most, where nothing is said about it.
LONGEST_CONTEXT = 1_000_000
# Fields that limit an answer.
_LIMITS = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    COMPLETIONS: ("max_tokens",),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
}
# Fields of answers and their events that hold what a model has written, or lead to it.
_WRITTEN = {
    "choices", "message", "delta", "content", "content_block", "text", "refusal", "reasoning",
    "reasoning_content", "thinking", "tool_calls", "function_call", "function", "arguments",
    "partial_json",
}  # fmt: skip


class Usage(NamedTuple):
    """Tokens of one answer; ``estimated`` where the expert did not say.

    ``cached_in`` of the tokens in were read from the expert's prompt cache.
    """

    tokens_in: int
    tokens_out: int
    estimated: bool = False
    cached_in: int = 0


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens in and out, and dollars per query; None where unknown.

    Tokens from the prompt cache cost ``per_million_cached_in``; None if they cost what others do.

    >>> cached = Price(per_million_in=2.0, per_million_cached_in=0.5)
    >>> cached.of(Usage(1_000_000, 0, cached_in=800_000)), Price(per_query=0.002).of(None)
    (0.8, 0.002)
    """

    per_million_in: float | None = None
    per_million_out: float | None = None
    per_query: float | None = None
    per_million_cached_in: float | None = None

    @property
    def known(self) -> bool:
        """Whether anything is said about the price."""
        return not (self.per_million_in is self.per_million_out is self.per_query is None)

    @property
    def saved_per_cached_token(self) -> float:
        """Dollars by which a token is cheaper if the prompt cache has it."""
        if self.per_million_cached_in is None:
            return 0.0
        return ((self.per_million_in or 0.0) - self.per_million_cached_in) / MILLION

    def of(self, usage: Usage | None) -> float:
        """Dollars for one answer."""
        dollars = self.per_query or 0.0
        if usage is not None:
            full = self.per_million_in or 0.0
            cached = full if self.per_million_cached_in is None else self.per_million_cached_in
            dollars += (usage.tokens_in - usage.cached_in) * full / MILLION
            dollars += usage.cached_in * cached / MILLION
            dollars += usage.tokens_out * (self.per_million_out or 0.0) / MILLION
        return dollars


@dataclass(slots=True)
class UsageMeter:
    """Counts what an answer reports and holds, while it arrives.

    ``usage`` was reported last; it is ``final`` if the answer was finished then. ``bytes_out`` are those
    of content, reasoning and arguments of tools. ``version`` is the model, and its fingerprint, that the
    expert says it is.
    """

    usage: Usage | None = None
    final: bool = False
    events: int = 0
    bytes_out: int = 0
    version: str | None = None

    def add(self, document: Mapping[str, Any], finished: bool) -> None:
        """Count a plain answer, or an event of a stream, which may be ``finished`` with it."""
        if self.version is None:
            self.version = read_version(document)
        reported = document.get("usage")
        # An event only for the usage is the last one.
        is_last = bool(reported) and not document.get("choices")
        self.events += not is_last
        if size := written_bytes(document):
            self.bytes_out += size
            self.final = False  # what was reported before is not of the whole answer
        self.read(reported, finished or is_last)

    def read(self, reported: Any, final: bool) -> None:
        """Take the usage that an answer reports, if it makes sense."""
        usage = read_usage(reported)
        if usage is not None:
            self.usage, self.final = usage, final

    def charged(self, bytes_in: int, max_tokens: int, context: int | None) -> Usage:
        """The usage to charge: the final one if it is plausible, else an estimate.

        The estimate is never above the reservation: ``bytes_in`` tokens of input, ``max_tokens`` of output.

        >>> meter = UsageMeter(events=2, bytes_out=12_000)
        >>> meter.charged(300, 8000, context=None)
        Usage(tokens_in=100, tokens_out=4000, estimated=True, cached_in=0)
        """
        found = self.usage or Usage(0, 0)
        # No token is shorter than a byte: a list of texts may have more than the context together.
        longest = max(context or LONGEST_CONTEXT, bytes_in) + max_tokens
        if found.tokens_in + found.tokens_out > longest:
            found = Usage(0, 0)
        elif self.final and self.bytes_out <= found.tokens_out * _MAX_BYTES_PER_TOKEN:
            return found
        tokens_in = min(found.tokens_in or charged_tokens(bytes_in), bytes_in)
        tokens_out = max(found.tokens_out, self.events, charged_tokens(self.bytes_out))
        cached = min(found.cached_in, tokens_in)
        return Usage(tokens_in, min(tokens_out, max_tokens), True, cached)


def read_version(document: Mapping[str, Any]) -> str | None:
    """Model and system fingerprint that an answer, or an event of a stream, reports; None without a model.

    >>> read_version({"model": "gpt-4o-2024-08-06", "system_fingerprint": "fp_6b68a8204b"})
    'gpt-4o-2024-08-06 fp_6b68a8204b'
    >>> read_version({"type": "message_start", "message": {"model": "claude-sonnet-4-5"}})
    'claude-sonnet-4-5'
    """
    for one in (document, document.get("message"), document.get("response")):
        if isinstance(one, dict) and isinstance(one.get("model"), str) and one["model"]:
            names = (one["model"], one.get("system_fingerprint"))
            words = [name[:_MAX_NAME] for name in names if isinstance(name, str)]
            plain = ("".join(c for c in word if c.isprintable() and c != " ") for word in words)
            return " ".join(filter(None, plain)) or None
    return None


def written_bytes(document: Mapping[str, Any]) -> int:
    """UTF-8 bytes of content, reasoning and arguments of tools, in an answer or an event of either API.

    >>> written_bytes({"id": "c1", "choices": [{"delta": {"content": "Grüße"}}]})
    7
    """
    size = 0
    left: list[Any] = [document]
    while left:
        value = left.pop()
        if isinstance(value, str):
            size += len(value.encode(errors="replace"))
        elif isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            names = _WRITTEN.intersection(value)
            if value.get("reasoning"):
                names -= {"reasoning_content"}  # the same text, for older clients
            left += [value[name] for name in names]
            if isinstance(value.get("input"), dict):
                left.append(json.dumps(value["input"], ensure_ascii=False))
    return size


def read_usage(reported: Any, *, needs_out: bool = False) -> Usage | None:
    """The usage that OpenAI's or Anthropic's API reports; None if it makes no sense.

    Unless ``needs_out``, a prompt that is only read, or an empty answer, may leave out its other count.

    >>> read_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    Usage(tokens_in=9, tokens_out=0, estimated=False, cached_in=4)
    """
    if isinstance(reported, dict) and "input_tokens" in reported:
        reported = chat_usage(reported)
    if not isinstance(reported, dict):
        return None
    tokens_in, tokens_out = reported.get("prompt_tokens"), reported.get("completion_tokens")
    if not _makes_sense(tokens_in) or (needs_out and not _makes_sense(tokens_out)):
        return None
    details = reported.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        tokens_in,
        tokens_out if _makes_sense(tokens_out) else 0,
        # More than there are would be paid back.
        cached_in=min(cached, tokens_in) if _makes_sense(cached) else 0,
    )


def tokens_in_bytes(size: int) -> int:
    """About how many tokens so many bytes of text are."""
    return math.ceil(size / BYTES_PER_TOKEN)


def charged_tokens(size: int) -> int:
    """Tokens that are charged for so many bytes where an expert reports no usage.

    >>> charged_tokens(3000), charged_tokens(1)
    (1000, 1)
    """
    return -(-size // CHARGED_BYTES_PER_TOKEN)


def estimate_tokens(text: str) -> int:
    return tokens_in_bytes(len(text.encode(errors="replace")))


def most_tokens(text: str) -> int:
    """How many tokens a text has at most: no token is shorter than a byte."""
    return len(text.encode(errors="replace")) + TEMPLATE_TOKENS


def asked_tokens(document: Mapping[str, Any], endpoint: str = "") -> int:
    """Tokens that a request allows one answer to have; 0 if it does not say.

    Fields of other endpoints are ignored there, and limit nothing.

    >>> asked_tokens({"max_tokens": 20}), asked_tokens({"max_output_tokens": 20}, "/chat/completions")
    (20, 0)
    """
    # Endpoints of chats differ in which of them they obey.
    names = _LIMITS.get(endpoint, ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    return max(_asked_count(document.get(name)) for name in names)


def asked_answers(document: Mapping[str, Any]) -> int:
    """Answers that a request asks for.

    >>> asked_answers({"n": 3}), asked_answers({"prompt": ["one", "two"]}), asked_answers({})
    (3, 2, 1)
    """
    answers = max(_asked_count(document.get("n")), _asked_count(document.get("best_of")), 1)
    prompts = document.get("prompt")
    # A list of numbers is one prompt, in tokens.
    if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        answers *= len(prompts)
    return answers


def _makes_sense(value: Any) -> TypeGuard[int]:
    return is_count(value) and value <= _MAX_COUNT


def _asked_count(value: Any) -> int:
    """A count that makes sense, else 0; endpoints take "20" and 20.0 for 20, too."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 0
    return min(value, _MAX_COUNT) if is_count(value) else 0
