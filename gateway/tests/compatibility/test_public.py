"""Names on ``mild_gateway``: parameters and defaults are those that were recorded."""

from __future__ import annotations

import pytest

import mild_gateway
from compatibility.cases import FOLDER
from recordings import changes_of_parameters, read_json

RECORDED = read_json(FOLDER / "public.json")["names"]


@pytest.mark.parametrize("name", RECORDED)
def test_parameters_keep_their_names_order_and_defaults(name):
    assert not changes_of_parameters(RECORDED[name], getattr(mild_gateway, name))
