"""Small tables of outcomes: queries of three topics, and experts that know one each."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

EXPERTS = ["adder", "cook", "poet"]
TOPICS = [
    "add sum plus minus digits number seven twelve product divide",
    "boil salt butter flour oven stir simmer onion recipe bake",
    "rhyme verse stanza metaphor sonnet lyric line poem moon sorrow",
]
FILLER = ["please", "tell", "me", "what", "the", "and", "about", "with", "now"]


def make_columns(n=150, seed=0, noise=0.1, prices=False):
    """Columns of a wide table in which the expert of a query's topic is mostly the one that is right."""
    rng = np.random.default_rng(seed)
    topic = rng.integers(0, 3, n)
    words = [line.split() for line in TOPICS]
    prompts = [
        " ".join([*rng.choice(words[k], 6), *rng.choice(FILLER, 3), f"q{seed}x{i}"])
        for i, k in enumerate(topic)
    ]
    right = (topic[:, None] == np.arange(3)) ^ (rng.random((n, 3)) < noise)
    columns = {
        "prompt": prompts,
        "subject": [f"s{i % 6}" for i in range(n)],
        "day": np.arange(n),
        **{f"correct__{name}": right[:, k].astype(int) for k, name in enumerate(EXPERTS)},
    }
    if prices:
        columns |= {f"cost__{name}": np.full(n, 0.001 * (k + 1)) for k, name in enumerate(EXPERTS)}
    return columns


def write_outcomes(columns, path):
    """Write columns as .parquet, .csv or .jsonl."""
    if path.suffix == ".jsonl":
        rows = zip(*columns.values(), strict=True)
        lines = [json.dumps(dict(zip(columns, row, strict=True)), default=float) for row in rows]
        path.write_text("\n".join(lines))
    elif path.suffix == ".csv":
        arrow_csv.write_csv(pa.table(columns), path)
    else:
        parquet.write_table(pa.table(columns), path)
    return path
