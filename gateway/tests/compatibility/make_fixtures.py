"""Write what the tests in this folder hold later versions to. Run it only deliberately.

The files beside this one were first written by mild 0.1.0. What changed on purpose since then was recorded
anew, part by part. A test that fails says that something changed; record it anew only if it was meant to
change.

    PYTHONPATH=gateway/tests:testing python gateway/tests/compatibility/make_fixtures.py [PART ...]

PART is one of ledger, collect, config, commands, errors, public; without any, all are written, in this
order. The later ones use files of the earlier ones. Three kinds of files stay as they are: the rows of
ledger/ledger.sqlite, with ledger/feedback.csv; all in config/ except expected.json, which were written by
hand; and the files of earlier versions in old/, which are refused.
Routers are recorded in tests/compatibility.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import mild
import mild_gateway
from compatibility import cases
from compatibility.cases import FOLDER
from mild_gateway.collect import read_experts, read_questions
from mild_gateway.collect.ledger import Ledger, StoredAnswer
from mild_gateway.collect.runs import plan_runs
from mild_gateway.experts.prices import Usage
from recordings import options_by_command, parameters_of, run_in_turn, write_json, write_parts
from world_cases import make_router


def ledger() -> None:
    """A store, a router to replay the ledger with, and what the commands say of them."""
    folder = FOLDER / "ledger"
    mild.save(make_router(), folder / "router", overwrite=True)
    (folder / "store.sqlite").unlink(missing_ok=True)
    run_in_turn(cases.STORE, folder)
    write_json(cases.ledger_answers(), folder / "expected.json")


def collect() -> None:
    """Questions, and a ledger of ``mild collect`` with the answers to some of them."""
    folder = FOLDER / "collect"
    questions = [{"query": f"What is {i}?", "answer": i % 3, "subject": "s"} for i in range(6)]
    lines = [json.dumps(question) + "\n" for question in questions]
    (folder / "questions.jsonl").write_text("".join(lines))
    (folder / "ledger.sqlite").unlink(missing_ok=True)
    file = read_experts(FOLDER / "config" / "experts.toml")
    asked = read_questions(folder / "questions.jsonl").first(4)
    with Ledger(folder / "ledger.sqlite") as book:
        for run in plan_runs(asked.items, file.experts, book, file.prompts):
            for question, key in zip(asked.items, run.keys, strict=True):
                answer = StoredAnswer("0", Usage(12, 1), 0.001, 0.001, 20.0)
                book.record_answer(key, run.name, question.query, answer)


def config() -> None:
    """What ``mild check`` says of the files in config/."""
    write_json(cases.config_answers(), FOLDER / "config" / "expected.json")


def commands() -> None:
    """Options of every command of the gateway; exit code and shape of the JSON of every case."""
    names = [entry.name for entry in entry_points(group="mild.commands")]
    runs = {}
    for name, case in cases.COMMANDS.items():
        print(name, flush=True)
        runs[name] = cases.run_case(case)
    write_json({"options": options_by_command(names), "runs": runs}, FOLDER / "commands.json")


def errors() -> None:
    """Exit codes and sentences of bad input."""
    write_json({"commands": cases.refusals()}, FOLDER / "errors.json")


def public() -> None:
    """Names on ``mild_gateway`` with their parameters."""
    names = {}
    for name in sorted(mild_gateway.__all__):
        value = getattr(mild_gateway, name)
        if callable(value):
            names[name] = parameters_of(value)
    write_json({"names": names}, FOLDER / "public.json")


PARTS = (ledger, collect, config, commands, errors, public)

if __name__ == "__main__":
    write_parts(PARTS, sys.argv[1:])
