"""What is run, both when the files here are recorded and when the tests compare: one list for both."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as parquet

from recordings import (
    CommandCase,
    case_record,
    figures_of,
    refusal_record,
    run_json,
    shape_of,
)

FOLDER = Path(__file__).parent
#: Recorded routers are the library's.
LIBRARY_FOLDER = FOLDER.parents[2] / "tests" / "compatibility"

SECRETS = {"SMALL_KEY": "sk-small-secret", "OPENAI_API_KEY": "sk-openai-secret"}
SECRET_FILES = ("secret",)


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A copy of the recorded files to run commands in, with secrets in the environment."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.path.realpath(temporary))
        for name in ("config", "ledger", "collect"):
            shutil.copytree(FOLDER / name, folder / name)
        for name in ("text_linear", "text_priced"):
            router = Path("artifacts", name, "router")
            shutil.copytree(LIBRARY_FOLDER / router, folder / router)
        # Git does not keep these modes.
        for name in SECRET_FILES:
            (folder / "config" / name).chmod(0o600)
        with mock.patch.dict(os.environ, SECRETS):
            yield folder


# --- ledger and store ---

STORE: list[list[Any]] = [
    ["keys", "add", "alice", "--store", "store.sqlite", "--budget-day", 5, "--budget-month", 50],
    ["keys", "add", "bob", "--store", "store.sqlite", "--requests-per-minute", 60],
    ["keys", "add", "carol", "--store", "store.sqlite"],
    ["keys", "revoke", "carol", "--store", "store.sqlite"],
]
_LEDGER = "ledger/ledger.sqlite"
_REPLAY = ["replay", _LEDGER, "--router", "ledger/router"]
LEDGER: dict[str, CommandCase] = {
    "show": CommandCase(words=["ledger", "show", _LEDGER], with_figures=True),
    "show_until": CommandCase(
        words=["ledger", "show", _LEDGER, "--until", "2001-09-09T01:47:20"],
        with_figures=True,
    ),
    "export": CommandCase(
        words=["ledger", "export", _LEDGER, "--out", "o.parquet"],
        with_figures=True,
    ),
    "replay": CommandCase(words=_REPLAY, with_figures=True),
    "replay_feedback": CommandCase(
        words=[*_REPLAY, "--feedback", "ledger/feedback.csv", "--price-weight", 20],
        with_figures=True,
    ),
    "replay_explore": CommandCase(
        words=[*_REPLAY, "--explore", 0.1, "--confidence", 0.9],
        with_figures=True,
    ),
    "keys": CommandCase(
        words=["keys", "list", "--store", "ledger/store.sqlite"],
        with_figures=True,
    ),
}


def ledger_answers() -> dict[str, Any]:
    """What the commands say of the ledger and of the store."""
    answers: dict[str, Any] = {}
    with work_folder() as folder:
        for name, case in LEDGER.items():
            answers[name] = case_record(case, folder)
        exported = parquet.read_table(folder / "o.parquet")
    rows = json.loads(json.dumps(exported.to_pylist(), default=str))
    answers["rows"] = {
        "columns": {field.name: str(field.type) for field in exported.schema},
        "values": figures_of(rows),
    }
    return answers


# --- configuration ---

# File and options of ``mild check``, and what it must still say.
CONFIGS: dict[str, tuple[list[str], list[str]]] = {
    "full": (["full.toml"], ["variable SMALL_KEY", "config/secret", "small-2026"]),
    "least": (["least.toml"], ["no expert has a price"]),
    "litellm": (["config.yaml"], ["mild import-litellm config/config.yaml > mild.toml"]),
    "price_weight": (["price_weight.toml"], ["price_weight", "priced"]),
    "other_experts": (["other_experts.toml"], ["adder, cook", "'ader'", "line 3", "2 of the 3"]),
    "unknown_key": (["unknown_key.toml"], ["line 7", "experts.small.price_uot", "price_out?"]),
    "wrong_type": (["wrong_type.toml"], ["line 1", "workers must be", "from 1 to 256", "text"]),
    "out_of_range": (["out_of_range.toml"], ["line 6", "routing.explore must be", "1.5"]),
    "no_experts": (["no_experts.toml"], ["at least one expert", "[experts.NAME]"]),
    "key_in_file": (["key_in_file.toml"], ["line 4", "experts.small.api_key", "api_key_env"]),
    "no_secret": (["no_secret.toml"], ["line 4", "experts.small.api_key_env", "not set"]),
    "not_toml": (["not_toml.toml"], ["not TOML", "line 1"]),
    "no_file": (["no_file.toml"], ["cannot be read"]),
}


def config_answers() -> dict[str, Any]:
    """What ``mild check`` says of every file."""
    answers: dict[str, Any] = {}
    with work_folder() as folder:
        for name, ((file, *options), _) in CONFIGS.items():
            done = run_json(["check", f"config/{file}", *options], folder)
            for secret in SECRETS.values():
                assert secret not in done.out
                assert secret not in done.err
            result = done.json()
            answers[name] = {"exit": done.code, "shape": shape_of(result), "result": result}
    return answers


# --- commands ---

_COLLECT = ["collect", "collect/questions.jsonl", "config/experts.toml", "--out", "o.csv"]
_COLLECT_HTTP = ["collect", "collect/questions.jsonl", "config/experts_http.toml", "--out", "o.csv"]

COMMANDS: dict[str, CommandCase] = {
    "collect_dry_run": CommandCase(words=[*_COLLECT, "--dry-run"], with_figures=True),
    "collect_goes_on": CommandCase(
        words=[*_COLLECT, "--dry-run", "--ledger", "collect/ledger.sqlite"],
        with_figures=True,
    ),
    "collect_http_dry_run": CommandCase(words=[*_COLLECT_HTTP, "--dry-run"], with_figures=True),
    "check": CommandCase(words=["check", "config/full.toml"]),
    "replay": CommandCase(words=_REPLAY),
    "keys_add": CommandCase(words=STORE[0]),
    "keys_list": CommandCase(words=["keys", "list", "--store", "store.sqlite"], setup=STORE[:3]),
    "keys_revoke": CommandCase(words=STORE[3], setup=STORE[:3]),
    "ledger_show": CommandCase(words=["ledger", "show", _LEDGER]),
    "ledger_export": CommandCase(words=["ledger", "export", _LEDGER, "--out", "o.parquet"]),
}


def run_case(case: CommandCase) -> dict[str, Any]:
    """Run a command in a work folder."""
    with work_folder() as folder:
        return case_record(case, folder)


# --- errors ---

# Commands that are refused, and what the sentence must say.
REFUSED: dict[str, tuple[list[Any], list[str]]] = {
    "no_ledger": (["ledger", "show", "nowhere.sqlite"], ["nowhere.sqlite"]),
    "no_ledger_but_a_table": (["ledger", "show", "ledger/feedback.csv"], ["feedback.csv"]),
    "key_twice": (["keys", "add", "alice", "--store", "ledger/store.sqlite"], ["alice"]),
    "key_unknown": (["keys", "revoke", "dave", "--store", "ledger/store.sqlite"], ["dave"]),
    "experts_typo": (
        ["collect", "collect/questions.jsonl", "config/experts_typo.toml", "--out", "o.csv"],
        ["line 2", "price_uot", "price_out"],
    ),
    "experts_unknown": ([*_COLLECT, "--experts", "tiny"], ["'tiny'", "zero"]),
}


def refusals() -> dict[str, Any]:
    """What each of them is answered."""
    records = {}
    with work_folder() as folder:
        for name, (words, _) in REFUSED.items():
            records[name] = refusal_record(words, folder)
    return records
