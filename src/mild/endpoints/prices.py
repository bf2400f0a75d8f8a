"""What an answer costs: from tokens, per query, and at most before it is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Price", "Usage", "estimate_tokens", "most_tokens"]

# Prices of models are given for so many tokens.
MILLION = 1_000_000
# A token of English text is about four bytes long.
BYTES_PER_TOKEN = 4
# What chat templates and servers put around the messages, at most.
TEMPLATE_TOKENS = 64


@dataclass(frozen=True)
class Usage:
    """Tokens of one answer; ``estimated`` where the expert did not say."""

    tokens_in: int
    tokens_out: int
    estimated: bool = False


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens in and out, and dollars per query; None where unknown.

    Examples
    --------
    >>> price = Price(per_million_in=0.5, per_million_out=1.5)
    >>> round(price.of(Usage(tokens_in=2000, tokens_out=100)), 6)
    0.00115
    >>> Price(per_query=0.002).of(None)
    0.002
    """

    per_million_in: float | None = None
    per_million_out: float | None = None
    per_query: float | None = None

    @property
    def known(self) -> bool:
        """Whether anything is said about the price."""
        return not (self.per_million_in is self.per_million_out is self.per_query is None)

    def of(self, usage: Usage | None) -> float:
        """Dollars for one answer."""
        dollars = self.per_query or 0.0
        if usage is not None:
            dollars += usage.tokens_in * (self.per_million_in or 0.0) / MILLION
            dollars += usage.tokens_out * (self.per_million_out or 0.0) / MILLION
        return dollars


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has.

    Examples
    --------
    >>> estimate_tokens("What is the capital of France?")
    8
    """
    return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)


def most_tokens(text: str) -> int:
    """How many tokens a text has at most: no token is shorter than a byte.

    Examples
    --------
    >>> most_tokens("né")
    67
    """
    return len(text.encode(errors="replace")) + TEMPLATE_TOKENS
