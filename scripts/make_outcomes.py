"""Make the embedded table from what was collected: `python scripts/make_outcomes.py outcomes.parquet`.

Before it::

    python scripts/make_questions.py questions.jsonl
    python scripts/serve_model.py smollm2 --port 8131 &
    python scripts/serve_model.py gemma3 --port 8132 &
    uvicorn serve_rules:app --app-dir scripts --port 8133 &
    mild collect questions.jsonl scripts/experts.toml --out outcomes.parquet

Answers and what can be computed again are left out; numbers keep the digits that mean something.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mild.data import read_outcomes
from mild.datasets import outcomes_file

KEPT = ("query", "options", "source", "grade")


def main() -> None:
    """Write the table beside the module that names it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    source = parser.parse_args().file
    table = pq.read_table(source)
    outcomes = read_outcomes(source)
    if outcomes.prices is None or outcomes.latencies is None or np.isnan(outcomes.scores).any():
        raise SystemExit("every expert must have answered every question, with price and latency")
    columns = {name: table[name] for name in KEPT if name in table.column_names}
    for k, name in enumerate(outcomes.experts):
        columns[f"score__{name}"] = pa.array(outcomes.scores[:, k].astype(np.float32))
        dollars = outcomes.prices[:, k]
        columns[f"cost__{name}"] = pa.array(np.round(dollars, 10))
        milliseconds = np.round(1000 * outcomes.latencies[:, k], 1)
        columns[f"latency_ms__{name}"] = pa.array(milliseconds.astype(np.float32))
    target = outcomes_file()
    draft = target.with_suffix(".tmp")
    pq.write_table(pa.table(columns), draft, compression="zstd", compression_level=19)
    draft.replace(target)
    print(f"{target}: {target.stat().st_size:,} bytes, {table.num_rows:,} rows")


if __name__ == "__main__":
    main()
