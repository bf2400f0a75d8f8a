"""Files of the gateway are understood as they were recorded; mistakes are named as they were."""

from __future__ import annotations

import json

import pytest

from compatibility.cases import CONFIGS, config_answers
from compatibility.running import changes, differences, read

pytest.importorskip("yaml")
pytest.importorskip("httptools", reason="the gateway needs it")


@pytest.fixture(scope="module")
def found():
    return config_answers()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_file_is_understood_as_it_was(found, name):
    wanted, got = read("config", "expected.json")[name], found[name]
    assert got["exit"] == wanted["exit"]
    assert not [*differences(wanted["shape"], got["shape"])]
    findings = wanted["result"].pop("findings", [])
    assert not [*changes(wanted["result"], got["result"])]
    kinds = sorted(finding["kind"] for finding in got["result"].get("findings", []))
    assert kinds == sorted(finding["kind"] for finding in findings)
    said = json.dumps(got["result"], ensure_ascii=False)
    for words in CONFIGS[name][1]:
        assert words in said
