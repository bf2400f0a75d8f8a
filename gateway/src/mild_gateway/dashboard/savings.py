"""What was paid for the newest answers, beside what each expert alone would have cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any

from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage
from mild_gateway.ledger.records import Record
from mild_gateway.selection.models import configured_name

CONFIDENCE = 0.95


def savings_document(recent: Sequence[Record], experts: Sequence[Expert]) -> dict[str, Any] | None:
    """Dollars paid for the newest answers, and what they would have cost from each expert alone.

    The same tokens at the expert's own prices: another expert might answer with more or fewer. ``saved``
    has an interval for as many answers to queries like these. None if no answer has both a price and its
    tokens, or not all experts have prices.
    """
    for expert in experts:
        if not expert.price.known:
            return None
    prices: list[float] = []
    usages: list[Usage] = []
    for record in recent:
        usage = answer_usage(record)
        if record.outcome == "ok" and record.price is not None and usage is not None:
            prices.append(record.price)
            usages.append(usage)
    if not prices or not experts:
        return None
    always = {}
    saved = {}
    for expert in experts:
        total_cost = 0.0
        savings = []
        for price, usage in zip(prices, usages, strict=True):
            cost = expert.price.of(usage)
            total_cost += cost
            savings.append(cost - price)
        always[expert.name] = total_cost
        saved[expert.name] = sum_with_interval(savings)
    return {
        "rows": len(prices),
        "paid": sum(prices),
        "always": always,
        "saved": saved,
        "confidence": CONFIDENCE,
    }


def answer_usage(record: Record) -> Usage | None:
    """The tokens of the answer that was given, of a cascade those of one call; None if not known."""
    tokens_in = record.tokens_in
    tokens_out = record.tokens_out
    for call in record.calls or ():
        if call["outcome"] == "ok" and configured_name(call["expert"]) == record.expert:
            tokens_in = call["tokens_in"]
            tokens_out = call["tokens_out"]
            break
    if tokens_in is None or tokens_out is None:
        return None
    return Usage(int(tokens_in), int(tokens_out))


def sum_with_interval(values: Sequence[float]) -> dict[str, float | None]:
    """The sum of n values, with an interval for the sum of n others like them.

    The mean is normal around its expectation, with standard error ``s / sqrt(n)``; the sum is n times it.
    Without SciPy, which serving does not import. No interval of one value.

    >>> {name: round(value, 3) for name, value in sum_with_interval([1.0, 2.0, 3.0]).items()}
    {'estimate': 6.0, 'low': 2.605, 'high': 9.395}
    """
    n = len(values)
    estimate = n * fmean(values)
    if n < 2:
        return {"estimate": estimate, "low": None, "high": None}
    half_width = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * math.sqrt(n) * stdev(values)
    return {"estimate": estimate, "low": estimate - half_width, "high": estimate + half_width}
