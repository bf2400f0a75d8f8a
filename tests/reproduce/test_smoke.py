"""Every table end to end on digits, with the real network, small: well under a minute in all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.reproduce.data import PeopleFile
from mild.reproduce.experts import trained
from mild.reproduce.records import record_problem
from mild.reproduce.run import reproduce
from mild.reproduce.summary import summarise


@pytest.fixture(autouse=True)
def _short_experts(monkeypatch):
    monkeypatch.setattr(trained, "LEAST_STEPS", 8)


@pytest.mark.parametrize(
    ("table", "fields", "n_cells"),
    [
        ("table1", {"costs": ("error", "cost"), "methods": ("tdef", "mild")}, 12),
        ("table2", {"methods": ("tdef", "mild")}, 6),
        ("severe", {"methods": ("tdef", "mild", "tuned")}, 6),
        ("readings", {"methods": ("ce", "cwce", "ldam", "mild:rewards=contrast,total=mean3")}, 4),
    ],
)
def test_a_table_runs_on_digits(table, fields, n_cells, make_request, tmp_path):
    records = reproduce(make_request(table, cache_dir=tmp_path / "cache", **fields))
    assert len(records) == n_cells
    assert [record_problem(record) for record in records] == [None] * n_cells
    blocks = summarise(records)
    assert {block.table for block in blocks} == {table}
    for record in records:
        assert record["cell"]["protocol"]["name"] == "fast, changed"
        prices = record["experts"]["prices"] if record["cell"]["cost"] == "cost" else [0] * 5
        for outcome in record["outcomes"].values():
            asked = [899 * share for share in outcome["shares"]]
            assert asked == pytest.approx([round(count) for count in asked])
            # What was paid for asking leaves a whole number of errors.
            paid = sum(count * price for count, price in zip(asked, prices, strict=False))
            errors = 899 * outcome["loss"] - paid
            assert errors == pytest.approx(round(errors), abs=1e-3)
            assert 0 <= round(errors) < 899
            assert outcome["loss"] >= record["reference"]["oracle"]
    for block in blocks:
        # All methods of a block are judged on the same answers.
        assert all(r["reference"] == block.records[0]["reference"] for r in block.records)


def test_people_run_on_digits(make_request, monkeypatch, tmp_path):
    """Digits stand in for CIFAR-10, whose annotations are no part of this package."""
    import dataclasses

    from mild.reproduce import supply
    from mild.reproduce.data import load_images

    digits = dataclasses.replace(load_images("digits"), name="cifar10")
    rng = np.random.default_rng(0)
    said = {
        f"random_label{k}": np.where(rng.random(898) < 0.9, digits.train_labels, 0)
        for k in (1, 2, 3)
    }
    people = PeopleFile("cifar10", digits.train_labels, said)
    monkeypatch.setattr(supply, "load_images", lambda name, folder: digits)
    monkeypatch.setattr(supply, "read_people", lambda path, dataset: people)
    request = make_request(
        "people", datasets=("cifar10",), people_file=tmp_path / "p.npz", methods=("tdef", "uniform")
    )
    records = reproduce(request)
    assert [len(record["margins"]) for record in records] == [4, 4]
    assert record_problem(records[0]) is None
    assert summarise(records)
