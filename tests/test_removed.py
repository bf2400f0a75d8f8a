"""What was removed says what to use instead, and the migration page lists the same."""

from __future__ import annotations

import functools
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

import mild
import mild.artifact
import mild.data
import mild.errors
import mild.features
import mild.metrics
import mild.routers
from command_runner import invoke_mild
from mild.errors import InvalidInputError, OptionError, RemovedNameError, check_arguments
from mild.removed import REMOVED, Removed, removal_message

MIGRATION = Path(__file__).parents[1] / "docs" / "development" / "migration.md"
HOMES = (mild, mild.routers, mild.data, mild.metrics, mild.features, mild.artifact)

#: Parameter -> what reads its values.
VALUE_USERS = {
    "families": lambda value: mild.RouterCV(families=value).fit(np.eye(6), np.eye(6)),
    "router": lambda value: mild.fit([], value),
}


#: Commands and functions of mild-gateway, whose tests look at what they lost.
OF_THE_GATEWAY = {"collect", "collect_outcomes"}


def rows_of(kind):
    rows = [row for row in REMOVED if row.kind == kind and not OF_THE_GATEWAY & set(row.where)]
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def refused_command(words):
    """What a command line prints on stderr and stdout, of a command that is refused."""
    done = invoke_mild(words)
    assert done.exit_code == 1, done.stderr
    return done


@rows_of("command")
def test_a_removed_command_says_what_to_use(row):
    done = refused_command([*row.name.split(), "x", "--json"])
    assert done.stderr == f"error: {row.message}\n"
    assert mild_json(done) == {"error": row.message, "code": "removed"}


@rows_of("option")
def test_a_removed_option_says_what_to_use(row):
    for command in row.where or ("tune",):
        for words in ([row.name, "x"], [f"{row.name}=x"], ["table.csv", row.name]):
            done = refused_command([*command.split(), *words])
            assert done.stderr == f"error: {row.message}\n"
            assert done.stdout == ""
        done = refused_command([*command.split(), row.name, "x", "--json"])
        assert mild_json(done) == {"error": row.message, "code": "removed"}


def test_what_a_removed_option_says_does_not_depend_on_commands_before():
    refused_command(["tune", "nowhere.csv", "--out", "router"])
    assert "text=EncoderFeatures" in refused_command(["tune", "--model", "x"]).stderr


@rows_of("parameter")
def test_a_removed_parameter_says_what_to_use(row):
    for name in row.where or ("tune",):
        with pytest.raises(InvalidInputError) as caught:
            find_function(name)(**{row.name: 1})
        assert str(caught.value) == row.message
        assert caught.value.code == "removed"


@pytest.mark.parametrize("name", ["checkpoint", "resume"])
def test_a_removed_parameter_of_a_router_by_its_name_says_what_to_use(name):
    with pytest.raises(InvalidInputError) as caught:
        mild.fit([], "neural", **{name: "x"})
    assert str(caught.value) == removal_message("parameter", name, "NeuralRouter")
    assert caught.value.code == "removed"


def test_an_unknown_parameter_of_tune_is_called_that():
    with pytest.raises(InvalidInputError, match=r"^seed is not an argument of tune; it takes data"):
        mild.tune([], seed=3)
    with pytest.raises(InvalidInputError, match=r"of tune\. Did you mean 'keep_quality'"):
        mild.tune([], keep_qualty=1.0)


@rows_of("name")
def test_a_removed_name_says_what_to_use(row):
    module_name, _, name = row.name.rpartition(".")
    module = importlib.import_module(module_name)
    with pytest.raises(RemovedNameError) as caught:
        getattr(module, name)
    assert str(caught.value) == row.message
    assert caught.value.code == "removed"
    assert not hasattr(module, name)
    assert name not in getattr(module, "__all__", ())


@rows_of("value")
def test_a_removed_value_says_what_to_use(row):
    for parameter in row.where:
        with pytest.raises(OptionError) as caught:
            VALUE_USERS[parameter](row.name)
        assert str(caught.value) == row.message
        assert caught.value.code == "removed"


def test_the_migration_page_has_the_rows_of_the_table():
    lines = MIGRATION.read_text(encoding="utf-8").splitlines()
    start = lines.index("| removed | what it was | where | instead |")
    expected = []
    for row in REMOVED:
        where = ", ".join(row.where) or "everywhere"
        expected.append(f"| `{row.name}` | {row.kind} | {where} | {row.instead} |")
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append(line)
    assert table == expected


def test_rows_are_sorted_and_end_as_sentences():
    keys = [(row.kind, row.name) for row in REMOVED]
    assert keys == sorted(keys)
    assert len(set(REMOVED)) == len(REMOVED)
    for row in REMOVED:
        assert row.instead.endswith(".")


def test_a_name_that_never_existed_is_an_ordinary_error():
    assert removal_message("option", "--never-existed", "tune") is None
    done = invoke_mild(["tune", "--never-existed"])
    assert done.exit_code == 2
    assert "No such option: --never-existed" in done.stderr
    done = invoke_mild(["never-existed"])
    assert done.exit_code == 2
    with pytest.raises(AttributeError, match="no attribute 'never_existed'"):
        mild.data.never_existed  # noqa: B018


def test_a_constructor_is_called_by_the_name_of_its_class(monkeypatch):
    class Estimator:
        @check_arguments
        def __init__(self, alpha=1.0):
            self.alpha = alpha

    row = Removed("parameter", "beta", "Use alpha.", where=(Estimator.__qualname__,))
    monkeypatch.setattr("mild.removed.REMOVED", (row,))
    with pytest.raises(InvalidInputError) as caught:
        Estimator(beta=2)
    assert str(caught.value) == "beta was removed in mild 0.10. Use alpha."
    with pytest.raises(
        InvalidInputError, match=r"gamma is not an argument of .*Estimator; it takes alpha"
    ):
        Estimator(gamma=2)


def mild_json(done):
    return json.loads(done.stdout)


def find_function(name):
    """A public function, class or method by the name that its users write."""
    first, *rest = name.removeprefix("mild.").split(".")
    for home in HOMES:
        if first in home.__all__:
            return functools.reduce(getattr, rest, getattr(home, first))
    raise AssertionError(f"{name} is no public function or class")
