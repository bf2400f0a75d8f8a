"""Format numbers and names as the report shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from mild.money import amount, decimals

#: Shown in place of a figure that is not known.
UNKNOWN = "–"
# The minus sign of typesetting, in place of a hyphen.
_MINUS = "−"


def is_known(value: float | None) -> TypeGuard[float]:
    """Whether a figure is a finite number."""
    return value is not None and math.isfinite(value)


def with_minus(text: str) -> str:
    """Return a number as text with a minus sign in place of its hyphen."""
    return text.replace("-", _MINUS)


def signed(value: float | None) -> str:
    """Return a difference of costs as text, with its sign.

    >>> signed(-0.01234), signed(0.5), signed(0.0)
    ('−0.0123', '+0.5000', '0.0000')
    """
    if not is_known(value):
        return UNKNOWN
    if round(value, 4) == 0:
        return "0.0000"
    return with_minus(f"{value:+.4f}")


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as text, in per cent.

    >>> percent(0.1234), percent(1, 0)
    ('12.3\\xa0%', '100\\xa0%')
    """
    if not is_known(value):
        return UNKNOWN
    return with_minus(f"{100 * value:.{digits}f}\u00a0%")


def cost_text(value: float | None) -> str:
    """Return a mean loss as text."""
    if not is_known(value):
        return UNKNOWN
    return with_minus(decimals(value))


def dollars_text(value: float | None) -> str:
    """Return an amount of dollars as text, with as many digits as it needs.

    >>> dollars_text(1234.5), dollars_text(0.4), dollars_text(0.00421), dollars_text(-2), dollars_text(0)
    ('$1,234', '$0.40', '$0.0042', '−$2.00', '$0')
    """
    if not is_known(value):
        return UNKNOWN
    size = f"${amount(abs(value))}"
    if value < 0:
        return f"{_MINUS}{size}"
    return size


def duration_text(value: float | None) -> str:
    """Return a time as text: in seconds, short times in milliseconds.

    >>> duration_text(2.345), duration_text(0.0123)
    ('2.35\\xa0s', '12\\xa0ms')
    """
    if not is_known(value):
        return UNKNOWN
    if value < 0.1:
        return f"{1000 * value:.0f}\u00a0ms"
    return f"{value:.2f}\u00a0s"


def saved_words(dollars: float, other_dollars: float) -> str:
    """Return what a router saves over an alternative as text, in dollars and per cent.

    >>> saved_words(1.0, 4.0), saved_words(3.0, 2.0), saved_words(1.0, 1.0)
    ('saves $3.00 (75\\xa0%)', 'adds $1.00 (50\\xa0%)', 'costs as much')
    """
    saved = other_dollars - dollars
    difference = abs(saved)
    if difference <= 1e-9 * max(abs(dollars), abs(other_dollars)):
        return "costs as much"
    verb = "adds"
    if saved > 0:
        verb = "saves"
    words = f"{verb} {dollars_text(difference)}"
    # Beside an alternative that costs next to nothing, a share is a huge number that says little.
    if other_dollars <= 0 or difference >= 10 * other_dollars:
        return words
    return f"{words} ({percent(difference / other_dollars, 0)})"


def shares_text(names: Sequence[str], shares: Sequence[float], max_names: int = 4) -> str:
    """Return the shares of the experts as text, largest first.

    >>> shares_text(["a", "b", "c"], [0.25, 0.75, 0.0])
    'b 75\\xa0%, a 25\\xa0%'
    """
    experts = sorted(range(len(shares)), key=lambda expert: -shares[expert])
    entries: list[str] = []
    n_others = 0
    share_of_others = 0.0
    for expert in experts:
        if shares[expert] <= 0:
            break
        if len(entries) < max_names:
            entries.append(f"{names[expert]} {percent(shares[expert], 0)}")
        else:
            n_others += 1
            share_of_others += shares[expert]
    if n_others:
        entries.append(f"{n_others} others {percent(share_of_others, 0)}")
    return ", ".join(entries)


def capitalised(sentence: str) -> str:
    """Return a sentence with a capital, unless it begins with a name such as kNN."""
    first_word = sentence.partition(" ")[0]
    if first_word != first_word.lower():
        return sentence
    return sentence[:1].upper() + sentence[1:]


def shortened(text: str, max_letters: int, tail: int = 0) -> str:
    """Return a name without its end, or without its middle if ``tail`` letters of the end are kept.

    >>> shortened("mistral-7b-instruct-v0.2", 13), shortened("mistral-7b-instruct-v0.2", 13, 4)
    ('mistral-7b-i…', 'mistral-…v0.2')
    """
    if len(text) <= max_letters:
        return text
    start = text[: max_letters - 1 - tail]
    end = text[len(text) - tail :]
    return f"{start}…{end}"


def short_names(names: Sequence[str], max_letters: int = 24) -> list[str]:
    """Return names without their owners, shortened as long as they still differ.

    >>> short_names(["meta/llama-3", "mistralai/mistral-7b"]), short_names(["a/x", "b/x"])
    (['llama-3', 'mistral-7b'], ['a/x', 'b/x'])
    """
    n_names = len(set(names))
    bare_names = [name.rsplit("/", 1)[-1] or name for name in names]
    if len(set(bare_names)) < n_names:
        bare_names = list(names)
    for tail in (0, max_letters // 3, 2 * max_letters // 3):
        short = [shortened(name, max_letters, tail) for name in bare_names]
        if len(set(short)) == n_names:
            return short
    return bare_names
