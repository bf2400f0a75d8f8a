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
from mild.cli.console import (
    columns_of,
    dollars,
    emit,
    note,
    percent,
    print_sentence,
    print_table,
    seconds,
)
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
    table, a router for it, its verdict on rows that it has not seen, with a report, three queries with the
    reason for each choice, and a chat request through the gateway if it is installed. Every step prints
    its command.

    The comparison on the paper's setups is `make demo-paper`, in a checkout.

    \b
    Example:
      mild demo
    """
    _tour(context.find_root().command, out, as_json)


class _Steps:
    """Runs commands of mild in this process and keeps their results, JSON-ready."""

    def __init__(self, cli: Any, quiet: bool) -> None:
        self._cli = cli
        self.quiet = quiet
        self.done: list[dict[str, Any]] = []

    def show(self, text: str) -> None:
        """Print a line, unless the demo is quiet."""
        if not self.quiet:
            print_sentence(text)

    def begin(self, title: str) -> None:
        """Begin the next numbered step."""
        number = len({step["title"] for step in self.done}) + 1
        self.title = title
        self.show(f"\n{number}. {title}")

    def run(self, *words: str | Path) -> dict[str, Any]:
        """Run a command and return what it prints with --json; its errors end the demo."""
        arguments = list(map(str, words))
        command = shlex.join(["mild", *arguments])
        self.show(f"   $ {command}")
        stdout = StringIO()
        with redirect_stdout(stdout):
            code = self._cli.main([*arguments, "--json"], prog_name="mild", standalone_mode=False)
        if code:
            raise typer.Exit(code)
        result: dict[str, Any] = json.loads(stdout.getvalue())
        self.keep(command, result)
        return result

    def keep(self, command: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a command for the JSON output of the demo."""
        self.done.append({"title": self.title, "command": command, "result": dict(result)})


def _tour(cli: Any, folder: Path, as_json: bool) -> None:
    """Run the steps of the demo on the table that comes with mild: describe, tune, evaluate, ..."""
    from mild.evaluation.figures import named_baselines

    start = time.perf_counter()
    train, test = _write_tables(folder)
    router = folder / "router"
    page = folder / "report.html"
    steps = _Steps(cli, as_json)

    steps.begin("What is in the table")
    description = steps.run("describe", train)
    if not as_json:
        _show_table(description)

    steps.begin("Find the best router for it")
    tuned = steps.run("tune", train, *GOAL, "--out", router, "--overwrite")
    steps.show(f"   {tuned['verdict']['sentence']}")
    if tuned.get("target"):
        steps.show(f"   {tuned['target']['sentence']}")

    steps.begin("Does it pay on rows that it has not seen?")
    evaluation = steps.run("evaluate", router, test, "--report", page, "--overwrite")
    if not as_json:
        n_rows = evaluation["summary"]["n_known"]
        print_choices(f"on {n_rows:,} rows", "choice", named_baselines(evaluation["baselines"]))
    steps.show(f"   {evaluation['verdict']['sentence']}")
    steps.show(f"   The report is in {page.resolve()}: open it in a browser.")

    steps.begin("Three queries, and the reason for each choice")
    for query in QUERIES:
        explanation = steps.run("explain", router, query)
        steps.show(f"   {explanation['sentence']}")

    has_gateway = find_spec("mild_gateway") is not None
    if has_gateway:
        steps.begin("One chat request, answered through the gateway")
        _ask_gateway(steps)

    duration = time.perf_counter() - start
    result = {
        "folder": str(folder),
        "report": str(page),
        "seconds": round(duration, 2),
        "steps": steps.done,
    }
    emit(
        result, as_json, lambda: print_sentence(f"\n{duration:.0f} s. Everything is in {folder}/.")
    )
    if not has_gateway:
        note(
            "mild-gateway, which serves routers as chat models, is not installed; to see it in the demo, "
            f"run: {install_hint('gateway')}."
        )


def _write_tables(folder: Path) -> tuple[Path, Path]:
    """Write the table that comes with mild to two files: to learn from and to judge by."""
    from mild.data import write_outcomes
    from mild.datasets import load_outcomes
    from mild.errors import DataFileError, OutputExistsError

    train = folder / "train.parquet"
    test = folder / "test.parquet"
    of_the_demo = {train.name, test.name, "router", "report.html"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise DataFileError(f"cannot write to {folder}: {error.strerror or error}.") from error
    others = sorted(names - of_the_demo)
    if others:
        raise OutputExistsError(
            f"the output folder must be new, empty, or that of an earlier demo; {folder} holds "
            f"{others[0]!r}. Choose another --out."
        )
    train_table, test_table = load_outcomes().split(TEST_SHARE)
    write_outcomes(train_table, train, overwrite=True)
    write_outcomes(test_table, test, overwrite=True)
    return train, test


def _show_table(description: Mapping[str, Any]) -> None:
    """Print how good, expensive and fast each expert of the table is."""
    rows = [
        {
            "expert": expert["name"],
            "accuracy": percent(expert["accuracy"]),
            "only right": percent(expert["only_right"]),
            "$ per 1,000": dollars(1000 * expert["mean_price"]),
            "seconds": seconds(expert["mean_latency"]),
        }
        for expert in description["experts"]
    ]
    print_table(f"{description['rows']:,} questions, {len(rows)} experts", columns_of(rows))


def _ask_gateway(steps: _Steps) -> None:
    """Start ``mild serve --demo``, ask it once, and stop it."""
    from urllib.request import Request, urlopen

    steps.show(f"   $ {shlex.join(SERVE)} &")
    process = subprocess.Popen(
        [sys.executable, "-m", *SERVE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        address = _address_of(process)
        message = {"role": "user", "content": QUERIES[0]}
        body = json.dumps({"model": "mild", "messages": [message]})
        url = f"{address}/v1/chat/completions"
        command = f"curl {url} -d {shlex.quote(body)}"
        steps.show(f"   $ {command}")
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
    steps.show(f"   {expert} answers: {text} (a stand-in; name your own experts in a mild.toml)")


def _address_of(process: subprocess.Popen[str]) -> str:
    """The address of a gateway that was just started, which its first line names."""
    assert process.stdout is not None
    for word in process.stdout.readline().split():
        if word.startswith("http"):
            return word
    _, messages = process.communicate(timeout=PATIENCE)
    reason = messages.strip().removeprefix("error: ") or "it gave no reason."
    raise MildError(f"the gateway of the demo did not start: {reason}")
