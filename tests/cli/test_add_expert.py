"""``mild add-expert``"""

import numpy as np
import pytest

from mild import fit, load
from mild.data import write_outcomes
from mild.datasets import load_outcomes


@pytest.fixture
def files(tmp_path):
    table = load_outcomes()[range(0, 1500, 3)]
    known = table.select([name for name in table.experts if name != "rules"])
    fit(known, router="ridge", alpha=100.0).save(tmp_path / "router")
    own = table[np.arange(0, len(table), len(table) // 60)].select(["rules"])
    write_outcomes(own, tmp_path / "graded.parquet")
    write_outcomes(known, tmp_path / "known.parquet")
    return tmp_path


def test_a_new_version_serves_and_a_dry_run_writes_nothing(mild, files):
    words = ("add-expert", files / "router", "rules", files / "graded.parquet")
    words = (*words, "--known", files / "known.parquet", "--json")
    dry = mild(*words, "--dry-run").json()
    assert dry["version"] is None
    assert load(files / "router").n_experts == 2
    found = mild(*words).json()
    assert found["version"] == 2
    assert {key: found[key] for key in ("cost", "gain")} == {
        key: dry[key] for key in ("cost", "gain")
    }
    assert load(files / "router").experts.count("rules") == 1
    assert load(files / "router", version=1).n_experts == 2


def test_the_output_is_sentences_and_an_unknown_expert_is_refused(mild, files):
    wrong = mild("add-expert", files / "router", "gemma3", files / "graded.parquet")
    assert wrong.code != 0
    assert load(files / "router").n_experts == 2
    result = mild("add-expert", files / "router", "rules", files / "graded.parquet")
    assert result.code == 0
    assert "labels" in result.out
    assert "Version 2" in result.out
