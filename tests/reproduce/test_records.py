"""A record that breaks a rule is told which one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from mild.reproduce.records import record_problem
from result_cases import THEORY, make_record


def changed(path: str, value: Any) -> dict[str, Any]:
    record = copy.deepcopy(make_record(THEORY, losses={"argmax": 0.5, "stationary": 0.06}))
    *outer, last = path.split(".")
    entry = record
    for name in outer:
        entry = entry[name]
    entry[last] = value
    return record


def test_a_good_record_has_no_problem() -> None:
    assert record_problem(make_record()) is None
    assert (
        record_problem(make_record(THEORY, losses={"stationary": 0.0}, margins=[1, 2, 3])) is None
    )


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("schema", 2, "must have the number 1 as schema; got 2"),
        ("schema", True, "must have the number 1 as schema; got True"),
        (
            "cell.expert_protocol",
            {"name": "fast"},
            "must have a whole number of at least 0 as cell.expert_protocol.epochs; it is missing",
        ),
        ("cell.expert_protocol", 3, "must have an object or null as cell.expert_protocol; got 3"),
        (
            "cell.method.margins",
            7,
            "must have a text, a list of numbers or null as cell.method.margins; got 7",
        ),
        (
            "cell.method.margins",
            ["1"],
            "must have a text, a list of numbers or null as cell.method.margins; got ['1']",
        ),
        (
            "cell.protocol.batch_size",
            "1024",
            "must have a whole number of at least 0 as cell.protocol.batch_size; got '1024'",
        ),
        (
            "cell.protocol.lr",
            None,
            "must have a finite number of at least 0 as cell.protocol.lr; got None",
        ),
        (
            "margins",
            [1.0, 2.0],
            "must have as many shares, recalls and margins everywhere; got [2, 3]",
        ),
        ("cell.cost", "price", "must have 'error' or 'cost' as cell.cost; got 'price'"),
        ("cell.seed", 1.5, "must have a whole number of at least 0 as cell.seed; got 1.5"),
        ("cell.seed", True, "must have a whole number of at least 0 as cell.seed; got True"),
        ("cell.protocol.augment", 1, "must have true or false as cell.protocol.augment; got 1"),
        (
            "outcomes.argmax.loss",
            float("nan"),
            "must have a finite number of at least 0 as outcomes.argmax.loss; got nan",
        ),
        (
            "outcomes.argmax.loss",
            -0.1,
            "must have a finite number of at least 0 as outcomes.argmax.loss; got -0.1",
        ),
        (
            "outcomes.stationary.shares",
            [0.7, 0.2, 0.2],
            "must have a list of shares that sum to 1 as outcomes.stationary.shares; "
            "got [0.7, 0.2, 0.2]",
        ),
        (
            "outcomes.stationary.shares",
            [1.2, -0.2, 0.0],
            "must have a list of shares that sum to 1 as outcomes.stationary.shares; "
            "got [1.2, -0.2, 0.0]",
        ),
        (
            "outcomes.argmax.recall",
            [0.5, 1.5, None],
            "must have a list of numbers from 0 to 1 or null as outcomes.argmax.recall; "
            "got [0.5, 1.5, None]",
        ),
        ("outcomes", {}, "must have outcomes by argmax or stationary; got []"),
        ("outcomes", {"best": {}}, "must have outcomes by argmax or stationary; got ['best']"),
        ("outcomes.argmax", 3, "must have outcomes.argmax an object; got 3"),
        (
            "outcomes.argmax.shares",
            [0.5, 0.5],
            "must have as many shares, recalls and margins everywhere; got [2, 3]",
        ),
        ("reference.constant_expert", 3, "must have reference.constant_expert from 0 to 2; got 3"),
        ("finished", "yesterday", "must have a moment in ISO format as finished; got 'yesterday'"),
        ("finished", None, "must have a moment in ISO format as finished; got None"),
        ("margins", [1, "2"], "must have a list of numbers or null as margins; got [1, '2']"),
        ("cell", [], "must have an object as cell; got []"),
    ],
)
def test_the_first_broken_rule_is_named_with_what_was_got(path, value, problem) -> None:
    assert record_problem(changed(path, value)) == problem


@pytest.mark.parametrize("name", sorted(set(make_record()) - {"chosen"}))
def test_a_missing_field_is_named(name: str) -> None:
    record = make_record()
    del record[name]
    assert record_problem(record).endswith(f"as {name}; it is missing")


def test_tdef_without_argmax_is_refused() -> None:
    record = make_record(losses={"stationary": 0.05})
    assert record_problem(record) == "must have the outcome by argmax for TDEF; it is missing"


def test_what_is_no_object_is_refused_and_long_values_are_cut() -> None:
    assert record_problem([1]) == "must be a JSON object; got [1]"
    assert len(record_problem("x" * 1000)) < 100


def test_an_integer_beyond_every_float_is_no_loss() -> None:
    problem = record_problem(changed("outcomes.argmax.loss", 10**400))
    assert problem is not None
    assert problem.startswith("must have a finite number of at least 0 as outcomes.argmax.loss")
