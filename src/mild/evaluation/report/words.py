"""Format numbers and names for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mild.metrics.money import amount

__all__ = [
    "cost",
    "dollars",
    "duration",
    "percent",
    "share_words",
    "short_names",
    "shortened",
    "signed",
    "signed_percent",
]

DASH = "–"
MINUS = "−"


def cost(value: float | None) -> str:
    """A mean cost.

    Examples
    --------
    >>> cost(0.12345), cost(None)
    ('0.1235', '–')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.4f}".replace("-", MINUS)


def signed(value: float | None) -> str:
    """A difference of costs, with its sign.

    Examples
    --------
    >>> signed(-0.01234), signed(0.5), signed(0.0)
    ('−0.0123', '+0.5000', '0.0000')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return "0.0000" if round(value, 4) == 0 else f"{value:+.4f}".replace("-", MINUS)


def percent(value: float | None, digits: int = 1) -> str:
    """A share.

    Examples
    --------
    >>> percent(0.1234), percent(1, 0)
    ('12.3\\xa0%', '100\\xa0%')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.{digits}f}\u00a0%".replace("-", MINUS)


def signed_percent(value: float) -> str:
    """A relative change.

    Examples
    --------
    >>> signed_percent(-0.25), signed_percent(0.1)
    ('−25\\xa0%', '+10\\xa0%')
    """
    return ("+" if value > 0 else "") + percent(value, 0)


def dollars(value: float | None) -> str:
    """An amount, with as many digits as it takes to see it.

    Examples
    --------
    >>> dollars(1234.5), dollars(0.4), dollars(0.00421), dollars(-2), dollars(0)
    ('$1,234', '$0.40', '$0.0042', '−$2.00', '$0')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{MINUS if value < 0 else ''}${amount(abs(value))}"


def duration(value: float | None) -> str:
    """Seconds.

    Examples
    --------
    >>> duration(2.345), duration(0.0123)
    ('2.35\\xa0s', '12\\xa0ms')
    """
    if value is None or not math.isfinite(value):
        return DASH
    return f"{1000 * value:.0f}\u00a0ms" if value < 0.1 else f"{value:.2f}\u00a0s"


def shortened(text: str, most: int, tail: int = 0) -> str:
    """A name without its end, or without its middle where a tail of it is kept.

    Examples
    --------
    >>> shortened("mistral-7b-instruct-v0.2", 13), shortened("mistral-7b-instruct-v0.2", 13, 4)
    ('mistral-7b-i…', 'mistral-…v0.2')
    """
    if len(text) <= most:
        return text
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :] if tail else ''}"


def short_names(names: Sequence[str], most: int = 24) -> list[str]:
    """Names without their owners, shortened, as long as they still differ.

    Examples
    --------
    >>> short_names(["meta/llama-3", "mistralai/mistral-7b"])
    ['llama-3', 'mistral-7b']
    >>> short_names(["a/x", "b/x"])
    ['a/x', 'b/x']
    """
    bare = [name.rsplit("/", 1)[-1] or name for name in names]
    if len(set(bare)) < len(set(names)):
        bare = list(names)
    for tail in (0, most // 3, 2 * most // 3):
        short = [shortened(name, most, tail) for name in bare]
        if len(set(short)) == len(set(names)):
            return short
    return bare


def share_words(names: Sequence[str], shares: Sequence[float], most: int = 4) -> str:
    """Who is asked how often, largest first.

    Examples
    --------
    >>> share_words(["a", "b", "c"], [0.25, 0.75, 0.0])
    'asks b 75\\xa0%, a 25\\xa0%'
    """
    order = sorted(range(len(shares)), key=lambda k: -shares[k])
    used = [k for k in order if shares[k] > 0]
    said = [f"{names[k]} {percent(shares[k], 0)}" for k in used[:most]]
    rest = sum(shares[k] for k in used[most:])
    if rest > 0:
        said.append(f"{len(used) - most} others {percent(rest, 0)}")
    return "asks " + ", ".join(said)
