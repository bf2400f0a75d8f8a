"""The documents: links that lead somewhere, and nothing that holds on one machine only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Pages that the build of the site makes of examples/.
GALLERY = ROOT / "docs" / "examples"
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if GALLERY not in path.parents)
DOCUMENTS = [ROOT / "README.md", *PAGES]
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


def source_of(target: Path) -> Path:
    """The file itself, or what a page of the gallery is made of."""
    if target.parent != GALLERY or target.suffix != ".md":
        return target
    name = "README.md" if target.stem == "index" else f"{target.stem}.py"
    return ROOT / "examples" / name


@every_document
def test_relative_links_lead_to_files(document: Path) -> None:
    targets = {link: (document.parent / link).resolve() for link in relative_links(document)}
    missing = [link for link, target in targets.items() if not source_of(target).is_file()]
    assert missing == []


def test_the_navigation_has_every_document() -> None:
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {str(path.relative_to(ROOT / "docs")) for path in PAGES} == named


@every_document
def test_no_path_of_one_machine_is_mentioned(document: Path) -> None:
    assert ABSOLUTE.findall(document.read_text(encoding="utf-8")) == []
