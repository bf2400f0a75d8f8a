"""``mild route`` with a router that was fitted on numbers: a choice for every row of a table."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from cascade_cases import cascade_router
from mild.artifact import load
from mild.data import Outcomes
from mild.tuning.fit import fit

SHARES = ["p__large", "p__medium", "p__small"]


EXPERTS = ["small", "medium", "large"]


def make(n, seed):
    """Features, and the columns of a table with them."""
    X = np.random.default_rng(seed).normal(size=(n, 4))
    return X, {"id": [f"q{i}" for i in range(n)]} | {f"f_{j}": X[:, j] for j in range(4)}


@pytest.fixture
def tables(tmp_path):
    """Tables with a column for each feature: new.csv."""

    def write(columns, name):
        write = parquet.write_table if name.endswith(".parquet") else arrow_csv.write_csv
        write(pa.table(columns), tmp_path / name)
        return tmp_path / name

    return SimpleNamespace(new=write(make(160, 1)[1], "new.csv"), folder=tmp_path, write=write)


@pytest.fixture
def fitted(tmp_path):
    """A router that was fitted on arrays; each expert is cheapest in its own region."""
    X, columns = make(240, 0)
    costs = 1 + np.clip(X[:, :3], -1, None)
    table = Outcomes.from_arrays(X, costs, experts=EXPERTS, feature_names=list(columns)[1:])
    return fit(table).save(tmp_path / "router")


@pytest.fixture
def expected(fitted):
    router = load(fitted)
    X, _ = make(160, 1)
    return [router.experts[k] for k in router.predict(X)], router.predict_proba(X)


def answers(done):
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def test_lines_on_stdout_hold_the_expert_of_every_row(mild, tables, fitted, expected):
    done = mild("route", fitted, tables.new, "--probabilities")
    lines = answers(done)
    assert [line["expert"] for line in lines] == expected[0]
    assert lines[0]["id"] == "q0"
    found = [list(line["probabilities"].values()) for line in lines]
    np.testing.assert_allclose(found, expected[1], rtol=1e-5)
    assert "routed: 160 rows: " in done.err


@pytest.mark.parametrize("name", ["choices.csv", "choices.jsonl"])
def test_a_file_holds_choices_and_probabilities(mild, tables, fitted, expected, name):
    out = tables.folder / name
    result = mild("route", fitted, tables.new, "--out", out, "--json").json()
    assert result["out"] == str(out)
    assert result["rows"] == 160
    assert sum(result["shares"].values()) == pytest.approx(1)
    text = out.read_text()
    if name.endswith(".csv"):
        rows = list(csv.DictReader(text.splitlines()))
    else:
        rows = [json.loads(line) for line in text.splitlines()]
    assert list(rows[0])[:4] == ["expert", *SHARES]
    assert [row["expert"] for row in rows] == expected[0]
    found = np.array([[float(row[name]) for name in SHARES] for row in rows])
    np.testing.assert_allclose(found, expected[1])


def test_parquet_is_routed_alike(mild, tables, fitted, expected):
    file = tables.write(make(160, 1)[1], "new.parquet")
    assert [line["expert"] for line in answers(mild("route", fitted, file))] == expected[0]


def test_an_existing_file_is_kept_unless_it_is_overwritten(mild, tables, fitted):
    out = tables.folder / "choices.csv"
    out.write_text("mine")
    done = mild("route", fitted, tables.new, "--out", out)
    assert done.code == 1
    assert "exists; choose another file" in done.err
    assert out.read_text() == "mine"
    assert mild("route", fitted, tables.new, "-o", out, "--overwrite").code == 0
    assert out.read_text().startswith('"expert"')


def test_rows_are_selected_by_their_values(mild, fitted, tables):
    assert len(answers(mild("route", fitted, tables.new, "--where", "id=q1?"))) == 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--echo"], "--echo is for queries, and this router was fitted on numbers"),
        (["--where", "id=none"], "no row has 'id=none'"),
    ],
)
def test_errors_are_one_sentence(mild, fitted, tables, words, said):
    done = mild("route", fitted, tables.new, *words)
    assert done.code == 1
    assert said in done.err


def test_a_table_without_the_features_is_refused(mild, fitted, tables):
    done = mild("route", fitted, tables.write({"f_0": [1.0]}, "short.csv"))
    assert done.code == 1
    assert "there must be a column 'f_1', which the router reads; found f_0" in done.err


def test_the_first_step_of_a_cascade_is_a_column(mild, tables):
    folder = cascade_router(text=False).save(tables.folder / "cascade")
    X, columns = make(20, 1)
    vectors = {"id": columns["id"], "embedding": list(map(json.dumps, X.tolist()))}
    done = mild("route", folder, tables.write(vectors, "vectors.csv"))
    assert {(line["expert"], *line["first_step"]) for line in answers(done)} == {
        ("small", "small", "medium")
    }
    assert done.err.count("first step") == 1


def test_columns_are_copied_and_options_of_queries_are_refused(mild, tables, fitted):
    out = tables.folder / "kept.csv"
    assert mild("route", fitted, tables.new, "--out", out, "--keep", "id").code == 0
    assert out.read_text(encoding="utf-8").split(",", 1)[0].strip('"') == "id"
    for words in (["--query", "q"], ["--skip-bad"], ["--engine", "ray"], ["--vectors", "v"]):
        done = mild("route", fitted, tables.new, "--out", tables.folder / "no.csv", *words)
        assert done.code == 1
        assert words[0] in done.err
        assert not (tables.folder / "no.csv").exists()
