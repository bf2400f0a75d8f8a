import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

pytest.importorskip("torch")

from mild.exceptions import DataFileError, InvalidInputError
from mild.files import KERNEL_LOCKS
from mild.reproduce import classifier
from mild.reproduce.classifier import classifier_records, run_classifier
from mild.reproduce.data import load_images
from mild.reproduce.images.protocol import PROTOCOLS


@pytest.fixture
def digits():
    return load_images("digits")


def test_a_classifier_learns_and_is_trained_once_per_seed(digits, trainings, tmp_path):
    path = tmp_path / "classifier.json"
    first = run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu")
    assert first[0]["accuracy"] > 0.8
    assert first[0]["cell"]["table"] == "classifier"
    both = run_classifier(digits, PROTOCOLS["fast"], 2, path, device="cpu")
    assert len(trainings) == 2
    assert both[0] == first[0]
    assert classifier_records(path) == both


def test_protocols_are_kept_apart(digits, trainings, tmp_path):
    path = tmp_path / "classifier.json"
    for name in ("fast", "paper"):
        run_classifier(digits, PROTOCOLS[name], 1, path, device="cpu")
    names = [record["cell"]["protocol"]["name"] for record in classifier_records(path)]
    assert names == ["fast", "paper"]


def test_zero_seeds_are_refused(digits, tmp_path):
    with pytest.raises(InvalidInputError, match="at least 1; got 0"):
        run_classifier(digits, PROTOCOLS["fast"], 0, tmp_path / "c.json", device="cpu")


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "c.json"
    assert classifier_records(path) == []
    for content in ("[", json.dumps([{"schema": 7}]), json.dumps({"schema": 1})):
        path.write_text(content)
        with pytest.raises(DataFileError, match="Name another file"):
            classifier_records(path)


def test_what_another_process_added_meanwhile_is_kept(digits, trainings, tmp_path):
    path = tmp_path / "classifier.json"

    def other(done, total, message):
        run_classifier(digits, PROTOCOLS["paper"], 1, path, device="cpu")

    run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu", progress=other)
    names = [record["cell"]["protocol"]["name"] for record in classifier_records(path)]
    assert names == ["paper", "fast"]
    assert os.listdir(tmp_path) == ["classifier.json"]


@pytest.mark.skipif(not KERNEL_LOCKS, reason="no locks that end with their process")
def test_what_another_process_is_at_is_waited_for(digits, trainings, tmp_path, monkeypatch):
    path = tmp_path / "classifier.json"
    waits = threading.Event()
    told = []

    def second():
        def progress(done, total, message):
            told.append(message)
            waits.set()

        return run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu", progress=progress)

    with ThreadPoolExecutor(1) as pool:
        theirs = []

        def first(done, total, message):
            if not theirs:
                theirs.append(pool.submit(second))
                assert waits.wait(60)

        ours = run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu", progress=first)
        assert theirs[0].result() == ours
    assert told == ["waiting for another process"]
    assert len(trainings) == 1
    assert os.listdir(tmp_path) == ["classifier.json"]


def test_records_are_merged_under_the_lock_of_the_file(digits, trainings, tmp_path, monkeypatch):
    held = []

    @contextmanager
    def locked(target):
        held.append(target)
        yield
        held.append("free")

    replace = classifier.replace_json
    monkeypatch.setattr(classifier, "locked", locked)
    monkeypatch.setattr(
        classifier, "replace_json", lambda *given: held.append("write") or replace(*given)
    )
    run_classifier(digits, PROTOCOLS["fast"], 1, tmp_path / "c.json", device="cpu")
    assert held == [tmp_path / "c.json", "write", "free"]


@pytest.mark.parametrize("content", ['[{"schema": 1}]', "{}", "[3]", "no JSON"])
def test_a_file_without_what_a_record_must_hold_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    with pytest.raises(DataFileError, match="must hold records of classifiers"):
        classifier_records(tmp_path / "c.json")


def test_another_recipe_is_another_classifier(digits, trainings, tmp_path, monkeypatch):
    path = tmp_path / "classifier.json"
    run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu")
    monkeypatch.setattr("mild.reproduce.images.protocol.RECIPE", 2)
    run_classifier(digits, PROTOCOLS["fast"], 1, path, device="cpu")
    assert len(trainings) == 2
    assert [record["cell"].get("recipe") for record in classifier_records(path)] == [None, 2]
