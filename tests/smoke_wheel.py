"""Use the library's wheel as a user would; run by `make wheel` in an environment with nothing else."""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import mild
from mild import metrics

README = Path(__file__).parents[1] / "README.md"
MILD = Path(sys.executable).with_name("mild")
# Packages that only the gateway needs, and the gateway itself.
OF_THE_GATEWAY = (
    "aiohttp",
    "mild_gateway",
    "sqlalchemy",
    "starlette",
    "uvicorn",
    "yaml",
)
# Recent versions of typer install it; the library itself must not use it.
NOT_IMPORTED = "pydantic"
# They come with the environment.
NOT_OURS = ("pip", "setuptools")


def run(*words: str | Path) -> str:
    """What a command of mild prints; it must succeed."""
    done = subprocess.run([MILD, *words], capture_output=True, text=True)
    assert done.returncode == 0, f"mild {words}: {done.stdout}{done.stderr}"
    return done.stdout


def check_environment() -> None:
    """The wheel is what is imported, and nothing of the gateway is installed."""
    assert "site-packages" in mild.__file__, mild.__file__
    installed = [name for name in OF_THE_GATEWAY if find_spec(name) is not None]
    assert installed == [], installed
    assert mild.__version__ in run("--version")


def check_python() -> float:
    """A router that learns, and the Python part of the README. Returns the router's deferral loss."""
    X, costs = small_data()
    router = mild.LinearRouter().fit(X, costs)
    loss = metrics.deferral_loss(costs, router.predict(X))
    assert loss < 0.2 < costs.mean(axis=0).min(), loss
    examples = doctest.testfile(str(README), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert examples.attempted > 5, examples
    assert examples.failed == 0, examples
    assert NOT_IMPORTED not in sys.modules
    return loss


def small_data() -> tuple[np.ndarray, np.ndarray]:
    """Inputs and costs of three experts: two that are right on one side each, and one in between."""
    X = np.random.default_rng(0).normal(size=(300, 4))
    costs = np.column_stack([X[:, 0] < 0, X[:, 0] > 0, np.full(300, 0.4)]).astype(float)
    return X, costs


def check_fit_and_report() -> None:
    """Fit, evaluate and report on the command line."""
    X, costs = small_data()
    rows = []
    for x, row_costs in zip(X.tolist(), costs.tolist(), strict=True):
        scores = {
            f"score__{expert}": 1 - cost for expert, cost in zip("abc", row_costs, strict=True)
        }
        rows.append(json.dumps({"embedding": x, **scores}))
    Path("data.jsonl").write_text("\n".join(rows), encoding="utf-8")
    run("fit", "data.jsonl", "--out", "fitted", "--json")
    assert (mild.load("fitted").predict(X) == 0).any()
    assert json.loads(run("evaluate", "fitted", "data.jsonl", "--json"))
    run("evaluate", "fitted", "data.jsonl", "--report", "report.html")
    # Style and script are files of the package: they must have come along.
    page = Path("report.html").read_text(encoding="utf-8")
    assert "<style>" in page
    assert "<script>" in page
    assert len(page) > 20_000, len(page)


def check_commands() -> int:
    """Every command that is listed can be used; those of the gateway are not listed. Returns how many."""
    _, _, listed = run("--help").partition("Commands:\n")
    commands = re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE)
    assert {"tune", "evaluate", "route"} < set(commands), commands
    assert not {"serve", "check", "keys", "learn", "ledger"} & set(commands), commands
    for command in commands:
        assert "Usage:" in run(command, "--help")
    return len(commands)


def check_serve() -> None:
    """`mild serve` says in one sentence what to install, in JSON as well."""
    done = subprocess.run([MILD, "serve", "--demo"], capture_output=True, text=True)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "pip install" in done.stderr, done.stderr
    as_json = subprocess.run([MILD, "serve", "--json"], capture_output=True, text=True)
    assert as_json.returncode == 1, as_json
    assert json.loads(as_json.stdout)["code"] == "missing_extra", as_json.stdout


def installed_megabytes() -> float:
    """Size of everything that was installed with the wheel, with bytecode."""
    size = 0
    for distribution in distributions():
        if distribution.name in NOT_OURS:
            continue
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if path.is_file():
                size += path.stat().st_size
    return size / 1e6


def main() -> None:
    check_environment()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        loss = check_python()
        check_fit_and_report()
        n_commands = check_commands()
        check_serve()
        os.chdir("/")
    print(
        f"wheel of mild {mild.__version__} works: deferral loss {loss:.3f}, {n_commands} commands"
    )
    print(f"installed with its dependencies: {installed_megabytes():.0f} MB")


if __name__ == "__main__":
    main()
