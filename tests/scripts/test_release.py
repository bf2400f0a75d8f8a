"""``make release``, in a repository of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.release import main

CHANGELOG = """# Changelog

## [Unreleased]

### Added
- Something.

## [0.9.0] - 2026-01-01
- Everything.
"""


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@example.com")
    root = tmp_path / "project"
    (root / "src" / "mild").mkdir(parents=True)
    (root / "src" / "mild" / "_version.py").write_text(
        '"""The version."""\n__version__ = "0.9.0"\n'
    )
    (root / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 0.9.0\n")
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Everything")
    git(root, "tag", "v0.9.0")
    return root


def release(root: Path, version: str) -> int:
    return main([version, "--date", "2026-02-03", "--no-build"], root)


def test_a_release_names_the_version_everywhere_and_tags_it(repository):
    assert release(repository, "0.10.0") == 0
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "v0.10.0^{commit}") == git(repository, "rev-parse", "HEAD")
    assert '__version__ = "0.10.0"' in (repository / "src" / "mild" / "_version.py").read_text()
    assert "version: 0.10.0" in (repository / "CITATION.cff").read_text().splitlines()
    parts = (repository / "CHANGELOG.md").read_text().split("## [")
    assert parts[1].split() == ["Unreleased]"]
    assert parts[2].splitlines()[0] == "0.10.0] - 2026-02-03"
    assert "- Something." in parts[2]
    assert parts[3] == CHANGELOG.split("## [")[2]


def test_a_version_in_development_can_be_released(repository) -> None:
    file = repository / "src" / "mild" / "_version.py"
    file.write_text('__version__ = "0.10.0.dev0"\n')
    git(repository, "commit", "--quiet", "--all", "--message", "Development")
    assert release(repository, "0.9.5") == 1
    assert release(repository, "0.10.0") == 0
    assert file.read_text() == '__version__ = "0.10.0"\n'


def dirty(root: Path) -> None:
    (root / "new.txt").write_text("new")


def without_entries(root: Path) -> None:
    changelog = root / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("- Something.\n", ""))
    git(root, "commit", "--quiet", "--all", "--message", "Nothing")


@pytest.mark.parametrize(
    ("version", "before", "why"),
    [
        ("0.9.1", dirty, "not committed"),
        ("0.9.1", without_entries, "no entries"),
        ("0.9.0", None, "The tag v0.9.0 exists"),
        ("0.8.9", None, "goes back"),
        ("0.9", None, "three numbers"),
    ],
)
def test_it_refuses_in_one_sentence_and_changes_nothing(repository, capsys, version, before, why):
    if before:
        before(repository)
    state = git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")
    assert release(repository, version) == 1
    message = capsys.readouterr().err
    assert why in message
    assert message.count("\n") == 1
    assert (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")) == state
    assert git(repository, "tag") == "v0.9.0"
