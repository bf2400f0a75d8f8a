"""The sample in the README is what the demo prints."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "readme_sample", ROOT / "scripts" / "readme_sample.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_sample_is_what_the_demo_prints(script):
    readme = script.README.read_text()
    start, end = script.written(readme)
    found = script.differences(readme[start:end], script.make_sample())
    assert not found, "run python scripts/readme_sample.py --write"


def test_other_words_and_other_numbers_are_noticed_and_rounding_is_not(script):
    sample = "│ router │ 60.4 % │\n   It adds $1.05 per 1,000 inputs."
    assert not script.differences(sample, sample.replace("60.4", "60.5").replace("   ", " "))
    assert script.differences(sample, sample.replace("60.4", "63.4"))
    assert script.differences(sample, sample.replace("adds", "saves"))
    assert script.differences(sample, sample + " More.")


@pytest.mark.slow
def test_the_commands_of_the_experiments_take_what_the_readme_writes():
    lines = [line.split("#")[0].split() for line in (ROOT / "README.md").read_text().splitlines()]
    commands = [words[2:] for words in lines if words[:2] == ["python", "-m"]]
    assert len(commands) == 5
    for module, *words in commands:
        # With --help a command only says what it takes; what it does not take is an error before that.
        parts = [word for word in words if not word.startswith("-") and "." not in word]
        asked = [sys.executable, "-m", module, *parts[:1], "--help"]
        done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for option in (word for word in words if word.startswith("--")):
            assert option in done.stdout
