"""Defaults that the library and the settings of the gateway share."""

import inspect

import mild
from mild_gateway.config import TargetSettings


def test_a_gateway_has_the_default_of_the_library():
    default = inspect.signature(mild.tune).parameters["target_probability"].default
    assert TargetSettings().target_probability == default
