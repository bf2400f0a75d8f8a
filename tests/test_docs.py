"""The documents: links that lead somewhere, and nothing that holds on one machine only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = ("http://", "https://", "mailto:", "#")
FOLDERS = ("work", "tmp", "home", "root", "Users", "mnt")
ABSOLUTE = re.compile(rf"(?<![\w.~/])/(?:{'|'.join(FOLDERS)})\b")

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=[str(path.relative_to(ROOT)) for path in DOCUMENTS]
)


def relative_links(document: Path) -> list[str]:
    links = LINK.findall(document.read_text(encoding="utf-8"))
    return [link.partition("#")[0] for link in links if not link.startswith(ELSEWHERE)]


@every_document
def test_relative_links_lead_to_files(document: Path) -> None:
    missing = [link for link in relative_links(document) if not (document.parent / link).is_file()]
    assert missing == []


def test_the_navigation_has_every_document() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(path.relative_to(ROOT / "docs")) for path in DOCUMENTS[1:]} == named


@every_document
def test_no_path_of_one_machine_is_mentioned(document: Path) -> None:
    assert ABSOLUTE.findall(document.read_text(encoding="utf-8")) == []
