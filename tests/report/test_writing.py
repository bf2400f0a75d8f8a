import json
import os

import pytest

from mild.errors import DataFileError, OutputExistsError
from mild.report import read_document, write_document, write_report
from report_cases import cost_router, document_of, larger_case


@pytest.fixture(scope="module")
def document():
    return document_of(cost_router(), *larger_case(60))


def test_a_document_comes_back_from_its_file(document, tmp_path):
    file = write_document(document, tmp_path / "evaluation.json")
    assert read_document(file) == document
    report = write_report(read_document(file), tmp_path / "report.html")
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_report_appears_whole_or_not_at_all(document, tmp_path, monkeypatch):
    target = tmp_path / "report.html"
    target.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(DataFileError, match="No space left"):
        write_report(document, target)
    assert target.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_paths_that_cannot_be_written_are_refused(document, tmp_path):
    with pytest.raises(DataFileError, match=r"must end in \.html; got '\.txt'"):
        write_report(document, tmp_path / "report.txt")
    with pytest.raises(DataFileError, match="not a writable folder"):
        write_report(document, tmp_path / "nowhere" / "report.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(OutputExistsError, match="a folder is there"):
        write_report(document, tmp_path / "folder.html")
    write_report(document, tmp_path / "report.html")
    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        write_report(document, tmp_path / "report.html", overwrite=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "it is not JSON"),
        ("[1]", "got schema None"),
        ('{"schema": 7}', "got schema 7"),
        ('{"schema": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_file_that_is_no_evaluation_is_refused(content, said, tmp_path):
    file = tmp_path / "evaluation.json"
    file.write_text(content)
    with pytest.raises(DataFileError, match=said):
        read_document(file)
    with pytest.raises(DataFileError, match="cannot read"):
        read_document(tmp_path / "missing.json")


def test_unusual_characters_survive_the_file(document, tmp_path):
    odd = {**document, "title": "naïve 质量 \ud800"}
    file = write_document(odd, tmp_path / "evaluation.json")
    assert json.loads(file.read_text(encoding="utf-8"))["title"].startswith("naïve 质量 ")
    write_report(odd, tmp_path / "report.html")
