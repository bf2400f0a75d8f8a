"""The rule-based expert: right on what it knows, silent on the rest."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

questions = pytest.importorskip("scripts.make_questions")
make_questions = questions.make_questions


FILE = Path(__file__).parents[2] / "scripts" / "rule_solver.py"
if not FILE.exists():
    pytest.skip("the scripts are not here", allow_module_level=True)

KNOWN = {
    *("arithmetic/add", "arithmetic/subtract", "arithmetic/multiply", "arithmetic/divide"),
    *("arithmetic/mixed", "strings/reverse", "strings/length", "strings/letter"),
    *("strings/last_letter", "strings/count", "strings/spell"),
    *("dates/later_date", "dates/clock", "dates/days_in_month"),
}


@pytest.fixture(scope="module")
def solve():
    spec = importlib.util.spec_from_file_location("rule_solver", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.solve


@pytest.mark.parametrize("seed", range(3))
def test_it_is_always_right_on_some_tasks_and_never_on_the_others(solve, seed):
    for row in make_questions(1500, seed=seed):
        expected = row["answer"] if row["source"] in KNOWN else "unknown"
        assert solve(row["query"]) == expected


@pytest.mark.parametrize(
    "question", ["", "What is?", "What is (1 + 2?", "What is 1 / 0?", "What is 1 +?", "Hi"]
)
def test_nonsense_is_unknown(solve, question):
    assert solve(question) == "unknown"


def test_it_answers_as_a_program():
    command = [sys.executable, "-I", "-S", str(FILE)]
    done = subprocess.run(command, input="What is 12 * (3 + 4)?\n", capture_output=True, text=True)
    assert done.stdout == "84\n"
