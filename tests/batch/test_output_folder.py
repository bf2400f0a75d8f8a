"""A folder of results appears when it is complete, or not at all."""

from __future__ import annotations

import json

import pytest
from pyarrow import fs

from mild.batch.output_folder import OutputFolder, part_name
from mild.errors import DataFileError, InvalidInputError, OutputExistsError


def write(output, content=b"rows", parts=2):
    with output.writing() as folder:
        for number in range(parts):
            with output.file_system.open_output_stream(f"{folder}/{part_name(number)}") as stream:
                stream.write(content)
        output.publish({"rows": 5})


def test_a_folder_gets_its_name_when_it_is_complete(tmp_path):
    output = OutputFolder(str(tmp_path / "a" / "out"), overwrite=False)
    output.check()
    with output.writing() as folder:
        assert not (tmp_path / "a" / "out").exists()
        (tmp_path / "a" / folder / part_name(0)).write_bytes(b"rows")
        output.publish({"rows": 5})
    names = sorted(path.name for path in (tmp_path / "a").rglob("*"))
    assert names == ["_SUCCESS", "out", "part-000000.parquet"]
    assert json.loads((tmp_path / "a" / "out" / "_SUCCESS").read_text()) == {"rows": 5}


@pytest.mark.parametrize("error", [KeyboardInterrupt, DataFileError, OSError(28, "No space left")])
def test_nothing_is_left_after_a_failure(tmp_path, error):
    output = OutputFolder(str(tmp_path / "out"), overwrite=False)

    def fail():
        with output.writing() as folder:
            (tmp_path / folder / part_name(0)).write_bytes(b"ro")
            raise error

    expected = DataFileError if isinstance(error, OSError) else error
    with pytest.raises(expected):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_refused_or_replaced_as_a_whole(tmp_path):
    out = str(tmp_path / "out")
    write(OutputFolder(out, overwrite=False), parts=3)
    with pytest.raises(OutputExistsError, match=r"exists; .*overwrite=True"):
        OutputFolder(out, overwrite=False).check()
    with (
        pytest.raises(KeyboardInterrupt),
        OutputFolder(out, overwrite=True).writing(),
    ):
        raise KeyboardInterrupt
    assert len(list((tmp_path / "out").iterdir())) == 4
    output = OutputFolder(out, overwrite=True)
    output.check()
    write(output, parts=1)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "_SUCCESS",
        "part-000000.parquet",
    ]


def test_other_things_are_never_removed(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years")
    with pytest.raises(OutputExistsError, match=r"thesis\.txt"):
        OutputFolder(str(tmp_path / "out"), overwrite=True).check()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="must be a folder"):
        OutputFolder(str(tmp_path / "file"), overwrite=True).check()
    with pytest.raises(InvalidInputError, match="must have a name"):
        OutputFolder(" ", overwrite=True)


def test_on_an_object_store_the_mark_of_success_comes_last(tmp_path, monkeypatch):
    output = OutputFolder(str(tmp_path / "out"), overwrite=False)
    moved = []

    store = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
    usual = store.move

    def move(source, target):
        moved.append(target.rpartition("/")[2])
        usual(source, target)

    class Recorded:
        def __getattr__(self, name):
            return move if name == "move" else getattr(store, name)

    monkeypatch.setattr(output, "file_system", Recorded())
    write(output)
    assert moved == ["part-000000.parquet", "part-000001.parquet", "_SUCCESS"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(moved)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
