"""Names on ``mild``: parameters, defaults, methods and values are those that were recorded."""

from __future__ import annotations

import inspect

import pytest

import mild
from compatibility.cases import function_values
from compatibility.running import changes, read

RECORDED = read("public.json")
CALLED = [name for name in RECORDED["names"] if not name.endswith(".")]
CLASSES = [name[:-1] for name in RECORDED["names"] if name.endswith(".")]


@pytest.mark.parametrize("name", CALLED)
def test_parameters_keep_their_names_order_and_defaults(name):
    recorded = RECORDED["names"][name]
    parameters = inspect.signature(getattr(mild, name)).parameters
    found = {
        entry.name: None if entry.default is entry.empty else repr(entry.default)
        for entry in parameters.values()
    }
    assert {key: found.get(key, "gone") for key in recorded} == recorded
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = [key for key in parameters if parameters[key].kind == by_place]
    order = [key for key in recorded if key in first]
    assert first[: len(order)] == order


@pytest.mark.parametrize("name", CLASSES)
def test_methods_are_still_there(name):
    assert not set(RECORDED["names"][f"{name}."]) - set(dir(getattr(mild, name)))


def test_functions_give_what_they_gave():
    assert not [*changes(RECORDED["values"], function_values())]
