"""Tables as public projects publish them are read without an option, in every kind of file."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError

SAMPLES = Path(__file__).parent / "samples"
CASES = {
    "routellm_mmlu.csv": ("routellm", [[1, 1], [1, 0], [0, 1]]),
    "routellm_gsm8k.csv": ("routellm", [[1, 1], [1, 0]]),
    "routerbench.csv": ("routerbench", [[1, 0], [0, 1], [1, 1]]),
    "routerdc.json": ("nested", [[0.6, 0.4, 0], [1, 0, 1]]),
    "llmrouter_scores.json": ("nested", [[np.nan, 1, 0], [0.5, 0, 1]]),
    "llmrouter_lists.json": ("nested", [[0.6, 0.95], [1, 0.2]]),
    "llmrouter.jsonl": ("llmrouter", [[0, 1], [1, 0]]),
}


def rows_of(file):
    """Rows of a sample as Python objects; a CSV has texts alone."""
    if file.suffix == ".csv":
        with open(file, newline="") as lines:
            return list(csv.DictReader(lines))
    text = file.read_text()
    return json.loads(text) if file.suffix == ".json" else [*map(json.loads, text.splitlines())]


def written(rows, path):
    """The rows as .csv, .tsv, .json or .jsonl, also compressed."""
    name = path.name.removesuffix(".gz")
    plain = path.with_name(name)
    if name.endswith((".csv", ".tsv")):
        with open(plain, "w", newline="") as lines:
            mark = "," if name.endswith(".csv") else "\t"
            names = list(dict.fromkeys(key for row in rows for key in row))
            writer = csv.DictWriter(lines, names, delimiter=mark)
            writer.writeheader()
            writer.writerows(rows)
    elif name.endswith(".json"):
        plain.write_text(json.dumps(rows))
    else:
        plain.write_text("\n".join(map(json.dumps, rows)))
    if plain != path:
        path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_published_table_is_read_as_it_is(name):
    form, scores = CASES[name]
    table = read_outcomes(SAMPLES / name)
    assert table.form == form
    assert table.layout.startswith("read as ")
    np.testing.assert_array_equal(table.scores, scores)
    assert all(table.queries)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".csv.gz", ".json.gz"])
@pytest.mark.parametrize("name", [name for name in CASES if "routellm" not in name])
def test_every_kind_of_file_gives_the_same_table(tmp_path, name, suffix):
    first = read_outcomes(SAMPLES / name)
    again = read_outcomes(written(rows_of(SAMPLES / name), tmp_path / f"log{suffix}"))
    assert again.fingerprint() == first.fingerprint()
    assert again.form == first.form


def test_a_pickle_is_refused_with_the_sentence_that_converts_it(tmp_path):
    file = tmp_path / "routerbench_0shot.pkl"
    file.write_bytes(b"\x80\x04.")
    with pytest.raises(DataFileError) as caught:
        read_outcomes(file)
    assert "never read" in str(caught.value)
    assert "pandas.read_pickle('routerbench_0shot.pkl').to_csv('routerbench_0shot.csv'" in str(
        caught.value
    )
