"""A comparison has a row for a cascade where the table has answers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import mild
from answer_table_cases import NAMES, answer_columns, answer_table
from mild.data import Outcomes
from mild.data.splits import Split
from mild.errors import InvalidInputError
from mild.evaluation import comparison
from mild.evaluation.comparison import Comparison
from mild.features import HashingFeatures

OPTIONS = {
    "n_splits": 2,
    "price_weight": 5.0,
    "text": HashingFeatures(n_components=16),
    "n_jobs": 1,
}


@pytest.fixture(scope="module")
def found() -> Comparison:
    return mild.compare(answer_table(400), methods="cascade,ce", **OPTIONS)


def test_what_a_cascade_pays_is_counted(found: Comparison) -> None:
    assert [row.key for row in found.rows] == ["constant", "ce", "cascade"]
    row = found.row("cascade")
    assert [one["steps"] for one in row.search_params] == [[["little", "other"], ["strong"]]] * 2
    assert row.asked is not None
    assert_allclose(row.asked[:2], 1)
    share = row.asked[2]
    assert_allclose(row.price, 0.002 + 0.02 * share)
    assert_allclose(row.latency, 0.4 + 2 * share)
    assert_allclose(row.mean, 1 - row.accuracy + 5 * row.price)
    assert_allclose(row.shares, [1 - share, 0, share])
    assert row.difference[0] < -0.05
    assert not row.identical
    # The constant and the oracle are single experts.
    assert found.verdict.constant == "strong"
    assert found.chosen == "cascade"
    perfect = mild.compare(answer_table(400, answers=False), methods="ce", **OPTIONS)
    assert_allclose(found.oracle, perfect.oracle)
    assert_allclose(found.row("ce").mean, perfect.row("ce").mean)
    lines = {line["key"]: line for line in found.baselines}
    assert_allclose(lines["router"]["loss"], row.mean)
    assert_allclose(lines["perfect"]["loss"], perfect.oracle)


def test_workers_find_the_same(found: Comparison) -> None:
    again = mild.compare(answer_table(400), methods="cascade", **OPTIONS | {"n_jobs": 2})
    assert_allclose(again.row("cascade").costs, found.row("cascade").costs)


def test_betas_of_all_asked_experts_add_up() -> None:
    beta = {"little": 0.01, "other": 0.02, "strong": 0.2}
    options = {**OPTIONS, "price_weight": None, "beta": beta}
    row = mild.compare(answer_table(400), methods="cascade", **options).row("cascade")
    asking = row.asked @ [beta[name] for name in NAMES]
    assert_allclose(row.mean, 1 - row.accuracy + asking)


def test_at_most_so_many_calls(monkeypatch) -> None:
    monkeypatch.setattr(comparison, "MAX_CALLS", 1)
    row = mild.compare(answer_table(400), methods="cascade", **OPTIONS).row("cascade")
    assert_allclose(row.asked.sum(), 1)
    assert row.identical


def test_rows_in_which_an_expert_was_not_asked_are_not_compared() -> None:
    columns = answer_columns(400)
    columns["correct__strong"][:60] = [None] * 60
    found = mild.compare(mild.read_outcomes(pa.table(columns)), methods="cascade", **OPTIONS)
    assert found.not_compared is not None
    assert np.isfinite(found.row("cascade").costs).all()


def test_without_answers_there_is_no_row_and_naming_it_is_refused() -> None:
    table = answer_table(60, answers=False)
    with pytest.raises(
        InvalidInputError, match="cascade needs the answers of at least two experts"
    ) as error:
        mild.compare(table, methods=["cascade"], **OPTIONS)
    assert error.value.code == "invalid_cascade"
    numbers = Outcomes.from_arrays(np.eye(60), 1 - table.scores)
    with pytest.raises(InvalidInputError, match="methods needs a table with scores"):
        mild.compare(numbers, methods=["cascade"], n_splits=2)


@pytest.mark.parametrize("kind", ["no answers", "never agree", "one expert", "one answer"])
def test_all_methods_are_those_that_the_table_allows(kind: str, monkeypatch) -> None:
    kept = [method for method in comparison.METHODS if method.key in ("constant", "ce", "cascade")]
    monkeypatch.setattr(comparison, "METHODS", tuple(kept))
    columns = answer_columns(60)
    if kind == "one expert":
        columns = {
            name: cells for name, cells in columns.items() if name.split("__")[-1] not in NAMES[1:]
        }
    for k, name in enumerate(NAMES if kind != "one expert" else ()):
        changed: list[object] = [None] * 60
        if kind == "never agree":
            changed = [str(1000 * k + i) for i in range(60)]
        elif kind == "one answer":
            changed[0] = "5"
        columns[f"answer__{name}"] = changed
    table = mild.read_outcomes(pa.table(columns))
    if kind == "one answer":
        # It is in a test row: nothing can be learned from it.
        answered = np.flatnonzero(table.answers.codes.max(axis=1) >= 0)
        test_rows = np.union1d(answered, np.arange(20))
        split = Split(np.setdiff1d(np.arange(len(table)), test_rows), test_rows)
        monkeypatch.setattr(comparison, "task_splits", lambda *_: [split])
    found = mild.compare(table, **OPTIONS)
    assert [row.key for row in found.rows] == ["constant", "ce"]


def test_all_methods_have_the_cascade_where_there_are_answers(monkeypatch) -> None:
    kept = [method for method in comparison.METHODS if method.key in ("constant", "cascade")]
    monkeypatch.setattr(comparison, "METHODS", tuple(kept))
    found = mild.compare(answer_table(60), **OPTIONS)
    assert [row.key for row in found.rows] == ["constant", "cascade"]
