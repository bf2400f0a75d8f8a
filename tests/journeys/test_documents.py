"""Programs read what the commands print with ``--json``: one object with the keys that are agreed on.

Every command ends with 0, prints no NaN, and says the same to people without ``--json``.
"""

from __future__ import annotations

import json

import pandas as pd
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import EXPERTS, log, take

pytestmark = pytest.mark.slow

SUM = "What is 8,191 plus 1,234?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    columns = log(51, 300)
    pd.DataFrame(take(columns, range(200))).to_csv(folder / "log.csv", index=False)
    pd.DataFrame(take(columns, range(200, 300))).to_csv(folder / "test.csv", index=False)
    return folder


def document(done):
    """The one object that a command prints, in JSON as the standard has it."""
    assert done.code == 0, done.err

    def no_number(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(done.out, parse_constant=no_number)


def run(folder, words):
    """A command with and without ``--json``; returns what it prints as JSON."""
    for_people = mild_here(folder, words)
    assert for_people.code == 0, for_people.err
    assert not for_people.out.startswith("{")
    assert for_people.out.strip()
    return document(mild_here(folder, [*words, "--json"]))


def test_what_commands_print_for_programs(folder):
    replace = "--overwrite"
    described = run(folder, adapter.describe("log.csv"))
    assert described.keys() == adapter.KEYS["describe"]
    converted = run(folder, adapter.convert("log.csv", "log.parquet", replace))
    assert converted.keys() == adapter.KEYS["convert"]
    assert converted["rows"] == len(mild.read_outcomes(folder / "log.parquet")) == 200
    assert sorted(converted["experts"]) == sorted(EXPERTS)

    words = ["--keep-quality", "0.9", "--target-probability", "0.5", replace]
    tuned = run(folder, adapter.tune("log.csv", "router", *words))
    assert tuned.keys() == adapter.KEYS["tune"]
    assert (folder / "router").samefile(tuned["router"])
    fitted = run(folder, adapter.fit("log.csv", "fitted", "ridge", replace))
    assert fitted.keys() == adapter.KEYS["fit"]
    assert (folder / "fitted").samefile(fitted["router"])
    evaluated = run(folder, adapter.evaluate("router", "test.csv"))
    assert evaluated.keys() == adapter.KEYS["evaluate"]
    compared = run(folder, adapter.compare("log.csv", ["ridge"], adapter.N_SPLITS, "2"))
    assert compared.keys() == adapter.KEYS["compare"]

    why = run(folder, adapter.explain("fitted", SUM))
    assert why.keys() == adapter.KEYS["explain a query"]
    assert why["expert"] == mild.load(folder / "fitted").route([SUM])[0]
    about = run(folder, adapter.explain("router"))
    assert about.keys() == adapter.KEYS["explain a router"]
    done = mild_here(folder, adapter.route("router"), stdin=f"{SUM}\n\n{SUM}\n")
    assert done.code == 0
    first, blank, last = (json.loads(line) for line in done.out.splitlines())
    assert first.keys() == adapter.KEYS["route"]
    assert first == last
    assert blank["expert"] is None

    for words in (["--version"], ["--help"], adapter.describe("--help")):
        assert mild_here(folder, words).code == 0
    assert mild.__version__ in mild_here(folder, ["--version"]).out


def test_the_demo_shows_a_router_that_it_has_made(folder):
    shown = document(mild_here(folder, adapter.demo("shown")))
    assert shown.keys() == adapter.KEYS["demo"]
    assert len(shown["steps"]) >= 5
    (router,) = (folder / "shown").glob("*/router.json")
    chosen = mild.load(router.parent).route([SUM, "Who wrote Faust?"])
    assert len(chosen) == 2
    assert any("html" in page.name for page in (folder / "shown").iterdir())
