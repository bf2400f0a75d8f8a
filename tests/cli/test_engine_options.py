"""Where the work is done, said on the command line."""

from __future__ import annotations

import pytest

from mild.cli.options import EngineOptions
from mild.errors import OptionError


def test_an_unknown_engine_is_named():
    with pytest.raises(OptionError, match="engine must be one of 'local', 'ray'; got 'rya'"):
        EngineOptions("rya").check()


@pytest.mark.parametrize("verb", ["tune", "compare"])
def test_an_address_is_for_ray(mild, logs, verb):
    words = ["--out", logs.folder / "never"] if verb == "tune" else []
    done = mild(verb, logs.log, *words, "--address", "127.0.0.1:1")
    assert done.code == 1
    assert "--address is for --engine ray" in done.err


@pytest.mark.parametrize("verb", ["tune", "compare"])
def test_an_address_that_does_not_answer_is_refused(mild, logs, verb):
    pytest.importorskip("ray", reason="ray is not installed")
    words = ["--out", logs.folder / "never"] if verb == "tune" else []
    done = mild(verb, logs.log, *words, "--engine", "ray", "--address", "127.0.0.1:1")
    assert done.code == 1
    assert "no Ray cluster answers at 127.0.0.1:1" in done.err
    assert not (logs.folder / "never").exists()
