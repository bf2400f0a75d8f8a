"""Streams cut into lines: none is lost, none is kept for ever."""

from __future__ import annotations

import gzip
import io
import os
import threading
import time

import pytest

from mild.batch import streaming
from mild.batch.streaming import read_blocks
from mild.errors import DataFileError


def lines_of(content, size=64):
    return [line for block in read_blocks(io.BytesIO(content), size) for line in block.lines]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "content", [b"", b"\n", b"one", b"one\ntwo\n", b"one\n\nthree", b"x" * 300_000 + b"\ny"]
)
def test_blocks_are_the_lines_of_the_stream(content, size):
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines_of(content, size) == expected


def test_lines_are_numbered_across_blocks():
    content = b"".join(b"%d\n" % i for i in range(30_000))
    numbers = []
    for block in read_blocks(io.BytesIO(content), 1000):
        for number, line in enumerate(block.lines, block.first):
            numbers.append(number)
            assert line == b"%d" % (number - 1)
    assert numbers == list(range(1, 30_001))


def test_an_endless_line_is_not_kept(monkeypatch):
    monkeypatch.setattr(streaming, "LONGEST_LINE", 100_000)
    assert lines_of(b"a\n" + b"x" * 500_000 + b"\nb\n") == [b"a", None, b"b"]
    assert lines_of(b"x" * 500_000) == [None]


def test_lines_are_given_as_soon_as_they_arrive():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as sink:
        found = read_blocks(source)
        sink.write(b"first\n")
        sink.flush()
        assert next(found).lines == [b"first"]
        threading.Thread(
            target=lambda: (time.sleep(0.05), sink.write(b"second\n"), sink.flush())
        ).start()
        assert next(found).lines == [b"second"]


def test_a_stream_that_breaks_is_an_error_of_one_sentence():
    class Broken(io.RawIOBase):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(DataFileError, match="cannot read the queries: Input/output error"):
        list(read_blocks(Broken()))


def test_a_gzipped_file_that_is_cut_off_is_an_error_of_one_sentence(tmp_path):
    path = tmp_path / "queries.txt.gz"
    path.write_bytes(gzip.compress(os.urandom(50_000))[:20_000])
    with gzip.open(path) as stream, pytest.raises(DataFileError, match="cannot read the queries: "):
        list(read_blocks(stream))
