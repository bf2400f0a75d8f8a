"""Arrays from .npz archives."""

import numpy as np
import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data.npz import read_npz


def everything(name):
    return True


def test_only_what_is_wanted_is_read(tmp_path):
    file = tmp_path / "file.npz"
    np.savez(file, a=[1], b=np.array([None]))
    assert list(read_npz(file, lambda name: name == "a")) == ["a"]


def test_pickled_objects_are_never_loaded(tmp_path):
    file = tmp_path / "file.npz"
    np.savez(file, b=np.array([None]))
    with pytest.raises(DataFileError, match="b holds Python objects"):
        read_npz(file, everything)


def test_a_single_array_is_refused(tmp_path):
    np.save(tmp_path / "file.npy", [1, 2])
    with pytest.raises(DataFileError, match="single array"):
        read_npz(tmp_path / "file.npy", everything)


def test_every_shorter_piece_is_refused(tmp_path):
    file = tmp_path / "file.npz"
    np.savez(file, a=[1], b=[2])
    content = file.read_bytes()
    for length in range(0, len(content), 7):
        file.write_bytes(content[:length])
        with pytest.raises(DataFileError):
            read_npz(file, everything)


def test_what_cannot_be_opened_is_said(tmp_path):
    with pytest.raises(DataFileError, match="cannot be read"):
        read_npz(tmp_path, everything)
