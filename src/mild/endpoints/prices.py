"""What an answer costs: tokens reported, estimated or possible at most, and the price of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

from mild.endpoints.translation.answers import chat_usage
from mild.endpoints.translation.fields import is_count

# Prices of models are given for so many tokens.
MILLION = 1_000_000
# A token of English text is about four bytes long.
BYTES_PER_TOKEN = 4
# Fewer bytes count as a token where an answer without usage is charged: rather too much than too little.
CHARGED_BYTES_PER_TOKEN = 3
# What chat templates and servers put around the messages, at most.
TEMPLATE_TOKENS = 64
# More answers at a time, or tokens in one, are the expert's business to refuse.
_MAX_COUNT = 10_000_000


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
    """Tokens of an answer that is on its way; None where the expert has not said.

    ``bytes_in`` are those of the request's text. For an estimate, ``pieces_out`` counts the events of a
    stream, or the bytes of a plain answer in tokens.
    """

    bytes_in: int
    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_in: int = 0
    pieces_out: int = 0

    def read(self, document: Mapping[str, Any]) -> None:
        """Take the tokens that an answer reports, if they make sense."""
        usage = read_usage(document.get("usage"))
        if usage is not None:
            self.tokens_in, self.tokens_out = usage.tokens_in, usage.tokens_out
            self.cached_in = usage.cached_in

    def dollars(self, price: Price) -> float:
        """Price by the reported usage, or by an estimate of it."""
        tokens_in = charged_tokens(self.bytes_in) if self.tokens_in is None else self.tokens_in
        tokens_out = self.pieces_out if self.tokens_out is None else self.tokens_out
        return price.of(Usage(tokens_in, tokens_out, cached_in=self.cached_in))


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
    """About how many tokens a text has."""
    return tokens_in_bytes(len(text.encode(errors="replace")))


def most_tokens(text: str) -> int:
    """How many tokens a text has at most: no token is shorter than a byte."""
    return len(text.encode(errors="replace")) + TEMPLATE_TOKENS


def asked_tokens(document: Mapping[str, Any]) -> int:
    """Tokens that a request allows one answer to have; 0 if it does not say.

    >>> asked_tokens({"max_tokens": 20}), asked_tokens({})
    (20, 0)
    """
    # Endpoints differ in which of them they obey.
    return max(
        _asked_count(document.get("max_completion_tokens")),
        _asked_count(document.get("max_tokens")),
        _asked_count(document.get("max_output_tokens")),
    )


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
    if value is None:
        return 0
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 0
    return value if _makes_sense(value) else 0
