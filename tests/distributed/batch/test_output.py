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
    "lost", ["get_file_info", "create_dir", "open_output_stream", "move", "delete_dir"]
)
def test_a_folder_that_cannot_be_taken_is_said_in_a_sentence(output, tmp_path, lost):
    (tmp_path / "out" / "_tmp-old").mkdir()
    output.system = Broken(lost)
    with pytest.raises(DataFileError) as caught, output.errors():
        output.begin(FINGERPRINTS, {}, overwrite=False)
    assert str(caught.value) == f"cannot write to {output.out}: Input/output error."


def test_unfinished_files_that_cannot_be_removed_are_left_to_the_next_run(output):
    output.system = Broken("delete_dir")
    output.clear()


@pytest.mark.parametrize("lost", ["get_file_info", "create_dir"])
def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path, lost):
    output = Output(str(tmp_path / "out"))
    output.system = Broken(lost)
    message = r"^cannot write to \S*out: Input/output error\.$"
    with pytest.raises(DataFileError, match=message), output.errors():
        output.create()
