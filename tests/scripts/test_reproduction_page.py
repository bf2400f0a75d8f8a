"""The page of the reproduction says what the results files say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "reproduction_page.py"
if not SCRIPT.exists():
    pytest.skip("the scripts are not here", allow_module_level=True)
pytest.importorskip("pandas")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("reproduction_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_the_page_are_those_of_the_results(script):
    page = script.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- table ") >= 6
    assert script.fill(page, script.load()) == page


def test_a_stale_table_is_replaced_and_the_text_around_it_kept(script):
    page = "before\n<!-- table decay -->\nold\n<!-- end -->\nafter\n"
    new = script.fill(page, script.load())
    assert new.startswith("before\n<!-- table decay -->\n| decay | TDEF")
    assert new.endswith("<!-- end -->\nafter\n")
    assert "old" not in new
