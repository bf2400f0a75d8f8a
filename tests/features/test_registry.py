"""Feature steps by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mild.errors import OptionError
from mild.features import FEATURES, HashingFeatures, make_features


def test_every_kind_is_registered_under_its_own_name():
    assert list(FEATURES) == ["hashing", "encoder", "hashing+encoder", "vectors", "onnx"]
    assert all(features.kind == name for name, features in FEATURES.items())


def test_the_default_needs_nothing_but_texts():
    assert type(make_features()) is HashingFeatures


def test_options_reach_the_step():
    assert make_features("hashing", n_components=7).n_components == 7
    assert make_features("vectors", n_features=3).n_features == 3


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(OptionError, match="Did you mean 'hashing'"):
        make_features("hasing")


def test_only_features_that_can_be_chosen_are_offered():
    with pytest.raises(OptionError, match="'vectors'; got 'bert'") as caught:
        make_features("bert")
    assert caught.value.parameter == "text"


def test_an_unknown_option_is_refused_with_the_known_ones():
    with pytest.raises(OptionError, match=r"hashing features take n_components, .*; got 'width'"):
        make_features("hashing", width=3)


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, mild.features\n"
        "heavy = {'scipy', 'sklearn', 'torch', 'tokenizers', 'transformers'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
