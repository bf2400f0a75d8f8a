"""``make release``, in a repository of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.release import RELEASE_LINES, ROOT, VERSION_FILES, VERSION_LINES, main

CHANGELOG = """# Changelog

## Unreleased (0.10)

### Added
- Something.

## 0.9.0 - 2026-01-01
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
    for file, start, end in [*VERSION_LINES, *RELEASE_LINES]:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"# The version\n{start}0.9.0{end}\n# and more\n")
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Everything")
    git(root, "tag", "v0.9.0")
    return root


def release(root: Path, version: str) -> int:
    return main([version, "--date", "2026-02-03", "--no-build"], root)


def written(root: Path, lines: list[tuple[str, str, str]], version: str) -> bool:
    """Whether these lines name the version, and nothing else has changed."""
    texts = [(root / file).read_text() for file, _, _ in lines]
    wanted = [f"# The version\n{start}{version}{end}\n# and more\n" for _, start, end in lines]
    return texts == wanted


@pytest.mark.parametrize(("file", "start", "end"), [*VERSION_LINES, *RELEASE_LINES])
def test_the_files_of_mild_have_one_line_with_the_version(file, start, end):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith(start) and line.endswith(end) for line in lines) == 1


def test_a_release_names_the_version_everywhere_and_tags_it(repository):
    assert release(repository, "0.10.0") == 0
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "rev-parse", "v0.10.0^{commit}") == git(repository, "rev-parse", "HEAD")
    assert written(repository, [*VERSION_LINES, *RELEASE_LINES], "0.10.0")
    parts = (repository / "CHANGELOG.md").read_text().split("\n## ")
    assert parts[1].strip() == "Unreleased"
    assert parts[2].splitlines()[0] == "0.10.0 - 2026-02-03"
    assert "- Something." in parts[2]
    assert parts[3] == CHANGELOG.split("\n## ")[2]


def test_a_version_in_development_is_written_and_can_be_released(repository) -> None:
    assert main(["0.10.0.dev0", "--only-write"], repository) == 0
    assert written(repository, VERSION_LINES, "0.10.0.dev0")
    # What cites or deploys mild names the last release.
    assert written(repository, RELEASE_LINES, "0.9.0")
    git(repository, "commit", "--quiet", "--all", "--message", "Development")
    assert release(repository, "0.9.5") == 1
    assert release(repository, "0.10.0") == 0
    assert written(repository, VERSION_LINES, "0.10.0")


def test_a_version_that_is_none_is_not_written(repository, capsys) -> None:
    assert main(["next", "--only-write"], repository) == 1
    assert "got 'next'" in capsys.readouterr().err
    assert written(repository, VERSION_LINES, "0.9.0")


def dirty(root: Path) -> None:
    (root / "new.txt").write_text("new")


def without_entries(root: Path) -> None:
    changelog = root / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace("- Something.\n", ""))
    git(root, "commit", "--quiet", "--all", "--message", "Nothing")


def with_another_gateway(root: Path) -> None:
    (root / VERSION_FILES[1]).write_text('__version__ = "0.8.0"\n')
    git(root, "commit", "--quiet", "--all", "--message", "Another gateway")


def without_a_version(root: Path) -> None:
    (root / VERSION_FILES[1]).write_text("")
    git(root, "commit", "--quiet", "--all", "--message", "No version")


def with_another_requirement(root: Path) -> None:
    (root / "gateway/pyproject.toml").write_text('  "mild-learn>=0.9",\n')
    git(root, "commit", "--quiet", "--all", "--message", "Another requirement")


@pytest.mark.parametrize(
    ("version", "before", "why"),
    [
        ("0.9.1", dirty, "not committed"),
        ("0.9.1", without_entries, "no entries"),
        ("0.9.1", with_another_gateway, "The library is 0.9.0 and the gateway 0.8.0"),
        ("0.9.1", without_a_version, "no line with the version"),
        ("0.9.1", with_another_requirement, "one line with the version; it has 0"),
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
