"""What an answer costs: tokens reported, estimated or possible at most, and the price of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from mild_gateway.experts.translation.answers import chat_usage
from mild_gateway.experts.translation.fields import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    cut_short,
    is_count,
)

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
#: Fields that limit an answer.
LIMITS = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    COMPLETIONS: ("max_tokens",),
    MESSAGES: ("max_tokens",),
    RESPONSES: ("max_output_tokens",),
}
# Fields that choose a service with a price of its own, and the values at the usual price.
_USUAL_PRICES = {
    "service_tier": ("auto", "default", "standard", "standard_only"),
    "speed": ("standard",),
    "inference_geo": ("global",),
}
# Fields of answers and their events that hold what a model has written, or lead to it.
_WRITTEN = {
    "choices", "message", "delta", "content", "content_block", "text", "refusal", "reasoning",
    "reasoning_content", "thinking", "tool_calls", "function_call", "function", "arguments",
    "partial_json",
}  # fmt: skip


class Usage(NamedTuple):
    """Tokens of one answer; ``estimated`` where the expert did not say.

    Of the tokens in, ``cached_in`` were read from the expert's prompt cache, and ``cache_write_in`` were
    written to it.
    """

    tokens_in: int
    tokens_out: int
    estimated: bool = False
    cached_in: int = 0
    cache_write_in: int = 0


class TokenBounds(NamedTuple):
    """How many tokens one answer of an expert to a request may cost at most: what is reserved for it.

    If the input is not ``is_counted``, some of it is not in the request, and ``tokens_in`` is the expert's
    context.
    """

    tokens_in: int
    tokens_out: int
    bytes_in: int  # of the text in the request
    context: int | None = None  # of the expert
    is_counted: bool = True


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens in and out, and dollars per query; None where unknown.

    Tokens that are read from the prompt cache, or written to it, cost what others do where no price for
    them is given.

    >>> cached = Price(per_million_in=2.0, per_million_cached_in=0.5)
    >>> cached.of(Usage(1_000_000, 0, cached_in=800_000)), Price(per_query=0.002).of(None)
    (0.8, 0.002)
    """

    per_million_in: float | None = None
    per_million_out: float | None = None
    per_query: float | None = None
    per_million_cached_in: float | None = None
    per_million_cache_write: float | None = None

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
        if usage is None:
            return dollars
        price_in = self.per_million_in or 0.0
        price_cached = self.per_million_cached_in
        if price_cached is None:
            price_cached = price_in
        price_cache_write = self.per_million_cache_write
        if price_cache_write is None:
            price_cache_write = price_in
        uncached_in = usage.tokens_in - usage.cached_in - usage.cache_write_in
        dollars += uncached_in * price_in / MILLION
        dollars += usage.cached_in * price_cached / MILLION
        dollars += usage.cache_write_in * price_cache_write / MILLION
        dollars += usage.tokens_out * (self.per_million_out or 0.0) / MILLION
        return dollars

    def at_most(self, bounds: TokenBounds) -> float:
        """Dollars for one answer at most: all of its input may be written to the prompt cache.

        >>> Price(per_million_in=2.0, per_million_cache_write=2.5).at_most(TokenBounds(1_000_000, 0, 0))
        2.5
        """
        plain = Usage(bounds.tokens_in, bounds.tokens_out)
        written = plain._replace(cache_write_in=bounds.tokens_in)
        return max(self.of(plain), self.of(written))


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
            self.usage = usage
            self.final = final

    def charged(self, bounds: TokenBounds, *, broken_off: bool = False) -> Usage:
        """The usage to charge: what was reported if it is plausible, and an estimate of the rest.

        Input is charged as it was reported. If it was not, input that is not counted is charged as it was
        reserved, with the output. The output of an answer that was ``broken_off`` is charged as reserved,
        too: the expert may go on with it, and much of it may never be shown.

        >>> meter = UsageMeter(events=2, bytes_out=12_000)
        >>> meter.charged(TokenBounds(tokens_in=300, tokens_out=8000, bytes_in=300))
        Usage(tokens_in=100, tokens_out=4000, estimated=True, cached_in=0, cache_write_in=0)
        >>> meter.charged(TokenBounds(200_000, 8000, bytes_in=300, is_counted=False))
        Usage(tokens_in=200000, tokens_out=8000, estimated=True, cached_in=0, cache_write_in=0)
        """
        reported = self.usage
        if reported is None or not _is_plausible(reported, bounds):
            reported = Usage(0, 0)
        elif self.final and self.bytes_out <= reported.tokens_out * _MAX_BYTES_PER_TOKEN:
            return reported
        if not reported.tokens_in and not bounds.is_counted:
            return Usage(bounds.tokens_in, bounds.tokens_out, estimated=True)
        if not reported.tokens_in:
            reported = input_usage(bounds)
        tokens_out = max(reported.tokens_out, self.events, charged_tokens(self.bytes_out))
        if broken_off:
            tokens_out = bounds.tokens_out
        return reported._replace(tokens_out=min(tokens_out, bounds.tokens_out), estimated=True)


