"""What is recorded about a router is typed, and nothing of it is lost on disk."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import mild.artifact
from mild.artifact import Router, RouterInfo, load, save
from mild.artifact.info import CostInfo, DataInfo, EstimatorInfo, TargetInfo
from mild.policies import ConstantPolicy

NOTES = {
    "query": {"columns": ["prompt"]},
    "cost": {"words": "error", "beta": None, "price_weight": 2.0, "latency_weight": None},
    "constant": "a",
    "table": {"fingerprint": "0" * 64, "rows": 3, "form": "wide", "explanation": "", "later": 1},
    "hashes_complete": False,
    "shares": {"rows": 3, "experts": {"a": 1.0, "b": 0.0}},
    "of a later version": {"deep": [1, 2]},
}


def router(**more):
    return Router(ConstantPolicy(np.array([0.1, 0.2]), 1), ["a", "b"], **more)


def test_notes_are_typed_and_written_as_they_were():
    info = RouterInfo.from_notes(NOTES)
    assert info.cost == CostInfo("error", None, 2.0, None)
    assert (info.constant, info.hashes_complete, info.table.rows) == ("a", False, 3)
    assert info.notes == NOTES


@pytest.mark.parametrize(
    "notes",
    [
        NOTES,
        {"cost": "error"},
        {"shares": [1], "target": "none"},
        {"table": {}, "x": None},
        {},
        None,
    ],
)
def test_notes_of_any_form_survive_loading_and_saving(notes, tmp_path):
    folder = save(router(), tmp_path / "first", notes=notes)
    again = save(load(folder), tmp_path / "second")
    written = [json.loads((place / "router.json").read_text()) for place in (folder, again)]
    for content in written:
        content.pop("created")
    kept = {key: note for key, note in (notes or {}).items() if note is not None}
    found = written[1].get("notes") or {}
    assert {key: found[key] for key in kept if key != "table"} == {
        key: note for key, note in kept.items() if key != "table"
    }
    assert (found.get("table") or {}).items() >= (kept.get("table") or {}).items()


def test_records_are_known_after_loading(tmp_path):
    estimator = EstimatorInfo("LinearRouter", {"alpha": 0.1})
    folder = save(
        router(info=RouterInfo(estimator=estimator)), tmp_path / "r", data=([[1.0]], [[0, 1]])
    )
    info = load(folder).info
    assert (info.kind, info.schema_version, info.mild_version) == ("constant", 3, mild.__version__)
    assert info.estimator == estimator
    assert isinstance(info.data, DataInfo)
    assert info.data.rows == 1
    assert info.tensors == {"mean_costs": {"shape": [2], "dtype": "float64"}}
    # The folder is written at another time, or with other content.
    assert info.fingerprint == load(folder).info.fingerprint
    other = save(router(), tmp_path / "other")
    assert info.fingerprint != load(other).info.fingerprint


def test_new_notes_replace_those_of_the_same_key_only():
    info = replace(RouterInfo.from_notes(NOTES), kind="linear").with_notes({"constant": "b"})
    assert (info.constant, info.kind) == ("b", "linear")
    assert info.notes == NOTES | {"constant": "b"}


def test_a_dollar_is_worth_what_the_target_says_before_the_cost():
    info = RouterInfo.from_notes(NOTES)
    assert info.price_weight == 2.0
    target = TargetInfo({"max_dollars": 1.0}, None, 7.0, None, True, None, "a", "Said.")
    assert replace(info, target=target).price_weight == 7.0
    assert RouterInfo().price_weight is None
