"""Cascades are judged by the answers of a table."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import mild
from answer_table_cases import NAMES, PRICES, answer_table, fitted_cascade
from mild.artifact import Router
from mild.data import Outcomes
from mild.errors import InvalidInputError
from mild.evaluation.evaluate import Evaluation
from mild.report.page import render
from mix_cases import mixed_cascades


@pytest.fixture(scope="module")
def router() -> Router:
    found = fitted_cascade(answer_table(400))
    assert found.policy.steps == [[0, 1], [2]]
    return found


@pytest.fixture(scope="module")
def test_table() -> Outcomes:
    return answer_table(300, 1)


@pytest.fixture(scope="module")
def judged(router: Router, test_table: Outcomes) -> Evaluation:
    return mild.evaluate(router, test_table)


@pytest.fixture(scope="module")
def agreed(test_table: Outcomes) -> np.ndarray:
    codes = test_table.answers.codes
    return codes[:, 0] == codes[:, 1]


def test_every_call_is_paid_for(
    judged: Evaluation, test_table: Outcomes, agreed: np.ndarray
) -> None:
    scores = np.where(agreed, test_table.scores[:, 0], test_table.scores[:, 2])
    paid = np.where(agreed, 0.002, 0.022)
    own = judged.figures.baselines[0]
    assert_allclose(own["accuracy"], scores.mean())
    assert_allclose(own["dollars_per_1000"], 1000 * paid.mean())
    assert_allclose(own["seconds"], np.where(agreed, 0.4, 2.4).mean())
    assert_allclose(own["loss"], (1 - scores + 5 * paid).mean())
    summary = judged.figures.summary
    assert_allclose(summary["loss"], own["loss"])
    assert summary["constant_expert"] == NAMES.index("strong")
    gain = summary["constant_loss"] - summary["loss"]
    assert_allclose(summary["headroom_captured"], gain / summary["headroom"])
    assert_allclose(judged.figures.router_price, own["dollars_per_1000"])
    assert_allclose(judged.figures.prices, [1000 * PRICES[name] for name in NAMES])


def test_it_is_compared_with_the_best_constant_and_with_the_router_without_answers(
    judged: Evaluation, router: Router, test_table: Outcomes
) -> None:
    lines = {line["key"]: line for line in judged.figures.baselines}
    assert list(lines) == ["router", "direct", "best_single", "fit_constant", "same_mix", "perfect"]
    direct = mild.evaluate(replace(router, policy=router.policy.direct), test_table)
    assert_allclose(lines["direct"]["loss"], direct.figures.baselines[0]["loss"])
    assert_allclose(lines["perfect"]["loss"], direct.figures.baselines[-1]["loss"])
    cascade = judged.figures.cascade
    assert cascade is not None
    assert_allclose(
        cascade["direct"]["estimate"], lines["router"]["loss"] - lines["direct"]["loss"]
    )
    assert judged.verdict.constant == "strong"
    assert_allclose(judged.verdict.estimate, lines["router"]["loss"] - lines["best_single"]["loss"])
    first, second = judged.sentences
    assert first.startswith("Routing pays: the mean loss of the cascade is ")
    assert second.startswith("The cascade pays: the mean loss of the cascade is ")
    assert "lower than that of the router without answers (" in second
    assert repr(judged).count("\n") == 2


def test_the_steps_say_where_rows_end(
    judged: Evaluation, test_table: Outcomes, agreed: np.ndarray
) -> None:
    found = json.loads(json.dumps(judged.as_dict()))["cascade"]
    first, last = found["steps"]
    assert first["experts"] == ["little", "other"]
    assert (first["rows"], last["rows"]) == (agreed.sum(), (~agreed).sum())
    assert_allclose(first["accuracy"], test_table.scores[agreed, 0].mean())
    assert_allclose(last["accuracy"], test_table.scores[~agreed, 2].mean())
    assert_allclose([first["dollars_per_1000"], last["dollars_per_1000"]], [2, 22])
    assert first["estimated"] > 0.95
    assert last["estimated"] is None
    ended = (~agreed).mean()
    assert_allclose(found["asked"], [1, 1, ended])
    assert_allclose(judged.figures.summary["shares"], [1 - ended, 0, ended])
    assert_allclose(found["calls"], 2 + ended)
    assert found["direct"]["headline"] == "The cascade pays"


def test_the_steps_of_two_cascades_are_numbered_apart(test_table: Outcomes) -> None:
    router = mixed_cascades()
    document = json.loads(json.dumps(mild.evaluate(router, test_table).document()))
    names = [step["name"] for step in document["cascade"]["steps"]]
    n_first = len(router.cascades[0].steps)
    assert names[0].startswith("first cascade, step 1: ")
    assert names[n_first - 1].startswith(f"first cascade, step {n_first}: ")
    assert names[n_first:] == ["second cascade, step 1: strong"]
    page = render(document)
    assert all(name in page for name in names)


def test_rows_with_an_unknown_outcome_of_an_expert_are_left_out(
    router: Router, test_table: Outcomes
) -> None:
    scores = test_table.scores.copy()
    scores[:20, 2] = np.nan
    found = mild.evaluate(router, replace(test_table, scores=scores))
    assert found.figures.summary["n_known"] == 280
    assert sum(step["rows"] for step in found.figures.cascade["steps"]) == 280


def test_a_table_without_answers_is_refused_with_the_remedy(router: Router) -> None:
    with pytest.raises(
        InvalidInputError, match=r"'little', 'other', 'strong'\. .*answer__<expert>"
    ):
        mild.evaluate(router, answer_table(50, answers=False))
    table = answer_table(50)
    names = [name for name in table.columns.column_names if name != "answer__other"]
    with pytest.raises(InvalidInputError, match="there are none of 'other'") as error:
        mild.evaluate(router, replace(table, columns=table.columns.select(names)))
    assert error.value.code == "invalid_data"


def test_answers_are_compared_as_the_cascade_was_fitted(
    router: Router, test_table: Outcomes, judged: Evaluation
) -> None:
    other = mild.evaluate(router, replace(test_table, answer_kind="free_text"))
    assert other.figures.cascade["steps"] == judged.figures.cascade["steps"]


def test_the_report_shows_the_steps(judged: Evaluation) -> None:
    document = json.loads(json.dumps(judged.document(queries=3)))
    page = render(document)
    assert "Steps of the cascade" in page
    assert "1. little + other" in page
    assert "not judged" in page
    assert "gave the answer of" in page
    assert "router without answers" in page
    points = {point["name"]: point for point in document["frontier"]["points"]}
    assert_allclose(points["router"]["dollars"], judged.figures.router_price)
    assert_allclose(points["strong"]["shares"], [0, 0, 1])
    assert points["router without answers"]["kind"] == "operating"
    assert document["calibration"] is None
    assert 'id="steps"' not in render({**document, "cascade": None})
