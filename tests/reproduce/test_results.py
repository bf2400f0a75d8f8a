"""Results files: nothing is lost, nothing is half, and what is wrong is said with its place."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys

import pytest

import result_cases
from mild.exceptions import DataFileError, InvalidInputError, MildWarning
from mild.reproduce.results import append_record, cell_key, read_records, records_by_key
from result_cases import THEORY, make_record


def entries(folder) -> list[str]:
    return sorted(os.listdir(folder))


def test_what_was_appended_is_read_back_in_order_and_nothing_else_is_left(tmp_path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    records = [make_record(seed=seed, losses=0.05 + seed / 100) for seed in range(3)]
    for record in records:
        append_record(path, record)
    assert read_records(path) == records
    assert entries(path.parent) == ["results.jsonl"]
    assert path.read_bytes().count(b"\n") == 3


def test_names_beyond_ascii_survive(tmp_path) -> None:
    append_record(tmp_path / "r.jsonl", make_record(note="Straße, 分類"))
    assert read_records(tmp_path / "r.jsonl")[0]["note"] == "Straße, 分類"


def test_a_last_line_without_its_end_does_not_swallow_the_next(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(make_record(seed=0)))
    append_record(path, make_record(seed=1))
    assert [record["cell"]["seed"] for record in read_records(path)] == [0, 1]


def test_a_link_to_a_results_file_stays_a_link(tmp_path) -> None:
    append_record(tmp_path / "real.jsonl", make_record())
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    append_record(tmp_path / "link.jsonl", make_record(seed=1))
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(read_records(tmp_path / "real.jsonl")) == 2
    assert len(read_records(tmp_path)) == 2


def test_a_full_disk_leaves_the_old_content_and_says_so(tmp_path, monkeypatch) -> None:
    path = tmp_path / "r.jsonl"
    append_record(path, make_record())
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"r\.jsonl: No space left on device; what it held is"):
        append_record(path, make_record(seed=1))
    assert path.read_bytes() == before
    assert entries(tmp_path) == ["r.jsonl"]


def test_a_full_disk_says_nothing_of_a_file_that_was_not_there(tmp_path, monkeypatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"r\.jsonl: No space left on device\.$"):
        append_record(tmp_path / "r.jsonl", make_record())
    assert entries(tmp_path) == []


def test_a_write_that_the_system_cuts_short_leaves_the_old_content(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    append_record(path, make_record())
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
        with pytest.raises(DataFileError, match="File too large; what it held is untouched"):
            append_record(path, make_record(seed=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert entries(tmp_path) == ["r.jsonl"]


def test_a_folder_in_the_file_s_place_is_one_sentence(tmp_path) -> None:
    with pytest.raises(DataFileError, match=r"must be a regular file; .* is a folder"):
        append_record(tmp_path, make_record())


APPEND_MANY = """
import sys
sys.path.insert(0, sys.argv[3])
from mild.reproduce.results import append_record
from result_cases import make_record
for seed in range(20):
    append_record(sys.argv[1], make_record(seed=100 * int(sys.argv[2]) + seed))
