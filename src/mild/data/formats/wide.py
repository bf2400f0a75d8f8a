"""Wide: ``correct__<model>`` or ``score__<model>``, ``cost__<model>``, ``latency_ms__<model>``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mild.data.formats.layout import CORRECT, LATENCY, PRICE, SCORE, Layout
from mild.errors import listed

__all__ = ["find_wide"]


def find_wide(schema: Any) -> Layout | None:
    """Columns by their prefixes; a soft score goes before right-or-wrong.

    Examples
    --------
    >>> import pyarrow as pa
    >>> names = ["prompt", "correct__a", "correct__b", "cost__a", "run__a"]
    >>> layout = find_wide(pa.schema([(name, pa.float64()) for name in names]))
    >>> layout.scores, layout.prices
    ({'a': 'correct__a', 'b': 'correct__b'}, {'a': 'cost__a'})
    >>> layout.words
    ('left as columns: run__<model> (1)',)
    """
    names = list(schema.names)
    correct, score = _by_prefix(names, CORRECT), _by_prefix(names, SCORE)
    scores: dict[str, str] = {}
    for column in names:
        for prefix in (CORRECT, SCORE):
            expert = column.removeprefix(prefix)
            if column.startswith(prefix) and expert:
                scores[expert] = score.get(expert, column)
    if not scores:
        return None
    prices = {name: column for name, column in _by_prefix(names, PRICE).items() if name in scores}
    latencies = {
        name: column for name, column in _by_prefix(names, LATENCY).items() if name in scores
    }
    both = [name for name in scores if name in correct and name in score]
    words = []
    if both:
        words.append(f"score__ is taken before correct__ for {listed(both, 4)}")
    taken = {*scores.values(), *prices.values(), *latencies.values()}
    left = _left(names, scores, taken)
    if left:
        words.append(f"left as columns: {left}")
    return Layout("wide", scores, prices, latencies, tuple(words))


def _by_prefix(names: list[str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): name
        for name in names
        if name.startswith(prefix) and name != prefix
    }


def _left(names: list[str], scores: dict[str, str], taken: set[str]) -> str:
    """Other columns about an expert, by their prefix, with their number."""
    prefixes = Counter(
        prefix
        for name in names
        for prefix, mark, expert in [name.partition("__")]
        if mark and name not in taken and (expert in scores or f"{prefix}__" in (PRICE, LATENCY))
    )
    shown = [f"{prefix}__<model> ({count})" for prefix, count in prefixes.items()]
    return listed(shown, 8) if shown else ""
