"""``mild ledger`` and ``mild replay`` as they are typed."""

import json

import numpy as np
import pyarrow.parquet as parquet
import pytest

from ledger_cases import record, write_all
from mild.artifact import load, save
from mild.features import HashingFeatures
from mild.routers import RidgeRouter
from replay_cases import DOLLARS, KINDS, NAMES, make_log, texts_of, write_log


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    rows = [record(i, time=1_800_000_000.0 + 60 * i) for i in range(50)]
    return write_all(tmp_path_factory.mktemp("ledger") / "l.db", rows)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved router that prefers what is cheap, and a ledger to replay."""
    folder = tmp_path_factory.mktemp("replay")
    rng = np.random.default_rng(0)
    kinds = KINDS * 50
    texts = texts_of(kinds, rng)
    features = HashingFeatures(n_components=16).fit(texts)
    costs = np.array([DOLLARS[kind] for kind in kinds])
    router = RidgeRouter().fit(features.transform(texts), costs)
    save(router, folder / "router", experts=NAMES, text=features)
    records, errors = make_log(1500)
    write_log(folder / "l.db", records)
    lines = [json.dumps({"request_id": name, "error": value}) for name, value in errors.items()]
    (folder / "feedback.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_show_says_what_a_ledger_holds(mild, ledger):
    done = mild("ledger", "show", ledger)
    assert done.code == 0
    for words in ("requests", "50", "$0.05", "2027-01-15 08:00 UTC", "small", "12.5 ms", "100.0 %"):
        assert words in done.out
    part = json.loads(mild("ledger", "show", ledger, "--json", "--until", "2027-01-15T08:10").out)
    assert part["requests"] == 10


def test_export_writes_a_span(mild, ledger, tmp_path):
    out = tmp_path / "l.parquet"
    done = mild("ledger", "export", ledger, "--out", out, "--since", "2027-01-15T08:40")
    assert (done.code, done.out) == (0, "")
    assert "written: 10 rows" in done.err
    assert parquet.read_table(out).num_rows == 10
    again = mild("ledger", "export", ledger, "--out", out)
    assert again.code == 1
    assert "exists" in again.err
    assert mild("ledger", "export", ledger, "--out", out, "--overwrite").code == 0


def test_what_is_wrong_is_one_sentence(mild, tmp_path, ledger):
    done = mild("ledger", "show", tmp_path / "no.db")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: ")
    assert "is not a file" in done.err
    assert "since must be a date" in mild("ledger", "show", ledger, "--since", "soon").err


def test_replay_prints_estimates_and_a_sentence(mild, saved):
    done = mild("replay", saved / "l.db", "--router", saved / "router")
    assert done.code == 0
    for words in ("as logged", "doubly robust", "inverse propensity", "effective number of draws"):
        assert words in done.out
    assert done.out.strip().splitlines()[-1].startswith("Dollars only")


def test_the_trade_off_of_a_target_is_what_a_dollar_is_worth(mild, saved, tmp_path):
    loaded = load(saved / "router")
    target = {"t": 7.0, "sentence": "Target max_dollars 2: trade-off t = 7."}
    notes = {"target": target, "cost": {"price_weight": 3.0}}
    save(loaded, tmp_path / "router", text=loaded.text, notes=notes)
    words = ["replay", saved / "l.db", "--router", tmp_path / "router", "--json"]
    words += ["--feedback", saved / "feedback.jsonl"]
    found = json.loads(mild(*words).out)
    assert found["cost"] == "error + 7 * dollars"
    assert found["target"] == target["sentence"]
    assert json.loads(mild(*words, "--price-weight", "5").out)["cost"] == "error + 5 * dollars"
    without = ["replay", saved / "l.db", "--router", saved / "router", "--json"]
    assert json.loads(mild(*without).out)["target"] is None


def test_replay_with_feedback_as_json(mild, saved):
    words = ["replay", saved / "l.db", "--router", saved / "router", "--feedback"]
    words += [saved / "feedback.jsonl", "--json"]
    found = json.loads(mild(*words, "--price-weight", "10").out)
    assert found["cost"] == "error + 10 * dollars"
    assert found["verdict"]["better"] is False
    refused = mild(*words)
    assert refused.code == 1
    assert "price_weight must be the number of errors" in refused.err


def test_replay_takes_queries_from_a_table(mild, saved, tmp_path):
    records, _ = make_log(800)
    path = write_log(tmp_path / "bare.db", records, keep_text=False)
    lines = [json.dumps({"request_id": r.request_id, "q": r.text}) for r in records]
    (tmp_path / "q.jsonl").write_text("\n".join(lines) + "\n")
    bare = mild("replay", path, "--router", saved / "router", "--json")
    assert "keep_text = true" in json.loads(bare.out)["verdict"]["sentence"]
    done = mild(
        "replay", path, "--router", saved / "router", "--json",
        "--queries", tmp_path / "q.jsonl", "--text-column", "q",
    )  # fmt: skip
    assert json.loads(done.out)["rows"] == 800