"""


def test_processes_that_append_at_once_lose_no_record(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    tests = os.path.dirname(result_cases.__file__)
    workers = [
        subprocess.Popen([sys.executable, "-c", APPEND_MANY, str(path), str(k), tests])
        for k in range(4)
    ]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0, 0]
    seeds = sorted(record["cell"]["seed"] for record in read_records(path))
    assert seeds == sorted(100 * k + seed for k in range(4) for seed in range(20))
    assert entries(tmp_path) == ["r.jsonl"]


def test_a_bad_record_is_refused_before_anything_is_written(tmp_path) -> None:
    record = make_record(losses=float("nan"))
    with pytest.raises(InvalidInputError, match=r"a record must have a finite number .* got nan\."):
        append_record(tmp_path / "r.jsonl", record)
    with pytest.raises(InvalidInputError, match=r"must be plain JSON; .*not JSON serializable"):
        append_record(tmp_path / "r.jsonl", {**make_record(), "chosen": {1, 2}})
    with pytest.raises(
        InvalidInputError, match=r"must carry the key of its cell, [0-9a-f]{16}; got"
    ):
        append_record(tmp_path / "r.jsonl", {**make_record(), "key": "0" * 16})
    assert entries(tmp_path) == []


def test_a_record_of_another_version_says_file_line_versions_and_remedy(tmp_path) -> None:
    path = tmp_path / "old.jsonl"
    lines = [json.dumps(make_record()), "", json.dumps({**make_record(seed=1), "schema": 7})]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataFileError) as caught:
        read_records(path)
    assert str(caught.value) == (
        f"{path}, line 3: a record must have schema version 1; got 7. "
        f"Read it with the version of mild that wrote it, or newer."
    )


@pytest.mark.parametrize("schema", [None, 0, "1", True])
def test_a_record_without_a_version_we_know_is_refused(tmp_path, schema) -> None:
    (tmp_path / "r.jsonl").write_text(json.dumps({**make_record(), "schema": schema}))
    with pytest.raises(DataFileError, match=r"must have schema version 1; got .* into a new file"):
        read_records(tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    "line",
    ['{"schema": 1, "key": "a', "not json", '{"schema": NaN}', "[" * 100_000, "\udcff{}"],
    ids=["cut", "text", "nan", "deep", "bytes"],
)
def test_a_damaged_line_is_named_with_file_and_number(tmp_path, line) -> None:
    path = tmp_path / "r.jsonl"
    append_record(path, make_record())
    with path.open("ab") as file:
        file.write(line.encode(errors="surrogateescape") + b"\n")
    with pytest.raises(DataFileError, match=r"r\.jsonl, line 2: .*this line is damaged"):
        read_records(path)


def test_a_record_that_breaks_a_rule_or_was_edited_is_named_with_its_line(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    record = make_record()
    record["outcomes"]["argmax"]["shares"] = [0.5, 0.2, 0.2]
    path.write_text(json.dumps(record))
    with pytest.raises(DataFileError, match="line 1: a record must have a list of shares that sum"):
        read_records(path)
    record = make_record()
    record["cell"]["seed"] = 4
    path.write_text(json.dumps(record))
    with pytest.raises(DataFileError, match="line 1: a record must carry the key of its cell"):
        read_records(path)
    path.write_text("[]\n")
    with pytest.raises(DataFileError, match="it holds a list, as mild reproduce classifier writes"):
        read_records(path)
    path.write_text("3\n")
    with pytest.raises(
        DataFileError, match="line 1: a record must have schema version 1; got none"
    ):
        read_records(path)


def test_twins_with_the_same_outcomes_are_one_record_without_a_word(tmp_path) -> None:
    append_record(tmp_path / "a.jsonl", make_record())
    append_record(tmp_path / "b.jsonl", make_record(finished="2026-03-01T00:00:00+00:00"))
    records = read_records(tmp_path)
    assert [record["finished"][:7] for record in records] == ["2026-03"]


def test_the_record_that_finished_last_wins_and_a_warning_counts_the_others(tmp_path) -> None:
    late, early = "2026-03-01T00:30:00+00:00", "2026-03-01T01:00:00+02:00"
    append_record(tmp_path / "a.jsonl", make_record(losses=0.04, finished=late))
    append_record(tmp_path / "b.jsonl", make_record(losses=0.06, finished=early))
    append_record(tmp_path / "b.jsonl", make_record(seed=1))
    with pytest.warns(MildWarning, match="^1 record was superseded"):
        records = read_records([tmp_path / "b.jsonl", tmp_path / "a.jsonl"])
    assert [record["outcomes"]["argmax"]["loss"] for record in records] == [0.04, 0.05]


def test_a_moment_without_a_zone_is_universal_time(tmp_path) -> None:
    append_record(tmp_path / "a.jsonl", make_record(losses=0.04, finished="2026-03-01T00:30:00"))
    append_record(tmp_path / "a.jsonl", make_record(losses=0.06, finished="2026-03-01T00:20:00Z"))
    with pytest.warns(MildWarning, match="superseded"):
        assert read_records(tmp_path)[0]["outcomes"]["argmax"]["loss"] == 0.04


def test_a_file_named_twice_is_read_once(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    append_record(path, make_record())
    assert len(read_records([path, tmp_path, str(path)])) == 1


def test_missing_files_and_folders_without_results_say_what_to_do(tmp_path) -> None:
    with pytest.raises(DataFileError, match=r"nothing there. Run an experiment first: mild repr"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(
        DataFileError, match=r"must hold results files \(\*\.jsonl\); there is none"
    ):
        read_records(tmp_path)
    with pytest.raises(InvalidInputError, match="at least one results file"):
        read_records([])


def test_an_empty_results_file_has_no_records(tmp_path) -> None:
    (tmp_path / "r.jsonl").touch()
    assert read_records(tmp_path) == []


def test_records_are_found_by_key_and_a_file_that_is_not_there_has_none(tmp_path) -> None:
    path = tmp_path / "r.jsonl"
    record = make_record(THEORY, losses={"argmax": 0.5, "stationary": 0.06})
    assert records_by_key(path) == {}
    append_record(path, record)
    assert records_by_key(path) == {record["key"]: record}


def test_a_key_is_16_hex_digits_and_changes_with_every_value() -> None:
    cell = make_record()["cell"]
    key = cell_key(cell)
    assert len(key) == 16
    int(key, 16)
    assert key == cell_key(json.loads(json.dumps(cell)))
    assert key == cell_key({**dict(reversed(cell.items())), "coverage": (0.7, 0.2, 0.1)})
    for name in cell:
        assert cell_key({**cell, name: "other"}) != key


def test_a_key_is_the_same_in_years_to_come() -> None:
    assert cell_key({"seed": 0, "coverage": [0.9, 0.1]}) == "6fafb805348d08c2"


def test_a_cell_that_is_no_json_has_no_key() -> None:
    with pytest.raises(InvalidInputError, match="a cell must be plain JSON"):
        cell_key({"seed": object()})
