import json

import numpy as np
import pytest

from figure_cases import task_figures
from mild.artifact import Router, RouterInfo, fingerprint, load
from mild.artifact.info import DataInfo
from mild.data.cost_terms import CostTerms
from mild.errors import DataFileError
from mild.features import make_features
from mild.policies import ConstantPolicy
from mild.report import render
from mild.routers.baselines import ConstantRouter
from mild.tuning.fitting import fit_task
from mild.tuning.tasks import make_task
from report_cases import NAMES, cost_router, document_of, expect, larger_case, make_table
from text_router_cases import save_task

SCORES = [[1, 0, 1], [1, 0, 1], [1, 0, 0], [0, 1, 1], [0, 1, 1], [0, 1, 0]]


def plain(document):
    """As it comes back from a file; refuses NaN."""
    return json.loads(json.dumps(document, allow_nan=False))


def test_the_figures_by_hand():
    table = make_table(SCORES)
    document = document_of(cost_router(), table, table.costs(), expect([0, 0, 0, 1, 1, 2]))
    assert document["rows"] == 6
    assert document["experts"] == NAMES
    assert document["figures"]["loss"] == pytest.approx(1 / 6)
    assert document["figures"]["shares"] == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert document["figures"]["recall"] == [1, pytest.approx(2 / 3), None]
    assert document["verdict"]["constant"] == "strong"
    assert document["verdict"]["estimate"] == pytest.approx(1 / 6 - 1 / 3)
    assert [row["row"] for row in document["regrets"]["rows"]] == [5]


def test_it_is_json_and_renders_the_same_after_a_file():
    table, costs, X = larger_case()
    document = document_of(cost_router(), table, costs, X)
    assert render(plain(document)) == render(document)


def test_the_verdict_is_that_of_mild_evaluate():
    table, _, X = larger_case(200)
    task = make_task(table, CostTerms(price_weight=5.0))
    document = document_of(cost_router(), table, task.costs, X, terms=task.terms)
    evaluated = task_figures(task, cost_router().predict(X)).as_dict()
    for key, value in evaluated["verdict"].items():
        assert document["verdict"][key] == (pytest.approx(value) if key != "sentence" else value)
    for key, value in evaluated["summary"].items():
        assert document["figures"][key] == pytest.approx(value)


def test_a_router_that_knows_more_is_said_to_pay_and_a_blind_one_is_not():
    good = document_of(cost_router(), *larger_case())
    assert good["verdict"]["pays"] is True
    assert {row["name"] for row in good["groups"]["rows"]} == {"algebra", "law", "poetry"}
    blind = document_of(cost_router(), *larger_case(gain=False))
    assert blind["verdict"]["pays"] is not True


def test_a_partial_table_has_a_report():
    rng = np.random.default_rng(0)
    table, _, X = larger_case(150)
    scores = np.where(rng.random((150, 3)) < 0.3, np.nan, table.scores)
    scores[np.isnan(scores).all(axis=1), 0] = 1
    holes = make_table([[None if np.isnan(v) else v for v in row] for row in scores], prices=None)
    document = plain(document_of(cost_router(), holes, holes.costs(), X))
    asked = int((~np.isnan(holes.scores)).all(axis=1).sum())
    assert (
        document["rows"] == document["figures"]["n_known"] == document["verdict"]["rows"] == asked
    )
    said = f"{150 - asked} of 150 rows are left out because not every expert was asked."
    assert document["left_out"] == said
    assert said in render(document)
    # Router, constants and oracle are means over the same rows, so none is better than the oracle.
    oracle = document["figures"]["means"]["oracle"]["quality"]
    assert all(point["quality"] <= oracle for point in document["frontier"]["points"])


def test_costs_alone_have_a_report():
    X = expect([0, 1, 2, 0])
    costs = [[0, 1, 2], [3, 1, 2], [1, 1, 0], [5, 0, 1]]
    document = plain(document_of(cost_router(), None, costs, X))
    assert document["frontier"]["axis"] is None
    assert document["groups"] is None
    assert document["regrets"]["rows"][0]["text"] == ""
    assert "row 4" in render(document), "counted from 1"


def test_one_expert_and_one_row_have_a_report():
    router = Router(ConstantPolicy(np.array([0.5]), 2), ["only"])
    document = plain(document_of(router, None, [[0.25]], [[1.0, 2.0]]))
    assert document["verdict"]["pays"] is None
    assert "It is not clear" in render(document)


def test_experts_that_are_all_right_have_a_report():
    table = make_table([[1, 1, 1]] * 30, prices=None)
    document = plain(document_of(cost_router(), table, table.costs(), expect([0] * 30)))
    assert document["calibration"] is None
    assert document["verdict"]["pays"] is False
    assert "<h1>Routing does not pay</h1>" in render(document)


def test_a_column_that_is_not_there_is_refused():
    table, costs, X = larger_case(60)
    with pytest.raises(DataFileError, match="no column 'nowhere'"):
        document_of(cost_router(), table, costs, X, group="nowhere")


def test_any_column_may_make_the_groups():
    table, costs, X = larger_case(90)
    grouped = make_table(table.scores.tolist(), tone=["kind", "curt", None] * 30)
    document = document_of(cost_router(), grouped, costs, X, group="tone")
    assert {row["name"] for row in document["groups"]["rows"]} == {"kind", "curt", "unknown"}


def test_texts_go_through_the_routers_own_features(tmp_path):
    table, _, _ = larger_case(80)
    task = make_task(table, CostTerms())
    fitted = fit_task(task, ConstantRouter(), make_features("hashing"))
    router = load(save_task(fitted, task, str(tmp_path / "router")))
    fresh = make_table([[1, 0, 0], [0, 1, 1]], prompt=["new one", "question number 3"])
    document = document_of(router, fresh, fresh.costs(), router.features(fresh.queries))
    assert document["same_data_as_fit"] is False
    assert document["seen_in_fit"] == {"queries": 1, "checked": 2}
    assert "1 of 2 queries were in the training data, too" in render(document)
    again = document_of(router, table, task.costs, router.features(table.queries))
    assert again["same_data_as_fit"] is True
    assert "fitted on these rows" in render(again)


def test_numbers_that_it_was_fitted_on_are_recognised():
    X, costs = expect([0, 1, 2, 0]), np.eye(3)[[0, 1, 2, 0]]
    info = RouterInfo(data=DataInfo(fingerprint(X, costs), 4))
    assert document_of(cost_router(info=info), None, costs, X)["same_data_as_fit"]
    assert not document_of(cost_router(info=info), None, costs + 1, X)["same_data_as_fit"]
