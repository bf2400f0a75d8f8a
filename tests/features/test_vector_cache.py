"""Vectors on disk come back, and only the right ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mild.errors import DataFileError
from mild.features.encoder import VectorCache, cache_folder

ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def cache(tmp_path):
    return VectorCache(tmp_path / "deep" / "vectors.sqlite", 3)


def test_a_stored_vector_is_returned_for_every_copy_of_its_text(cache):
    cache.put(["a", "\ud800"], ROWS)
    found = VectorCache(cache.path, 3).get(["new", "\ud800", "a", "a"])
    assert sorted(found) == [1, 2, 3]
    np.testing.assert_array_equal(found[1], ROWS[1])
    np.testing.assert_array_equal(found[3], ROWS[0])


def test_more_than_a_thousand_texts_are_looked_up(cache):
    texts = [f"text {number}" for number in range(1203)]
    rows = np.random.default_rng(0).normal(size=(1203, 3)).astype(np.float32)
    cache.put(texts, rows)
    found = cache.get(texts)
    np.testing.assert_array_equal([found[place] for place in range(1203)], rows)


def test_a_later_vector_replaces_an_earlier_one(cache):
    cache.put(["a"], ROWS[:1])
    cache.put(["a"], ROWS[1:])
    np.testing.assert_array_equal(cache.get(["a"])[0], ROWS[1])


def test_a_vector_of_another_width_or_not_finite_is_not_used(cache):
    cache.put(["a"], np.ones((1, 2), np.float32))
    cache.put(["b"], np.full((1, 3), np.nan, np.float32))
    assert cache.get(["a", "b"]) == {}


def test_a_file_that_is_not_a_database_is_refused_with_a_remedy(cache):
    cache.path.parent.mkdir()
    cache.path.write_text("not a database, but long enough to be read as the header of one")
    with pytest.raises(DataFileError, match=r"cannot be used .*; delete it"):
        cache.get(["a"])
    with pytest.raises(DataFileError, match="delete it"):
        cache.put(["a"], ROWS[:1])


def test_a_folder_that_cannot_be_created_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFileError, match="MILD_CACHE"):
        VectorCache(tmp_path / "file" / "vectors.sqlite", 3).get(["a"])


def test_the_folder_is_the_users_choice_or_the_systems(monkeypatch):
    monkeypatch.setenv("MILD_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere/vectors")
    monkeypatch.delenv("MILD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/mild/vectors")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("~/.cache/mild/vectors").expanduser()
