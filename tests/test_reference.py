"""The reference is made from the code and leaves nothing out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mild
from mild.errors import CODES, MildError
from scripts import reference

SOURCE = Path(mild.__file__).parent
PAGES = Path(__file__).parents[1] / "docs" / "reference"


def test_every_marker_of_a_page_is_filled_and_every_part_is_used():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    assert sorted(reference.MARKER.findall(text)) == sorted(reference.PARTS)
    filled = reference.on_page_markdown("before\n<!-- generated: library_errors -->\nafter\n")
    assert filled.startswith("before\n| code |")
    assert filled.endswith("|\nafter\n")


def test_every_command_is_there_with_a_text_an_example_and_help_for_every_option():
    found = {name: reference.command_help(name, one) for name, one in reference.commands().items()}
    assert {"mild tune", "mild serve", "mild keys add", "mild data split"} < set(found)
    for name, page in found.items():
        assert page.text, name
        assert name in page.example, name
        options = [record for records in page.options.values() for record in records]
        assert [option for option, text in options if not text] == [], name


def test_text_of_a_parser_is_not_read_as_markup():
    assert reference.escaped("<x> a_b") == "&lt;x> a\\_b"
    page = reference.command_line()
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<" not in outside
    assert not re.search(r"(?<!\\)[*_]", outside)


def codes_in_the_source():
    """Codes that are written out where an error of the library is raised, and those of its classes."""
    found = {kind.code for kind in [MildError, *MildError.__subclasses__()]}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in ("gateway", "endpoints"):
            continue  # their codes are those of the gateway
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
    return found - {None}


def test_every_code_has_a_cause_and_a_remedy():
    kinds = [MildError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    own = {kind.code for kind in kinds if kind.__module__ == "mild.errors"}
    assert own <= set(CODES)
    # After Ctrl-C there is no error: the command line prints this one itself.
    assert set(CODES) == codes_in_the_source() | own | {"interrupted"}
    assert all(cause and remedy for cause, remedy in CODES.values())
