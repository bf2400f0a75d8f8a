"""Examples in help texts, in the README and in the documents name options that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_cases import library_commands, unknown_options

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = library_commands()


def test_an_unknown_option_in_a_document_is_found():
    text = "mild fit log.csv --out r --jobs 2\n`mild convert a.csv` with --none"
    assert unknown_options(text, COMMANDS) == ["fit --jobs"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_options_that_there_are(name):
    assert unknown_options(COMMANDS[name].help or "", COMMANDS) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_documents_name_options_that_there_are(document):
    assert unknown_options(document.read_text(encoding="utf-8"), COMMANDS) == []
