"""Files of a dataset by path, folder, pattern or address."""

from __future__ import annotations

import pytest
from pyarrow import fs

from mild.distributed.partitions import covers, find_files, system_of
from mild.errors import DataFileError

FILES = [
    "a.parquet",
    "b.parquet",
    "x/c.parquet",
    "x/y/d.pq",
    "_tmp/e.parquet",
    ".f.parquet",
    "g.csv",
]


@pytest.fixture
def folder(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("", ["a.parquet", "b.parquet", "x/c.parquet", "x/y/d.pq"]),
        ("*.parquet", ["a.parquet", "b.parquet"]),
        ("[b-z].parquet", ["b.parquet"]),
        ("?.csv", ["g.csv"]),
        ("**/*.parquet", ["a.parquet", "b.parquet", "x/c.parquet"]),
        ("*/*.parquet", ["x/c.parquet"]),
        ("x*", ["x/c.parquet", "x/y/d.pq"]),
        ("x/**", ["x/c.parquet", "x/y/d.pq"]),
        ("g.csv", ["g.csv"]),
        ("_tmp/e.parquet", ["_tmp/e.parquet"]),
    ],
)
def test_what_a_source_finds_and_covers(folder, pattern, wanted):
    source = f"{folder}/{pattern}" if pattern else str(folder)
    found = [file.path.removeprefix(f"{folder}/") for file in find_files(source)]
    assert found == wanted
    if "?" not in pattern:
        assert [file.path for file in find_files(f"file://{source}")] == [
            f"{folder}/{name}" for name in wanted
        ]
    local = fs.LocalFileSystem()
    if (folder / pattern).is_file():
        return
    assert [name for name in sorted(FILES) if covers(source, local, f"{folder}/{name}")] == wanted


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    (tmp_path / "a[1].parquet").write_text("a")
    (tmp_path / "a1.parquet").write_text("b")
    found = find_files(str(tmp_path / "a[1].parquet"))
    assert [file.path for file in found] == [str(tmp_path / "a[1].parquet")]
    assert found[0].size == 1


def test_relative_paths_are_of_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [file.path for file in find_files("*.csv")] == [f"{folder}/g.csv"]
    assert system_of("x/*.pq").type_name == "local"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (" ", "must be a file, a folder or a pattern"),
        ("nowhere", "no such file or folder"),
        ("*.json", "that fit the pattern"),
        ("nobody://x", "cannot open nobody://x"),
        ("nobody://me:secret@x", "cannot open nobody://x: [^@]*$"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(tmp_path, monkeypatch, source, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataFileError, match=sentence):
        find_files(source)
