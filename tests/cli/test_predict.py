"""``mild predict``: a choice for every row."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from cascade_cases import cascade_router
from mild.artifact import load
from mild.data import read_matrices

COLUMNS = ["expert", "name", "p__small", "p__medium", "p__large"]


@pytest.fixture
def expected(tables, fitted):
    router = load(fitted)
    X = read_matrices(tables.new).X
    return router.predict(X), router.predict_proba(X)


def test_csv_on_stdout_holds_choices_and_probabilities(mild, tables, fitted, expected):
    done = mild("predict", tables.new, "--router", fitted)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0]) == COLUMNS
    assert [int(row["expert"]) for row in rows] == expected[0].tolist()
    names = ["small", "medium", "large"]
    assert [row["name"] for row in rows] == [names[k] for k in expected[0]]
    found = np.array([[float(row[name]) for name in COLUMNS[2:]] for row in rows])
    np.testing.assert_allclose(found, expected[1])


def test_json_holds_the_choices_or_says_where_they_are(mild, tables, fitted, expected):
    result = mild("predict", tables.new, "--router", fitted, "--json").json()
    assert result["expert"] == expected[0].tolist()
    assert sum(result["shares"].values()) == pytest.approx(1)
    out = tables.folder / "choices.csv"
    result = mild("predict", tables.new, "--router", fitted, "--out", out, "--json").json()
    assert result["out"] == str(out)
    assert "expert" not in result


def test_costs_are_not_needed(mild, tables, fitted, expected):
    columns = {
        name: values
        for name, values in tables.make(160, 1).items()
        if not name.startswith("cost__")
    }
    result = mild("predict", tables.write(columns, "bare.csv"), "--router", fitted, "--json").json()
    assert result["expert"] == expected[0].tolist()


def test_a_file_that_exists_is_kept_unless_overwriting(mild, tables, fitted):
    out = tables.folder / "choices.csv"
    out.write_text("mine")
    done = mild("predict", tables.new, "--router", fitted, "--out", out)
    assert done.code == 1
    assert "exists; choose another file" in done.err
    assert out.read_text() == "mine"
    assert mild("predict", tables.new, "-r", fitted, "-o", out, "--overwrite").code == 0
    assert out.read_text().startswith('"expert"')


def test_the_help_speaks_of_features_only(mild):
    told = " ".join(mild("predict", "--help").out.split())
    assert "Table of outcomes" not in told
    assert "mild route" in told


def test_rows_are_selected_by_their_values(mild, fitted, tables):
    done = mild("predict", tables.new, "--router", fitted, "--where", "id=q1?", "--json")
    assert done.json()["rows"] == 10


def test_the_first_step_of_a_cascade_is_a_column(mild, tables):
    folder = cascade_router(text=False).save(tables.folder / "cascade")
    done = mild("predict", tables.new, "--router", folder)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {(row["name"], row["first_step"]) for row in rows} == {("small", '["small", "medium"]')}
    assert done.err.count("first step") == 1
    result = mild("predict", tables.new, "--router", folder, "--json").json()
    assert result["first_step"] == [["small", "medium"]] * len(rows)
