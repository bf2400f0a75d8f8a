import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.reproduce.data import load_images
from mild.reproduce.experts import get_setup, synthetic_answers
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.methods import Method
from mild.reproduce.routing import forget_checkpoint, routing_problem


@pytest.fixture
def scenario():
    data = load_images("digits")
    return data, synthetic_answers(data, get_setup("I"), 0)


def test_costs_of_the_second_type_add_the_prices(scenario):
    data, answers = scenario
    plain = routing_problem(data, answers, "error", PROTOCOLS["fast"], "cpu")
    priced = routing_problem(data, answers, "cost", PROTOCOLS["fast"], "cpu")
    np.testing.assert_allclose(
        priced.test_costs - plain.test_costs, [[0.7, 0.2, 0.1]] * 899, rtol=1e-5
    )
    assert (plain.largest, priced.largest) == (1.0, 1.7)
    assert plain.costs.dtype == np.float32


def test_a_router_trains_on_its_own_rows_alone(scenario, trainings):
    data, answers = scenario
    rows = np.arange(5, 400)
    half = dataclasses.replace(answers, router_rows=rows)
    problem = routing_problem(data, half, "error", PROTOCOLS["fast"], "cpu")
    np.testing.assert_array_equal(problem.images, data.train_images[rows])
    wrong = answers.train[rows] != data.train_labels[rows, None]
    np.testing.assert_array_equal(problem.costs, wrong)
    problem.train(Method("tdef"), 0, "key")
    assert trainings[0]["rows"] == len(rows)


def test_margins_of_a_part_are_those_of_its_rows(scenario, trainings):
    problem = routing_problem(*scenario, "error", PROTOCOLS["fast"], "cpu")
    minority = np.flatnonzero(problem.costs[:, 0] == 1)
    _, whole = problem.train(Method.parse("mild:counts=best"), 0, "a")
    _, part = problem.train(Method.parse("mild:counts=best"), 0, "b", rows=minority)
    assert part.margins[0] < whole.margins[0]


def test_a_checkpoint_is_named_by_its_key_and_forgotten_on_demand(scenario, trainings, tmp_path):
    problem = routing_problem(*scenario, "error", PROTOCOLS["fast"], "cpu", tmp_path)
    problem.train(Method("tdef"), 0, "some-key")
    path = trainings[0]["checkpoint"]
    assert path == tmp_path / "some-key.safetensors"
    path.write_bytes(b"")
    problem.forget("some-key")
    assert not path.exists()
    problem.forget("some-key")
    forget_checkpoint(None, "some-key")


def test_epochs_are_told(scenario, trainings):
    problem = routing_problem(*scenario, "error", PROTOCOLS["fast"], "cpu")
    said = []
    problem.train(Method("ce"), 0, "key", tell=said.append)
    assert said == ["epoch 16 of 16, loss 0.1"]
