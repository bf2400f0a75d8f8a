"""Small tables of outcomes of three language models whose queries tell who is right."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from mild.reproduce.llm.trio import QWEN
from mild.tables import OutcomeTable, read_outcomes

TOPICS = (
    "integral matrix proof theorem tensor lemma",
    "poem novel verse rhyme stanza chapter",
    "colour animal fruit river flower cloud",
)
# Who is right about which topic, from strong to tiny.
RIGHT = np.array([[0.95, 0.1, 0.05], [0.5, 0.95, 0.1], [0.6, 0.7, 0.95]])


def make_columns(n: int = 180, seed: int = 0, names: tuple[str, ...] = QWEN) -> dict[str, list]:
    """Columns of a wide table; six words of one topic and a number make a query."""
    rng = np.random.default_rng(seed)
    topics = rng.choice(3, size=n, p=[0.6, 0.25, 0.15])
    words = [topic.split() for topic in TOPICS]
    queries = [
        " ".join([*rng.choice(words[topic], size=rng.integers(3, 7)), str(i)])
        for i, topic in enumerate(topics)
    ]
    right = rng.random((n, 3)) < RIGHT[topics]
    columns: dict[str, list] = {"prompt": queries}
    # The other way round: the order is to be found by the sizes.
    for k in reversed(range(len(names))):
        columns[f"correct__{names[k]}"] = right[:, k % 3].astype(int).tolist()
    return columns


def make_outcomes(n: int = 180, seed: int = 0, names: tuple[str, ...] = QWEN) -> OutcomeTable:
    """The same as a table with the experts from strong to tiny."""
    return read_outcomes(pa.table(make_columns(n, seed, names)), experts=list(names))


def write_outcomes(path, **options):
    """The same as a parquet file."""
    parquet.write_table(pa.table(make_columns(**options)), path)
    return path
