import json

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.costs import cheapest
from mild.exceptions import DataFileError
from mild.margins import MarginGrid
from mild.reproduce import tuning
from mild.reproduce.data import load_images
from mild.reproduce.experts import get_setup, synthetic_answers
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.methods import Method
from mild.reproduce.objective import training_margins
from mild.reproduce.routing import routing_problem
from mild.reproduce.tuning import TuningFile, found_method, held_out_rows, tune

CELL = {"table": "table1", "dataset": "digits", "seed": 0, "method": {"name": "mild"}}


@pytest.fixture
def problem(tmp_path):
    data = load_images("digits")
    answers = synthetic_answers(data, get_setup("I"), 0)
    return routing_problem(data, answers, "error", PROTOCOLS["fast"], "cpu", tmp_path / "ck")


def small_grid(center):
    near = tuple(float(value) for value in center)
    far = tuple(float(value) + 1 for value in center)
    return MarginGrid((near, far, (far[0], *near[1:])), dropped=7)


def run(method, problem, folder, said=None):
    file = TuningFile(folder, CELL)
    return tune(method, lambda: problem, file, (said if said is not None else []).append)


def test_held_out_rows_are_a_stratified_tenth(costs):
    rest, held = held_out_rows(costs)
    assert len(held) == 20
    np.testing.assert_array_equal(np.sort(np.concatenate([rest, held])), np.arange(200))
    whole, part = (np.bincount(cheapest(c), minlength=3) for c in (costs, costs[held]))
    assert (np.abs(part - whole / 10) <= 1).all()
    np.testing.assert_array_equal(held_out_rows(costs)[1], held)


def test_tuned_margins_are_searched_once_and_remembered(problem, trainings, tmp_path):
    method = Method.parse("tuned")
    found = run(method, problem, tmp_path)
    assert [entry["rows"] for entry in trainings] == [len(problem.costs) - 90]
    assert sum(found["margins"]) == pytest.approx(3)
    assert found["tried"] == 27
    assert len(found["candidates"]) == 5
    assert "seed 0 and used for all seeds" in found["how"]
    assert run(method, problem, tmp_path) == found
    assert len(trainings) == 1


def test_other_seeds_and_tables_share_a_search_and_other_methods_do_not(tmp_path):
    first = TuningFile(tmp_path, CELL)
    assert TuningFile(tmp_path, {**CELL, "seed": 3, "table": "readings"}).path == first.path
    assert TuningFile(tmp_path, {**CELL, "method": {"name": "ce"}}).path != first.path
    assert TuningFile(tmp_path, {**CELL, "dataset": "svhn"}).path != first.path


def test_another_recipe_or_other_settings_of_the_heads_are_another_search(tmp_path, monkeypatch):
    first = TuningFile(tmp_path, CELL)
    monkeypatch.setattr(tuning, "RECIPE", tuning.RECIPE + 1)
    second = TuningFile(tmp_path, CELL)
    for name in ("folds", "alphas", "factors", "limit", "tol"):
        assert name in tuning.SETTINGS
        monkeypatch.setitem(tuning.SETTINGS, name, 0)
    assert len({first.path, second.path, TuningFile(tmp_path, CELL).path}) == 3


def test_a_known_search_does_not_even_make_its_problem(problem, trainings, tmp_path):
    run(Method.parse("tuned"), problem, tmp_path)

    def never():
        raise AssertionError

    tune(Method.parse("tuned"), never, TuningFile(tmp_path, CELL), lambda said: None)


def test_tuned_margins_are_scaled_to_the_methods_sum(problem, trainings, tmp_path):
    found = run(Method.parse("tuned:total=1"), problem, tmp_path)
    assert sum(found["margins"]) == pytest.approx(1)


def test_any_rewards_are_chosen_too(problem, trainings, tmp_path):
    found = run(Method.parse("tuned:rewards=any"), problem, tmp_path)
    assert found["tried"] == 3 * 27
    method = found_method(Method.parse("tuned:rewards=any"), found)
    assert method.rewards == found["rewards"] in ("others", "complement", "contrast")
    assert method.margins == tuple(found["margins"])


def test_the_grid_trains_one_network_per_point_and_takes_the_best(
    problem, trainings, tmp_path, monkeypatch
):
    monkeypatch.setattr(tuning, "paper_grid", small_grid)
    said = []
    found = run(Method.parse("grid"), problem, tmp_path, said)
    center = training_margins(Method.parse("mild"), problem.costs, 1.0)
    assert found["center"] == list(center)
    assert [entry["margins"] for entry in trainings] == [
        list(m) for m in small_grid(center).margins
    ]
    kept = json.loads(TuningFile(tmp_path, CELL).path.read_text())
    losses = [point["loss"] for point in kept["points"]]
    best = kept["points"][int(np.argmin(losses))]
    assert (found["margins"], found["loss"]) == (best["margins"], min(losses))
    assert (found["points"], found["dropped"]) == (3, 7)
    assert "grid point 1 of 3 (7 more are not positive)" in said


def test_a_kill_loses_one_grid_point_at_most(problem, trainings, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "paper_grid", small_grid)
    unbroken = run(Method.parse("grid"), problem, tmp_path / "unbroken")
    trainings.clear()
    trainings.fail_at = 2
    with pytest.raises(KeyboardInterrupt):
        run(Method.parse("grid"), problem, tmp_path / "broken")
    assert len(trainings) == 2
    found = run(Method.parse("grid"), problem, tmp_path / "broken")
    assert len(trainings) == 3
    same = ("margins", "loss", "points", "losses", "center")
    assert {name: found[name] for name in same} == {name: unbroken[name] for name in same}


def test_of_equal_grid_points_the_nearest_to_the_theory_is_taken(
    problem, trainings, tmp_path, monkeypatch
):
    monkeypatch.setattr(tuning, "paper_grid", small_grid)
    monkeypatch.setattr(tuning, "deferral_loss", lambda costs, chosen: 0.5)
    found = run(Method.parse("grid"), problem, tmp_path)
    assert found["margins"] == found["center"]


def test_a_damaged_file_is_named_with_a_remedy(tmp_path):
    file = TuningFile(tmp_path, CELL)
    file.write(None, [])
    for text in ("{", "[]", json.dumps({"schema": 99, "key": file.key})):
        file.path.write_text(text)
        with pytest.raises(DataFileError, match="Delete it, and the search is run again"):
            file.read()


def test_methods_without_a_search_are_left_alone():
    assert found_method(Method("tdef"), None) == Method("tdef")


@pytest.mark.parametrize(
    "found", [{}, {"margins": 3, "rewards": "others"}, {"margins": [1.0, 2.0]}, 7]
)
def test_a_file_without_what_a_search_finds_is_refused_in_one_sentence(tmp_path, found):
    file = TuningFile(tmp_path, {"seed": 0})
    file.write(found, [])
    with pytest.raises(DataFileError, match="must hold what a search found"):
        file.read()
