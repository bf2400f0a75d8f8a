"""Examples in help texts, in the README and in the documents name options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import typer

from mild.cli.app import build_app

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A command as it is written down: up to what ends it in a shell, or in a sentence.
COMMAND = re.compile(r"\bmild ((?:[a-z][a-z0-9-]* ?)+)([^`#|;&\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def walk(
    command: click.Command, names: tuple[str, ...] = ()
) -> dict[tuple[str, ...], click.Command]:
    found = {names: command}
    for name, one in getattr(command, "commands", {}).items():
        found |= walk(one, (*names, name))
    return found


VERBS = walk(typer.main.get_command(build_app()))


def unknown(text: str) -> list[str]:
    """Commands in a text with an option that they do not have."""
    found = []
    for words, rest in COMMAND.findall(text.replace("\\\n", " ")):
        names = words.split()
        verb = next((key for size in (2, 1) if (key := tuple(names[:size])) in VERBS and key), None)
        if verb is None:
            continue
        known = {"--help"}
        for parameter in VERBS[verb].params:
            known |= {*parameter.opts, *parameter.secondary_opts}
        found += [f"{' '.join(verb)} {name}" for name in OPTION.findall(rest) if name not in known]
    return found


def test_an_option_that_is_not_there_is_found() -> None:
    text = "mild fit log.csv --out r --n-jobs 2\n`mild data convert a.csv` with --none"
    assert unknown(text) == ["fit --n-jobs"]


@pytest.mark.parametrize("verb", [key for key in VERBS if key], ids=" ".join)
def test_help_names_options_that_there_are(verb) -> None:
    assert unknown(VERBS[verb].help or "") == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_documents_name_options_that_there_are(document) -> None:
    assert unknown(document.read_text(encoding="utf-8")) == []
