"""``--balance``: the values of a column count alike, in fits, figures and verdicts."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as parquet
import pytest

from mild.artifact import load
from mild.data import read_outcomes
from outcome_cases import EXPERTS, make_columns, write_outcomes

QUICK = ["--families", "linear", "--cv", 3, "--alphas", "0.01", "--margin-factors", "1"]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """150 rows, a tenth of a source in which the poet is right; in the others it is mostly the adder."""
    columns = make_columns(150)
    rare = np.arange(150) % 10 == 0
    columns["origin"] = np.where(rare, "rare", "usual")
    columns["correct__adder"] |= np.arange(150) % 3 == 0
    for name in EXPERTS:
        columns[f"correct__{name}"] = np.where(rare, name == "poet", columns[f"correct__{name}"])
    return write_outcomes(columns, tmp_path_factory.mktemp("balance") / "t.parquet")


@pytest.fixture(scope="module")
def errors(table):
    return 1 - read_outcomes(table).scores


@pytest.fixture(scope="module")
def rare(table):
    return np.array(parquet.read_table(table)["origin"].to_pylist()) == "rare"


def over_values(values, rare):
    return pytest.approx((values[rare].mean() + values[~rare].mean()) / 2)


def test_tune_reports_means_over_values_and_trains_by_them(mild, table, tmp_path, errors, rare):
    plain = mild("tune", table, "--out", tmp_path / "p", *QUICK, "--json").json()
    words = [*QUICK, "--balance", "origin", "--json"]
    found = mild("tune", table, "--out", tmp_path / "b", *words).json()
    assert (plain["balance"], found["balance"]) == (None, "origin")
    constants = [one["verdict"]["constant"] for one in (plain, found)]
    assert constants == ["adder", "poet"]
    assert found["verdict"]["constant_cost"] == over_values(errors[:, 1], rare)
    routers = load(tmp_path / "p"), load(tmp_path / "b")
    queries = read_outcomes(table).queries
    shares = [np.mean(np.array(router.predict_texts(queries)) == 1) for router in routers]
    assert shares[1] > shares[0]
    notes = [router.info.notes for router in routers]
    assert [note.get("balance") for note in notes] == [None, "origin"]
    assert [note["constant"] for note in notes] == constants
    # Nothing is added to a router without the option.
    assert "balance" not in notes[0]
    assert not {"balance", "strata"} & set(routers[0].info.estimator.params)


def test_fit_and_evaluate_report_means_over_values(mild, table, tmp_path, errors, rare):
    out = tmp_path / "r"
    fitted = mild("fit", table, "--out", out, "--balance", "origin", "--json").json()
    words = ["evaluate", table, "--router", out, "--balance", "origin"]
    found = mild(*words, "--json").json()
    assert found["balance"] == fitted["balance"] == "origin"
    chosen = np.array(load(out).predict_texts(read_outcomes(table).queries))
    loss = over_values(errors[np.arange(150), chosen], rare)
    assert found["summary"]["loss"] == loss
    assert fitted["training"]["summary"]["loss"] == loss
    assert "mean over the values of origin" in mild(*words).out
    assert found["constant_losses"][1] == over_values(errors[:, 1], rare)
    assert mild(*words, "--save").code == 0
    document = json.loads((out / "evaluation.json").read_text())
    assert document["figures"]["means"]["router"]["cost"] == loss
    assert document["verdict"]["estimate"] == found["verdict"]["estimate"]
    assert ["means", "over the values of origin"] in document["settings"]
    (router,) = [point for point in document["frontier"]["points"] if point["kind"] == "router"]
    assert router["cost"] == loss


def test_compare_reports_means_over_values(mild, table, tmp_path):
    words = ["compare", table, "--splits", 2, "--cv", 2, "--method", "regression", "--jobs", 1]
    found = mild(*words, "--balance", "origin", "--json").json()
    plain = mild(*words, "--json").json()
    assert (found["balance"], plain["balance"]) == ("origin", None)
    shares = [one["methods"][0]["shares"] for one in (found, plain)]
    assert [EXPERTS[int(np.argmax(share))] for share in shares] == ["poet", "adder"]
    shown = mild(*words, "--balance", "origin", "--out", tmp_path / "results.json")
    assert "mean over the values of origin" in shown.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--balance", "topic"], "there must be a column 'topic'"),
        (["--balance", "day", "--where", "day=3"], "at least two different values"),
        (["--balance", "origin", "--keep-quality", "0.9"], "--balance must not be given with a target"),
    ],
)  # fmt: skip
def test_what_cannot_be_balanced_is_refused(mild, table, tmp_path, words, said):
    done = mild("tune", table, "--out", tmp_path / "r", *words)
    assert done.code == 1
    assert said in done.err
    assert not (tmp_path / "r").exists()


def test_tables_of_numbers_and_shards_have_no_values_to_balance(mild, tables, table, tmp_path):
    done = mild("tune", tables.log, "--out", tmp_path / "r", "--balance", "id")
    assert "--balance is for tables of outcomes" in done.err
    shards = mild("fit", table, "--stream", "--out", tmp_path / "r", "--balance", "origin")
    assert "--balance is for tables that fit into memory" in shards.err
    assert (done.code, shards.code) == (1, 1)