def input_usage(bounds: TokenBounds) -> Usage:
    """What is charged for the input alone where nothing was reported, as for an attempt that failed.

    >>> input_usage(TokenBounds(tokens_in=300, tokens_out=8000, bytes_in=300)).tokens_in
    100
    """
    tokens_in = bounds.tokens_in
    if bounds.is_counted:
        tokens_in = charged_tokens(bounds.bytes_in)
    return Usage(tokens_in, 0, estimated=True)


def _is_plausible(usage: Usage, bounds: TokenBounds) -> bool:
    """Whether an answer may have used so many tokens.

    Nobody knows the length of input that is not in the request, such as pages that a hosted tool reads.
    """
    if not bounds.is_counted:
        return True
    # No token is shorter than a byte: a list of texts may have more than the context together.
    longest_input = max(bounds.context or LONGEST_CONTEXT, bounds.bytes_in)
    return usage.tokens_in + usage.tokens_out <= longest_input + bounds.tokens_out


def read_version(document: Mapping[str, Any]) -> str | None:
    """Model and system fingerprint that an answer, or an event of a stream, reports; None without a model.

    >>> read_version({"model": "gpt-4o-2024-08-06", "system_fingerprint": "fp_6b68a8204b"})
    'gpt-4o-2024-08-06 fp_6b68a8204b'
    >>> read_version({"type": "message_start", "message": {"model": "claude-sonnet-4-5"}})
    'claude-sonnet-4-5'
    """
    for holder in (document, document.get("message"), document.get("response")):
        if not isinstance(holder, dict):
            continue
        model = _plain_name(holder.get("model"))
        if model:
            return f"{model} {_plain_name(holder.get('system_fingerprint'))}".strip()
    return None


def _plain_name(name: Any) -> str:
    """The beginning of a name without spaces and control characters; empty if it is no text."""
    if not isinstance(name, str):
        return ""
    return "".join(c for c in name[:_MAX_NAME] if c.isprintable() and c != " ")


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
    Reasoning is output, also where it is not part of ``completion_tokens``.

    >>> read_usage({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}})
    Usage(tokens_in=9, tokens_out=0, estimated=False, cached_in=4, cache_write_in=0)
    >>> read_usage({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 3014}).tokens_out
    3005
    """
    if isinstance(reported, dict) and "input_tokens" in reported:
        reported = chat_usage(reported)
    if not isinstance(reported, dict):
        return None
    tokens_in = reported.get("prompt_tokens")
    tokens_out = reported.get("completion_tokens")
    if not _makes_sense(tokens_in) or (needs_out and not _makes_sense(tokens_out)):
        return None
    details = reported.get("prompt_tokens_details")
    if not isinstance(details, dict):
        details = {}
    # More than there are would be paid back.
    cached_in = min(_sensible_count(details.get("cached_tokens")), tokens_in)
    written_in = min(_sensible_count(details.get("cache_write_tokens")), tokens_in - cached_in)
    return Usage(
        tokens_in,
        _all_tokens_out(reported),
        cached_in=cached_in,
        cache_write_in=written_in,
    )


def _all_tokens_out(reported: Mapping[str, Any]) -> int:
    """Tokens of the answer with those of the reasoning, which some endpoints count apart."""
    tokens_out = _sensible_count(reported.get("completion_tokens"))
    details = reported.get("completion_tokens_details")
    if isinstance(details, dict):
        reasoning = _sensible_count(details.get("reasoning_tokens"))
        # If it were part of the answer, it would not be more.
        if reasoning > tokens_out:
            tokens_out += reasoning
    total = _sensible_count(reported.get("total_tokens"))
    tokens_in = reported["prompt_tokens"]
    details = reported.get("prompt_tokens_details")
    if isinstance(details, dict):
        cached = _sensible_count(details.get("cached_tokens"))
        # Likewise.
        if cached > tokens_in:
            tokens_in += cached
    return max(tokens_out, total - tokens_in)


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
    names = LIMITS.get(endpoint, ("max_completion_tokens", "max_tokens", "max_output_tokens"))
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


def surcharged_fields(document: Mapping[str, Any]) -> dict[str, str]:
    """Fields of a request that choose a service with a price of its own, and what they choose.

    >>> surcharged_fields({"service_tier": "priority"}), surcharged_fields({"service_tier": "auto"})
    ({'service_tier': 'priority'}, {})
    """
    surcharged = {}
    for field, usual_values in _USUAL_PRICES.items():
        value = document.get(field)
        if value and value not in usual_values:
            surcharged[field] = cut_short(value)
    return surcharged


def _makes_sense(value: Any) -> TypeGuard[int]:
    return is_count(value) and value <= _MAX_COUNT


def _sensible_count(value: Any) -> int:
    """A count of tokens; 0 if it makes no sense."""
    if _makes_sense(value):
        return value
    return 0


def _asked_count(value: Any) -> int:
    """A count that makes sense, else 0; endpoints take "20" and 20.0 for 20, too."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 0
    if not is_count(value):
        return 0
    return min(value, _MAX_COUNT)
