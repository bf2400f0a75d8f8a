"""Wide: ``correct__<model>`` or ``score__<model>``, ``cost__<model>``, ``latency_ms__<model>``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mild.data.formats.layout import CORRECT, LATENCY, PRICE, SCORE, Format, Layout
from mild.errors import listed

__all__ = ["WIDE"]


def detect_wide(schema: Any) -> Layout | None:
    """Columns by their prefixes; ``score__`` goes before ``correct__``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> names = ["prompt", "correct__a", "correct__b", "cost__a", "run__a"]
    >>> layout = detect_wide(pa.schema([(name, pa.float64()) for name in names]))
    >>> layout.scores, layout.prices
    ({'a': 'correct__a', 'b': 'correct__b'}, {'a': 'cost__a'})
    >>> layout.notes
    ('left as columns: run__<model> (1)',)
    """
    names = list(schema.names)
    correct, score = _by_prefix(names, CORRECT), _by_prefix(names, SCORE)
    # In the order in which the experts first appear.
    scores: dict[str, str] = {}
    for column in names:
        expert = column.partition("__")[2]
        if column in (correct.get(expert), score.get(expert)):
            scores[expert] = score.get(expert, column)
    if not scores:
        return None
    prices, latencies = (
        {name: column for name, column in _by_prefix(names, prefix).items() if name in scores}
        for prefix in (PRICE, LATENCY)
    )
    layout = Layout("wide", scores, prices, latencies)
    both = [name for name in scores if name in correct and name in score]
    notes = [f"score__ is taken before correct__ for {listed(both, 4)}"] if both else []
    others = Counter(
        prefix
        for name in names
        for prefix, mark, expert in [name.partition("__")]
        if mark
        and name not in layout.taken
        and (expert in scores or f"{prefix}__" in (PRICE, LATENCY))
    )
    if others:
        left = [f"{prefix}__<model> ({count})" for prefix, count in others.items()]
        notes.append(f"left as columns: {listed(left, 8)}")
    return Layout("wide", scores, prices, latencies, tuple(notes))


def _by_prefix(names: list[str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix): name
        for name in names
        if name.startswith(prefix) and name != prefix
    }


WIDE = Format("wide", "wide", "wide (columns correct__<model> or score__<model>)", detect_wide)
