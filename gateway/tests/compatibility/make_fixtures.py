"""Write what the tests in this folder hold later versions to. Run it only deliberately.

The files beside this one were first written by mild 0.1.0. What changed on purpose since then was recorded
anew, part by part. A test that fails says that something changed; record it anew only if it was meant to
change.

    PYTHONPATH=gateway/tests:testing python gateway/tests/compatibility/make_fixtures.py [PART ...]

PART is one of ledger, collect, config, commands, errors, public; without any, all are written, in this
order. The later ones use files of the earlier ones. Two kinds of files stay as they are:
ledger/ledger.sqlite and ledger/feedback.csv were written by mild 0.1.0, and all in config/ except
expected.json was written by hand. Routers are recorded in tests/compatibility.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import mild
import mild_gateway
from compatibility import cases
from compatibility.cases import FOLDER
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
    """Questions, and the ledger of a run of ``mild collect`` that has asked some of them."""
    folder = FOLDER / "collect"
    questions = [{"query": f"What is {i}?", "answer": i % 3, "subject": "s"} for i in range(6)]
    lines = [json.dumps(question) + "\n" for question in questions]
    (folder / "questions.jsonl").write_text("".join(lines))
    with cases.work_folder() as work_folder:
        collected = work_folder / "collect" / "ledger.sqlite"
        collected.unlink()
        run_in_turn([cases.COLLECTING], work_folder)
        (folder / "ledger.sqlite").write_bytes(collected.read_bytes())


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
