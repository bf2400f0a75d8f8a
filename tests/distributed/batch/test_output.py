"""The folder of a job, where the file system does not do as it is told."""

from __future__ import annotations

import pytest
from pyarrow import fs

from mild.distributed.batch.output import Output
from mild.errors import DataFileError

FINGERPRINTS = {"router": "1", "input": "2", "options": "3"}


class Broken:
    """A file system that has lost one of its operations."""

    def __init__(self, lost):
        self._inner = fs.LocalFileSystem()
        self._lost = lost

    def __getattr__(self, name):
        if name == self._lost:
            return self._fail
        return getattr(self._inner, name)

    def _fail(self, *words, **more):
        raise OSError(5, "Input/output error")


@pytest.fixture
def output(tmp_path):
    made = Output(str(tmp_path / "out"))
    made.create()
    return made


@pytest.mark.parametrize(
    ("lost", "sentence"),
    [
        ("get_file_info", "cannot read {out}: Input/output error."),
        ("create_dir", "cannot write to {out}: Input/output error."),
        ("open_output_stream", "cannot write to {out}: Input/output error."),
        ("move", "cannot write to {out}: Input/output error."),
    ],
)
def test_a_folder_that_cannot_be_taken_is_said_in_a_sentence(output, lost, sentence):
    output.system = Broken(lost)
    with pytest.raises(DataFileError) as caught:
        output.begin(FINGERPRINTS, {}, "token", overwrite=False)
    assert str(caught.value) == sentence.format(out=output.out)


def test_what_is_stale_and_cannot_be_removed_is_named(output, tmp_path):
    (tmp_path / "out" / "_tmp-old").mkdir()
    output.system = Broken("delete_dir")
    with pytest.raises(DataFileError, match=r"cannot remove \S*/_tmp-old: Input/output error\."):
        output.begin(FINGERPRINTS, {}, "token", overwrite=False)


def test_what_is_finished_cannot_be_listed(output):
    output.system = Broken("get_file_info")
    with pytest.raises(DataFileError, match="cannot read"):
        output.finished([], [], "fingerprint")
    # What is left behind is the next run's to remove.
    output.clear("token")


@pytest.mark.parametrize("lost", ["get_file_info", "create_dir"])
def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path, lost):
    output = Output(str(tmp_path / "out"))
    output.system = Broken(lost)
    with pytest.raises(DataFileError, match=r"^cannot write to \S*out: Input/output error\.$"):
        output.create()
