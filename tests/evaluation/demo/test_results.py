"""What is left on disk."""

from __future__ import annotations

import csv
import json

import pytest

from mild.errors import DataFileError, OutputExistsError
from mild.evaluation.demo.tables import FILES, check_folder, write_results


def draw(results, path):
    path.write_bytes(b"figure")


def test_json_holds_data_seeds_settings_versions_hardware_and_every_number(small_results, tmp_path):
    document = small_results.document
    write_results(small_results, tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored == json.loads(json.dumps(document))
    assert stored["seeds"] == [0, 1]
    assert stored["settings"]["alphas"] == [1e-4]
    assert {"python", "numpy", "scikit-learn", "mild"} <= set(stored["versions"])
    assert stored["hardware"]["cores"] >= 1
    assert set(stored["data"]["setups"]) == {"III", "severe"}
    row = stored["blocks"][0]["rows"][0]
    assert len(row["losses"]) == len(row["shares"]) == 2
    gap = stored["blocks"][0]["rows"][1]["minus_tdef"]
    assert gap["low"] <= gap["estimate"] <= gap["high"]
    assert stored["findings"]
    assert len(stored["long_tail"][0]["losses"]) == 2
    assert stored["line"]["best_regions"][0]["expert"] == 2


def test_csv_has_one_line_per_block_method_and_seed(small_results, tmp_path):
    write_results(small_results, tmp_path)
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    document = small_results.document
    blocks = (*document["blocks"], document["region_case"])
    assert len(lines) == sum(len(block["rows"]) * 2 for block in blocks)
    first = lines[0]
    source = document["blocks"][0]["rows"][0]
    assert first["method"] == source["method"]
    assert float(first["loss"]) == pytest.approx(source["losses"][0])
    assert float(first["share_5"]) == pytest.approx(source["shares"][0][4], abs=1e-5)
    severe = next(line for line in lines if line["setup"] == "severe")
    assert severe["share_3"] == ""


def test_a_second_run_replaces_its_own_files_and_leaves_no_stale_figure(small_results, tmp_path):
    folder = tmp_path / "demo-results"
    written = write_results(small_results, folder, {"overview.png": draw, "pictures.png": draw})
    assert {path.name for path in written} == set(FILES)
    assert {path.name for path in folder.iterdir()} == set(FILES)
    write_results(small_results, folder)
    assert {path.name for path in folder.iterdir()} == {"results.json", "results.csv"}


def test_a_folder_with_other_things_is_refused_and_untouched(small_results, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"holds 'thesis.tex'\. Choose another --out"):
        write_results(small_results, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    target = tmp_path / "out"
    target.write_text("x")
    with pytest.raises(OutputExistsError, match="is a file"):
        check_folder(target)
    with pytest.raises(DataFileError, match="cannot be written to"):
        check_folder(target / "deeper")


def test_what_an_interrupted_run_left_does_not_block_the_next(small_results, tmp_path):
    drawn = []
    write_results(small_results, tmp_path, {"overview.png": lambda _, path: drawn.append(path)})
    # A kill would have left it.
    assert drawn[0].parent == tmp_path
    assert not drawn[0].exists()
    drawn[0].write_bytes(b"half")
    check_folder(tmp_path)
    write_results(small_results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.csv"}


def test_a_figure_that_fails_leaves_no_half_file_under_its_name(small_results, tmp_path):
    def fail(results, path):
        path.write_bytes(b"half")
        raise OSError("disk full")

    with pytest.raises(DataFileError, match=r"could not be written .*disk full"):
        write_results(small_results, tmp_path, {"overview.png": fail})
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.csv"}
