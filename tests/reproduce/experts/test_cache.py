"""Trained experts on disk: given back unchanged, or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from mild.exceptions import ArtifactError, MildWarning
from mild.files import KERNEL_LOCKS
from mild.reproduce.experts.cache import ExpertCache, StoredExpert
from mild.reproduce.keys import content_key

KEY = content_key({"expert": 1})
EXPERT = StoredExpert(np.array([0, 1, 2]), np.array([2, 1]), {"accuracy": {"own": 0.5}})


@pytest.fixture
def cache(tmp_path) -> ExpertCache:
    return ExpertCache(tmp_path / "a" / "b")


def read(cache: ExpertCache, key: str = KEY) -> StoredExpert | None:
    return cache.read(key, n_train=3, n_test=2, n_classes=3)


def test_what_was_written_is_read_and_nothing_else_is_left(cache):
    assert read(cache) is None
    cache.write(KEY, EXPERT)
    found = read(cache)
    assert found.train.dtype == np.int64
    np.testing.assert_array_equal(found.train, EXPERT.train)
    np.testing.assert_array_equal(found.test, EXPERT.test)
    assert found.facts == EXPERT.facts
    assert list(cache.folder.iterdir()) == [cache.path(KEY)]


def test_writing_replaces(cache):
    cache.write(KEY, EXPERT)
    cache.write(KEY, StoredExpert(np.array([2, 2, 2]), EXPERT.test, {}))
    np.testing.assert_array_equal(read(cache).train, [2, 2, 2])


def test_every_changed_byte_is_noticed(cache):
    cache.write(KEY, EXPERT)
    path = cache.path(KEY)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.warns(MildWarning, match="trained again and the file replaced"):
            assert read(cache) is None, place


@pytest.mark.parametrize("length", [0, 4, 8, 50, -1])
def test_a_cut_off_file_is_not_trusted(cache, length):
    cache.write(KEY, EXPERT)
    path = cache.path(KEY)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.warns(MildWarning, match="damaged or no file of this expert"):
        assert read(cache) is None


def test_a_file_of_another_expert_is_not_trusted(cache):
    other = content_key({"expert": 2})
    cache.write(other, EXPERT)
    os.replace(cache.path(other), cache.path(KEY))
    with pytest.warns(MildWarning, match="it belongs to another expert"):
        assert read(cache) is None


def test_a_foreign_safetensors_file_is_not_trusted(cache):
    save_file({"train": EXPERT.train, "test": EXPERT.test}, cache.path(KEY))
    with pytest.warns(MildWarning, match="damaged or no file"):
        assert read(cache) is None


@pytest.mark.parametrize("header", ["[]", "1", "{}", '{"digest": 1}', "no json"])
def test_a_header_that_is_none_is_not_trusted(cache, header):
    save_file(
        {"train": EXPERT.train, "test": EXPERT.test}, cache.path(KEY), {"mild_expert": header}
    )
    with pytest.warns(MildWarning, match="damaged or no file"):
        assert read(cache) is None


@pytest.mark.parametrize("sizes", [(4, 2, 3), (3, 1, 3), (3, 2, 2)])
def test_answers_that_do_not_fit_the_data_are_not_trusted(cache, sizes):
    cache.write(KEY, EXPERT)
    with pytest.warns(MildWarning, match="has shape|outside"):
        assert cache.read(KEY, *sizes) is None


def test_a_folder_that_cannot_be_made_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"cannot keep trained experts in .*file"):
        ExpertCache(tmp_path / "file")
    with pytest.raises(
        ArtifactError, match=r"cannot keep trained experts in .*file/below: Not a dir"
    ):
        ExpertCache(tmp_path / "file" / "below")


def test_a_full_disk_is_said_and_leaves_the_old_file(cache, monkeypatch):
    cache.write(KEY, EXPERT)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left on device"):
        cache.write(KEY, StoredExpert(np.array([2, 2, 2]), EXPERT.test, {}))
    np.testing.assert_array_equal(read(cache).train, EXPERT.train)
    assert list(cache.folder.iterdir()) == [cache.path(KEY)]


# Claims an expert, and is killed.
KILLED = """
import os, signal, sys
from mild.reproduce.experts.cache import ExpertCache
with ExpertCache(sys.argv[1]).claim(sys.argv[2], lambda: sys.exit(3)):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not KERNEL_LOCKS, reason="the system has no such locks")
def test_a_claim_of_a_process_that_was_killed_holds_nobody_up(cache):
    command = [sys.executable, "-c", KILLED, cache.folder, KEY]
    assert subprocess.run(command).returncode == -9
    assert len(list(cache.folder.iterdir())) == 1
    waited = []
    with cache.claim(KEY, lambda: waited.append(KEY)):
        assert len(list(cache.folder.iterdir())) == 1
    assert waited == []
    assert list(cache.folder.iterdir()) == []


def test_experts_are_claimed_one_by_one(cache):
    waited = []
    with (
        cache.claim(KEY, lambda: waited.append(1)),
        cache.claim(content_key({"expert": 2}), lambda: waited.append(2)),
    ):
        assert waited == []


@pytest.mark.skipif(not KERNEL_LOCKS, reason="the system has no such locks")
def test_a_folder_that_is_gone_cannot_be_locked(cache):
    cache.folder.rmdir()
    with (
        pytest.raises(ArtifactError, match=r"cannot keep trained experts in .*No such file"),
        cache.claim(KEY, lambda: None),
    ):
        pass


def test_a_kept_expert_has_no_checkpoint(cache):
    cache.checkpoint(KEY).write_bytes(b"half of it")
    cache.write(KEY, EXPERT)
    assert list(cache.folder.iterdir()) == [cache.path(KEY)]
