"""Scores of answers, by rule and by command."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from mild.errors import OptionError
from mild_gateway.collect.grading import Scorer, grade_runs, make_scorer
from mild_gateway.collect.ledger import Ledger, StoredAnswer
from mild_gateway.collect.questions import Question
from mild_gateway.collect.runs import plan_runs
from mild_gateway.experts.expert import Expert

SCORER = """
import json, pathlib, sys
task = json.loads(input())
log = pathlib.Path(sys.argv[1])
log.write_text((log.read_text() if log.exists() else "") + json.dumps(task) + "\\n")
response = task["response"]
if response == "crash":
    sys.exit("it crashed")
if response == "hang":
    import time
    time.sleep(30)
print({"great": 2, "word": "fine"}.get(response, 0.25 if response == task["answer"] else 0))
"""


@pytest.fixture
def marked(tmp_path):
    """Scores for (question, response) pairs; None as response is no answer."""
    expert = Expert("e", "http://127.0.0.1:9/v1", "none")
    program = tmp_path / "score.py"
    program.write_text(SCORER)
    command = (sys.executable, "-I", "-S", str(program), str(tmp_path / "log"))

    def run(*pairs, **options):
        items = [question for question, _ in pairs]
        with Ledger(tmp_path / "l.sqlite") as ledger:
            (run,) = plan_runs(items, [expert], None)
            for key, (_, response) in zip(run.keys, pairs, strict=True):
                if response is not None:
                    run.answers[key] = StoredAnswer(response, None, 0.0, 0.0, 1.0)
            scorer = Scorer(command, timeout_s=3.0, concurrency=1)
            return asyncio.run(grade_runs([run], items, ledger, scorer=scorer, **options))

    return run


def test_rules_score_what_needs_no_command_and_no_answer_has_no_score(marked, tmp_path):
    marks = marked(
        (Question("1+1", ("2",), "numeric"), "It is 2"),
        (Question("1+2", ("3",), "numeric"), "It is 2"),
        (Question("1+3", ("4",), "numeric"), None),
    )
    assert marks.scores == [[1.0, 0.0, None]]
    assert not (tmp_path / "log").exists()


def test_a_command_reads_the_task_and_is_never_asked_twice(marked, tmp_path):
    pairs = [
        (Question("one?", ("x",), "command"), "x"),
        (Question("two?", ("x", "y"), "command"), "z"),
        (Question("three?", (), "command"), None),
    ]
    assert marked(*pairs).scores == [[0.25, 0.0, None]]
    log = (tmp_path / "log").read_text()
    assert [json.loads(line) for line in log.splitlines()] == [
        {"query": "one?", "answer": "x", "response": "x"},
        {"query": "two?", "answer": ["x", "y"], "response": "z"},
    ]
    assert marked(*pairs).scores == [[0.25, 0.0, None]]
    assert (tmp_path / "log").read_text() == log


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("crash", "exit code 1: it crashed"),
        ("hang", "took longer than 3 s"),
        ("great", "a number from 0 to 1; got 2"),
        ("word", "must print a number; got 'fine'"),
    ],
)
def test_a_command_that_fails_leaves_no_score_and_says_why(marked, response, reason):
    marks = marked((Question("?", ("x",), "command"), response))
    assert marks.scores == [[None]]
    assert reason in next(iter(marks.unscored))


def test_a_stopped_run_asks_the_command_no_more(marked, tmp_path):
    async def stopped():
        event = asyncio.Event()
        event.set()
        return event

    pair = (Question("one?", ("x",), "command"), "x")
    assert marked(pair, stop=asyncio.run(stopped())).scores == [[None]]
    assert not (tmp_path / "log").exists()


def test_a_scorer_is_a_command_line():
    assert make_scorer(None, 1.0) is None
    assert make_scorer("python 'my score.py'", 2.0) == Scorer(("python", "my score.py"), 2.0)
    for wrong in ("", "python 'score.py"):
        with pytest.raises(OptionError, match="scorer must be a command"):
            make_scorer(wrong, 1.0)
    with pytest.raises(OptionError, match="there is no 'no-such-program'"):
        make_scorer("no-such-program --x", 1.0)
