import shutil
import subprocess

import pytest

pytest.importorskip("torch")

import torch

import mild
from mild.reproduce import surroundings
from mild.reproduce.surroundings import commit, hardware, versions


@pytest.fixture(autouse=True)
def _fresh():
    commit.cache_clear()
    yield
    commit.cache_clear()


def test_versions_are_texts():
    found = versions()
    assert {"python", "mild", "numpy", "torch"} <= set(found)
    assert found["torch"] == torch.__version__
    assert all(isinstance(value, str) for value in found.values())


def test_the_processor_has_a_name():
    assert hardware("cpu").strip()


def git(folder, *words):
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Folder of a package mild in a checkout of one commit."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout" / "src" / "mild"
    (folder / "reproduce").mkdir(parents=True)
    for name in ("__init__.py", "costs.py", "reproduce/run.py", "reproduce/paper.json"):
        (folder / name).write_text("1\n")
    (tmp_path / "checkout" / ".gitignore").write_text("build.py\n")
    (tmp_path / "checkout" / "README.md").write_text("1\n")
    git(tmp_path / "checkout", "init", "-q")
    git(tmp_path / "checkout", "add", ".")
    git(tmp_path / "checkout", "commit", "-q", "-m", "first")
    monkeypatch.setattr(mild, "__file__", str(folder / "__init__.py"))
    return folder


def test_a_commit_is_that_of_the_checkout_of_the_package(package):
    assert commit() == git(package, "rev-parse", "HEAD")
    assert len(commit()) == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda package: (package / "costs.py").write_text("2\n"),
        lambda package: (package / "reproduce" / "paper.json").write_text("2\n"),
        lambda package: (package / "costs.py").unlink(),
        lambda package: (package / "new.py").write_text(""),
        lambda package: (package / "reproduce" / "Straße.py").write_text(""),
        lambda package: ((package / "new").mkdir(), (package / "new" / "a.py").write_text("")),
        lambda package: ((package / "new.py").write_text(""), git(package, "add", "new.py")),
    ],
    ids=["changed", "data", "deleted", "added", "odd name", "new folder", "staged"],
)
def test_a_change_anywhere_in_the_package_is_a_plus(package, change):
    change(package)
    assert commit() == git(package, "rev-parse", "HEAD") + "+"


def test_what_is_not_of_the_package_is_no_change(package):
    (package.parents[1] / "README.md").write_text("2\n")
    (package.parents[1] / "notes.py").write_text("")
    (package / "build.py").write_text("ignored")
    (package / "costs.cpython-311.pyc").write_text("")
    assert commit() == git(package, "rev-parse", "HEAD")


def test_a_package_that_is_not_of_the_checkout_around_it_says_what_it_is_told(
    package, monkeypatch, tmp_path
):
    inside = package.parents[1] / "venv" / "mild"
    inside.mkdir(parents=True)
    (inside / "__init__.py").write_text("")
    monkeypatch.setattr(mild, "__file__", str(inside / "__init__.py"))
    assert commit() is None
    commit.cache_clear()
    monkeypatch.setenv("MILD_COMMIT", "abc")
    assert commit() == "abc"


def test_what_git_cannot_tell_counts_as_changed(package, monkeypatch):
    usual = surroundings._git
    slow = lambda folder, *words: None if words[0] == "status" else usual(folder, *words)  # noqa: E731
    monkeypatch.setattr(surroundings, "_git", slow)
    assert commit().endswith("+")


@pytest.mark.parametrize("error", [FileNotFoundError(), subprocess.TimeoutExpired("git", 5)])
def test_no_git_is_no_commit(monkeypatch, error):
    def missing(*args, **options):
        raise error

    monkeypatch.setattr(surroundings.subprocess, "run", missing)
    assert commit() is None
