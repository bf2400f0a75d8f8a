import subprocess

import pytest

pytest.importorskip("torch")

import torch

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


def answering(answers):
    def git(words, **options):
        answer = answers[words[1]]
        if answer is None:
            raise subprocess.CalledProcessError(128, words)
        return subprocess.CompletedProcess(words, 0, stdout=answer)

    return git


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"ls-files": "surroundings.py", "rev-parse": "abc\n", "status": ""}, "abc"),
        ({"ls-files": "surroundings.py", "rev-parse": "abc\n", "status": " M run.py"}, "abc+"),
        ({"ls-files": None, "rev-parse": "abc", "status": ""}, None),
        ({"ls-files": "surroundings.py", "rev-parse": None, "status": ""}, None),
    ],
)
def test_a_commit_is_that_of_our_own_checkout(monkeypatch, answers, expected):
    monkeypatch.setattr(subprocess, "run", answering(answers))
    assert commit() == expected


@pytest.mark.parametrize("error", [FileNotFoundError(), subprocess.TimeoutExpired("git", 5)])
def test_no_git_is_no_commit(monkeypatch, error):
    def missing(*args, **options):
        raise error

    monkeypatch.setattr(surroundings.subprocess, "run", missing)
    assert commit() is None
