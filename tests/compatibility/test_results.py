"""Records of experiments are lines of JSON with the keys that their readers take."""

from __future__ import annotations

import json

import pytest

from compatibility.cases import FOLDER
from recordings import read_json


@pytest.mark.parametrize("name", ["table1.jsonl", "llm.jsonl"])
def test_records_have_their_keys(name):
    lines = (FOLDER / "results" / name).read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == 3
    for record in records:
        assert {"schema", "key", "cell", "outcomes", "reference"} <= set(record)
        assert record["schema"] == 1
        assert len(record["key"]) == 16
        assert {"table", "dataset", "method", "seed"} <= set(record["cell"])
        for outcome in record["outcomes"].values():
            assert {"loss", "shares", "recall"} <= set(outcome)
        assert {"oracle", "constant", "constant_expert"} <= set(record["reference"])


def test_classifiers_are_one_list():
    for record in read_json(FOLDER / "results" / "classifier.json"):
        assert {"schema", "key", "cell", "accuracy", "training", "versions"} <= set(record)
