"""What a request may cost, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild.endpoints.expert import Expert
from mild.endpoints.translation import chat_usage

__all__ = ["Usage", "max_tokens"]

# Bytes of text that count as a token where an expert reports no usage.
BYTES_PER_TOKEN = 3
# More answers at a time, or tokens in one, are the expert's business to refuse.
_MAX_COUNT = 10_000_000


@dataclass(slots=True)
class Usage:
    """Tokens of a request; None where the expert did not say.

    Attributes
    ----------
    bytes_in : of the request's text
    pieces_out : events of a stream, or bytes of a plain answer in tokens: for an estimate
    """

    bytes_in: int
    tokens_in: int | None = None
    tokens_out: int | None = None
    pieces_out: int = 0

    def read(self, document: Mapping[str, Any]) -> None:
        """Take the tokens that an answer reports, if they make sense."""
        reported = document.get("usage")
        if isinstance(reported, dict) and "input_tokens" in reported:
            reported = chat_usage(reported)
        if isinstance(reported, dict):
            tokens_in, tokens_out = reported.get("prompt_tokens"), reported.get("completion_tokens")
            if _is_count(tokens_in):
                self.tokens_in = tokens_in
                # A prompt that is only read, or an empty answer, may leave the other one out.
                self.tokens_out = tokens_out if _is_count(tokens_out) else 0

    def dollars(self, expert: Expert) -> float:
        """Price by the reported usage, or by an estimate of it.

        Examples
        --------
        >>> expert = Expert("small", "http://x/v1", "m", price_in=2, price_out=9)
        >>> Usage(3000).dollars(expert)
        0.002
        """
        tokens_in = self.tokens_in
        if tokens_in is None:
            tokens_in = -(-self.bytes_in // BYTES_PER_TOKEN)
        tokens_out = self.pieces_out if self.tokens_out is None else self.tokens_out
        return expert.dollars(tokens_in, tokens_out)


def max_tokens(document: Mapping[str, Any], expert: Expert) -> int:
    """Tokens that the answers to a request may have at most, all together.

    Examples
    --------
    >>> expert = Expert("small", "http://x/v1", "m", max_tokens=100)
    >>> max_tokens({"max_tokens": 20, "n": 3}, expert), max_tokens({}, expert)
    (60, 100)
    """
    # Endpoints differ in which of them they obey.
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    most = max(_count(document.get(name)) for name in names) or expert.max_tokens
    answers = max(_count(document.get("n")), _count(document.get("best_of")), 1)
    prompts = document.get("prompt")
    if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        answers *= len(prompts)
    return most * answers


def _count(value: Any) -> int:
    """A count that makes sense, else 0; endpoints take "20" and 20.0 for 20, too."""
    if isinstance(value, str | float):
        try:
            value = int(float(value))
        except (ValueError, OverflowError):
            return 0
    return value if _is_count(value) else 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
