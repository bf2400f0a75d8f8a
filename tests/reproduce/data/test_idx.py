"""IDX files."""

import gzip

import numpy as np
import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data.idx import read_idx

ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def test_plain_and_gzipped_files_hold_the_same(tmp_path, idx):
    (tmp_path / "a").write_bytes(idx(ARRAY))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(ARRAY)))
    for name in ("a", "a.gz"):
        found = read_idx(tmp_path / name, 3)
        np.testing.assert_array_equal(found, ARRAY)
        assert found.flags.writeable


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08", "starts with 000008"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x05", "3 dimension.*starts with 00000801"),
        (b"\x00\x00\x0d\x03" + b"\x00" * 12, "starts with 00000d03"),
    ],
)
def test_another_head_is_refused(tmp_path, content, said):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DataFileError, match=said):
        read_idx(tmp_path / "a", 3)


@pytest.mark.parametrize("change", [slice(None, -1), slice(None, 20)])
def test_too_few_bytes_are_refused(tmp_path, idx, change):
    (tmp_path / "a").write_bytes(idx(ARRAY)[change])
    with pytest.raises(DataFileError, match="2 x 3 x 4 = 24 bytes"):
        read_idx(tmp_path / "a", 3)


def test_too_many_bytes_are_refused(tmp_path, idx):
    (tmp_path / "a").write_bytes(idx(ARRAY) + b"!")
    with pytest.raises(DataFileError, match="it has 25"):
        read_idx(tmp_path / "a", 3)


def test_every_shorter_piece_of_a_gzipped_file_is_refused(tmp_path, idx):
    content = gzip.compress(idx(ARRAY))
    for length in range(len(content)):
        (tmp_path / "a.gz").write_bytes(content[:length])
        with pytest.raises(DataFileError):
            read_idx(tmp_path / "a.gz", 3)


def test_what_is_not_gzipped_is_refused(tmp_path, idx):
    (tmp_path / "a.gz").write_bytes(idx(ARRAY))
    with pytest.raises(DataFileError, match=r"not a complete \.gz file"):
        read_idx(tmp_path / "a.gz", 3)


def test_what_cannot_be_opened_is_said(tmp_path):
    with pytest.raises(DataFileError, match="cannot be read"):
        read_idx(tmp_path, 3)
