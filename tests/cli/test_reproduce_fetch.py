"""``mild reproduce fetch``: names are checked first, places are told at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

import mild.reproduce.data as data


@pytest.fixture
def fetched(monkeypatch):
    """Calls that reach the library, which fetches nothing."""
    calls = []

    def fake(name, data_dir, progress=None):
        calls.append((name, data_dir))
        return Path(data_dir)

    monkeypatch.setattr(data, "fetch_images", fake)
    return calls


def test_each_data_set_is_fetched_and_its_place_told(mild, fetched, tmp_path):
    done = mild("reproduce", "fetch", "cifar10", "digits", "--data-dir", tmp_path)
    assert done.code == 0, done.err
    assert fetched == [("cifar10", tmp_path), ("digits", tmp_path)]
    assert done.out == f"CIFAR-10 is in {tmp_path}.\ndigits comes with scikit-learn.\n"


def test_json_tells_the_places(mild, fetched):
    report = mild("reproduce", "fetch", "svhn", "--json").json()
    assert report == {"data_dir": "data", "places": {"svhn": "data"}}


def test_an_unknown_name_is_refused_before_anything_is_fetched(mild, fetched):
    done = mild("reproduce", "fetch", "cifar10", "cifar")
    assert done.code == 1
    assert "Did you mean 'cifar10'?" in done.err
    assert fetched == []


def test_no_name_is_a_usage_error(mild, fetched):
    assert mild("reproduce", "fetch").code == 2


@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupt_says_that_the_rest_can_follow(mild, monkeypatch, tmp_path, begun):
    def stop(name, data_dir, progress=None):
        if begun:
            data_dir.mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr(data, "fetch_images", stop)
    folder = tmp_path / "d"
    done = mild("reproduce", "fetch", "cifar10", "--data-dir", str(folder))
    assert done.code == 130
    kept = f"what has arrived is kept in {folder}" if begun else "nothing has arrived"
    assert done.err == f"interrupted: {kept}; run the same command again to go on.\n"


def test_a_file_is_no_folder_for_data(mild, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = mild("reproduce", "fetch", "cifar10", "--data-dir", tmp_path / "file")
    assert done.code == 1
    assert done.err == (
        f"error: --data-dir must be a folder; {tmp_path / 'file'} is a file. Name another one.\n"
    )
    assert (tmp_path / "file").read_text() == "mine"
