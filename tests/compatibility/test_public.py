"""Names on ``mild``: parameters, defaults, methods and values are those that were recorded."""

from __future__ import annotations

import pytest

import mild
from compatibility.cases import FOLDER, function_values
from recordings import changed_values, changes_of_parameters, read_json

RECORDED = read_json(FOLDER / "public.json")
CALLED = [name for name in RECORDED["names"] if not name.endswith(".")]
CLASSES = [name[:-1] for name in RECORDED["names"] if name.endswith(".")]


@pytest.mark.parametrize("name", CALLED)
def test_parameters_keep_their_names_order_and_defaults(name):
    assert not changes_of_parameters(RECORDED["names"][name], getattr(mild, name))


@pytest.mark.parametrize("name", CLASSES)
def test_methods_are_still_there(name):
    assert not set(RECORDED["names"][f"{name}."]) - set(dir(getattr(mild, name)))


def test_functions_give_what_they_gave():
    assert not changed_values(RECORDED["values"], function_values())
