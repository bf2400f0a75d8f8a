"""Files of the gateway are understood as they were recorded; mistakes are named as they were."""

from __future__ import annotations

import json

import pytest

from compatibility.cases import CONFIGS, FOLDER, config_answers
from recordings import changed_values, lost_parts, read_json

RECORDED = read_json(FOLDER / "config" / "expected.json")


@pytest.fixture(scope="module")
def found():
    return config_answers()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_is_understood_as_it_was(found, name):
    wanted = RECORDED[name]
    got = found[name]
    assert got["exit"] == wanted["exit"]
    assert not lost_parts(wanted["shape"], got["shape"])
    wanted_result = {**wanted["result"]}
    findings = wanted_result.pop("findings", [])
    assert not changed_values(wanted_result, got["result"])
    kinds = sorted(finding["kind"] for finding in got["result"].get("findings", []))
    assert kinds == sorted(finding["kind"] for finding in findings)
    said = json.dumps(got["result"], ensure_ascii=False)
    for words in CONFIGS[name][1]:
        assert words in said
