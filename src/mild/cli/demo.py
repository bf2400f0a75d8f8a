"""``mild demo``"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, percent, print_table, say
from mild.cli.evaluate import print_choices
from mild.errors import MildError, install_hint

# What the router of the demo should reach, as options of tune: a dollar per 1,000 queries.
GOAL = ("--max-dollars", "1")
QUERIES = (
    "What is 17 * 23?",
    "What is the capital of France?",
    'What is the plural of "mouse"?',
)
# Share of the table that the verdict is about.
TEST_SHARE = 1 / 3
# The gateway is a process of its own.
SERVE = ("mild", "serve", "--demo", "--port", "0")
# Seconds for the gateway to start, and to answer.
PATIENCE = 60.0


def demo(
    context: typer.Context,
    out: Annotated[Path, Option("--out", "-o", help="Folder for what is written.")] = Path(
        "mild-demo"
    ),
    as_json: o.AsJson = False,
) -> None:
    """Show what mild does, on a table of real outcomes, in less than a minute.

    Two small language models and a rule-based solver have answered 1,500 questions. The demo shows the
    table, a router for it, its verdict on rows that it has not seen, three queries with the reason for
    each choice, a chat request through the gateway if it is installed, and a report. Every step prints its
    command.

    The comparison on the paper's setups is `make demo-paper`, in a checkout.

    \b
    Example:
      mild demo
    """
    _tour(context.find_root().command, out, as_json)


class _Steps:
    """Runs commands of mild in this process and keeps their results, JSON-ready."""

    def __init__(self, mild: Any, quiet: bool) -> None:
        self._mild = mild
        self.quiet = quiet
        self.done: list[dict[str, Any]] = []

    def say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def begin(self, title: str) -> None:
        number = len({step["title"] for step in self.done}) + 1
        self.title = title
        self.say(f"\n{number}. {title}")

    def run(self, *words: str | Path) -> dict[str, Any]:
        """What a command prints with --json; its errors end the demo."""
        command = shlex.join(["mild", *map(str, words)])
        self.say(f"   $ {command}")
        stdout = StringIO()
        with redirect_stdout(stdout):
            code = self._mild.main(
                [*map(str, words), "--json"], prog_name="mild", standalone_mode=False
            )
        if code:
            raise typer.Exit(code)
        found: dict[str, Any] = json.loads(stdout.getvalue())
        self.keep(command, found)
        return found

    def keep(self, command: str, result: Mapping[str, Any]) -> None:
        self.done.append({"title": self.title, "command": command, "result": dict(result)})


def _tour(mild: Any, folder: Path, as_json: bool) -> None:
    """The main job on the table that comes with mild."""
    from mild.evaluation.figures import named_baselines

    start = time.perf_counter()
    train, test = _write_tables(folder)
    router, page = folder / "router", folder / "report.html"
    steps = _Steps(mild, as_json)

    steps.begin("What is in the table")
    found = steps.run("data", "describe", train)
    if not as_json:
        _show_table(found)

    steps.begin("Find the best router for it")
    found = steps.run("tune", train, *GOAL, "--out", router, "--overwrite")
    steps.say(f"   {found['verdict']['sentence']}")
    if found.get("target"):
        steps.say(f"   {found['target']['sentence']}")

    steps.begin("Does it pay on rows that it has not seen?")
    found = steps.run("evaluate", test, "--router", router, "--save")
    if not as_json:
        rows = found["summary"]["n_known"]
        print_choices(f"on {rows:,} rows", "choice", named_baselines(found["baselines"]))
    steps.say(f"   {found['verdict']['sentence']}")

    steps.begin("Three queries, and the reason for each choice")
    for query in QUERIES:
        steps.say(f"   {steps.run('explain', router, query)['sentence']}")

    has_gateway = find_spec("mild_gateway") is not None
    if has_gateway:
        steps.begin("One chat request, answered through the gateway")
        _ask_gateway(steps)

    steps.begin("The report")
    steps.run("report", router, "--out", page, "--overwrite")
    steps.say(f"   Written to {page.resolve()}: open it in a browser.")
    seconds = time.perf_counter() - start
    result = {
        "folder": str(folder),
        "report": str(page),
        "seconds": round(seconds, 2),
        "steps": steps.done,
    }
    emit(result, as_json, lambda: say(f"\n{seconds:.0f} s. Everything is in {folder}/."))
    if not has_gateway:
        note(
            "mild-gateway, which serves routers as chat models, is not installed; to see it in the demo, "
            f"run: {install_hint('gateway')}."
        )


def _write_tables(folder: Path) -> tuple[Path, Path]:
    """The table that comes with mild in two files: to learn from and to judge by."""
    from mild.data import write_outcomes
    from mild.data.datasets import load_outcomes
    from mild.errors import DataFileError, OutputExistsError

    files = folder / "train.parquet", folder / "test.parquet"
    own = {*(file.name for file in files), "router", "report.html"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = sorted(path.name for path in folder.iterdir() if path.name not in own)
    except OSError as error:
        raise DataFileError(f"cannot write to {folder}: {error.strerror or error}.") from error
    if others:
        raise OutputExistsError(
            f"the output folder must be new, empty, or that of an earlier demo; {folder} holds "
            f"{others[0]!r}. Choose another --out."
        )
    for table, file in zip(load_outcomes().split(TEST_SHARE), files, strict=True):
        write_outcomes(table, file, overwrite=True)
    return files


def _show_table(found: Mapping[str, Any]) -> None:
    from mild.money import amount

    experts = found["experts"]
    print_table(
        f"{found['rows']:,} questions, {len(experts)} experts",
        {
            "expert": [one["name"] for one in experts],
            "accuracy": [percent(one["accuracy"]) for one in experts],
            "only right": [percent(one["only_right"]) for one in experts],
            "$ per 1,000": [amount(1000 * one["mean_price"]) for one in experts],
            "seconds": [fixed(one["mean_latency"], 2) for one in experts],
        },
    )


def _ask_gateway(steps: _Steps) -> None:
    """Start ``mild serve --demo``, ask it once, and stop it."""
    from urllib.request import Request, urlopen

    steps.say(f"   $ {shlex.join(SERVE)} &")
    process = subprocess.Popen(
        [sys.executable, "-m", *SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = _address_of(process)
        message = {"role": "user", "content": QUERIES[0]}
        body = json.dumps({"model": "mild", "messages": [message]})
        url = f"{address}/v1/chat/completions"
        command = f"curl {url} -d {shlex.quote(body)}"
        steps.say(f"   $ {command}")
        request = Request(url, body.encode(), {"content-type": "application/json"})
        with urlopen(request, timeout=PATIENCE) as response:
            answer = json.load(response)
            expert = response.headers.get("x-mild-expert")
            price = response.headers.get("x-mild-price")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    text = answer["choices"][0]["message"]["content"]
    steps.keep(command, {"expert": expert, "price": price, "answer": answer})
    steps.say(f"   {expert} answers: {text} (a stand-in; name your own experts in a mild.toml)")


def _address_of(process: subprocess.Popen[str]) -> str:
    """Where a gateway that was just started listens, from its first line."""
    assert process.stdout is not None
    for word in process.stdout.readline().split():
        if word.startswith("http"):
            return word
    _, messages = process.communicate(timeout=PATIENCE)
    reason = messages.strip().removeprefix("error: ")
    raise MildError(f"the gateway of the demo did not start: {reason or 'it gave no reason.'}")
