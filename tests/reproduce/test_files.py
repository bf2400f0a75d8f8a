import json
import os

import pytest

from mild.exceptions import DataFileError
from mild.reproduce.files import replace_json


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "new" / "a.json"
    replace_json(path, [1])
    replace_json(path, {"b": [2]})
    assert json.loads(path.read_text()) == {"b": [2]}
    assert os.listdir(path.parent) == ["a.json"]


def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_json(path, [1])

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left on device; what it held is untouched"):
        replace_json(path, [2])
    assert json.loads(path.read_text()) == [1]
    assert os.listdir(tmp_path) == ["a.json"]


def test_numbers_that_are_no_json_are_refused_and_leave_the_old_content(tmp_path):
    path = tmp_path / "a.json"
    replace_json(path, [1])
    with pytest.raises(ValueError, match="JSON"):
        replace_json(path, [float("nan")])
    assert os.listdir(tmp_path) == ["a.json"]
    assert json.loads(path.read_text()) == [1]
