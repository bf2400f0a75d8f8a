"""Options that set parameters of Python functions have their help and defaults from there."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from command_cases import (
    check_help_follows_function,
    check_options_repeat_nothing,
    described_commands,
    library_commands,
)
from mild.cli.function_help import parameter_texts

DESCRIBED = described_commands(library_commands())


def test_the_commands_that_have_a_function_are_described_by_it():
    assert {
        "tune", "fit", "evaluate", "compare", "explain", "route", "convert", "describe",
    } <= set(DESCRIBED)  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_no_option_repeats_the_default_or_the_help_of_its_parameter(name):
    check_options_repeat_nothing(library_commands()[name])


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_help_shows_what_the_function_says(name):
    check_help_follows_function(library_commands()[name])


def test_a_new_default_of_the_function_is_the_default_of_the_command(monkeypatch, mild, logs):
    from mild.evaluation import evaluate as module

    given = {}

    def judge(router, table, *, confidence=0.5, random_state=3, **others):
        given.update(others, confidence=confidence, random_state=random_state)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "evaluate", judge)
    folder = logs.folder / "router-defaults"
    if not folder.exists():
        assert mild("fit", logs.log, "--out", folder).code == 0
    mild("evaluate", folder, logs.new)
    assert (given["confidence"], given["random_state"]) == (0.5, 3)
    assert "groups" in given
    assert "beta" in given
    assert "Default: 0.5." in mild("evaluate", "--help").out
    mild("evaluate", folder, logs.new, "--confidence", "0.8")
    assert given["confidence"] == 0.8


def test_a_docstring_without_parameters_describes_none():
    def split(rows, test_size=0.3):
        """Split."""

    assert parameter_texts(split) == {}


def test_parsing_imports_no_numpy():
    code = (
        "import sys\n"
        "sys.argv = ['mild', 'tune', '--never-existed']\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"


WITHOUT_PYARROW = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
sys.argv[0] = "mild"
from mild.cli import main

main()
"""


def run_without_pyarrow(*words):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW, *words], capture_output=True, text=True
    )


def test_help_without_a_package_says_what_is_missing():
    done = run_without_pyarrow("tune", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--keep-quality" in done.stdout
    text = " ".join(done.stdout.split())
    assert "pyarrow is not installed: mild tune cannot run without it" in text
    assert text.endswith("Run: pip install pyarrow.")


def test_a_command_without_a_package_is_refused_in_one_sentence():
    done = run_without_pyarrow("tune", "log.csv", "--out", "router", "--json")
    message = "mild tune needs pyarrow, which is not installed; run: pip install pyarrow."
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"error": message, "code": "missing_extra"}
    assert done.stderr == f"error: {message}\n"
