"""Commands where a package for learning is missing, as in an image that only serves."""

import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("command", ["learn", "replay", "collect"])
def test_help_says_what_is_missing(command):
    done = run_without_pyarrow(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"pyarrow is not installed: mild {command} cannot run" in " ".join(done.stdout.split())


def test_learning_is_refused_in_one_sentence():
    done = run_without_pyarrow("learn", "router")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: mild learn needs pyarrow, which is not installed; run: pip install pyarrow.\n"
    )


@pytest.mark.parametrize("command", ["serve", "check", "keys", "versions"])
def test_what_an_image_that_only_serves_needs_has_its_help(command):
    done = run_without_pyarrow(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "not installed" not in done.stdout
