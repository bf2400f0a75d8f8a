import os

import pytest

from mild.errors import DataFileError, OutputExistsError
from mild.report import write_report
from report_cases import cost_router, document_of, larger_case


@pytest.fixture(scope="module")
def document():
    return document_of(cost_router(), *larger_case(60))


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


def test_unusual_characters_are_written(document, tmp_path):
    page = write_report({**document, "title": "naïve 质量 \ud800"}, tmp_path / "report.html")
    assert "naïve 质量 " in page.read_text(encoding="utf-8")
