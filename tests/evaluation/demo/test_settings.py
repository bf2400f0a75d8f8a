"""What may be asked of the demo."""

from __future__ import annotations

import pytest

from mild.errors import InvalidInputError, OptionError
from mild.evaluation.demo.run import DemoSettings


def test_the_default_is_all_setups_both_experts_both_costs_five_seeds():
    settings = DemoSettings()
    assert settings.setups == ("I", "II", "III", "severe")
    assert settings.experts == ("synthetic", "real")
    assert settings.costs == ("error", "error+coverage")
    assert settings.seeds == 5


def test_changes_come_in_the_usual_order_and_once():
    changed = DemoSettings().changed(setups=["severe", "I", "I"], costs=["error"], seeds=2)
    assert changed.setups == ("I", "severe")
    assert changed.costs == ("error",)
    assert changed.experts == ("synthetic", "real")
    assert changed.seeds == 2


def test_nothing_asked_changes_nothing():
    assert DemoSettings().changed(setups=[], experts=None) == DemoSettings()


@pytest.mark.parametrize("name", ["seeds", "jobs"])
def test_counts_below_one_are_refused(name):
    with pytest.raises(InvalidInputError, match=f"{name} must be at least 1; got 0"):
        DemoSettings(**{name: 0})


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match="Did you mean 'severe'"):
        DemoSettings().changed(setups=["sever"])
    with pytest.raises(OptionError, match="experts must be one of"):
        DemoSettings(experts=("human",))
    with pytest.raises(InvalidInputError, match="costs must name at least one"):
        DemoSettings(costs=())
