"""Configuration files: every problem is named with its line, and no text of the file is shown."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic.dataclasses import dataclass

from mild.errors import DataFileError
from mild_gateway.experts.config_file import CONFIG, Amount, Flag, Positive, Text, read_toml, whole

SECRET = "sk-hidden"


@dataclass(frozen=True, config=CONFIG)
class Inner:
    size: Annotated[int, whole(1, 5)] = 1


@dataclass(frozen=True, config=CONFIG)
class Outer:
    on: Flag = False
    count: Annotated[int, whole(1)] = 1
    price: Amount = 1.0
    seconds: Positive = 1.0
    word: Literal["a", "b"] = "a"
    text: Text | None = None
    inner: Inner = Inner()


def problems(tmp_path, text):
    path = tmp_path / "a.toml"
    path.write_text(text)
    config = read_toml(path)
    config.validate(Outer, config.content)
    return [problem.removeprefix(f"{path}, line ") for problem in config.problems]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on = 1", "on must be true or false; got 1."),
        ("count = true", "count must be a whole number of at least 1; got True."),
        ("count = 1.0", "count must be a whole number of at least 1; got 1.0."),
        ("count = 9999999999999999", "count must be at most 1e+15; got 9999999999999999."),
        ("seconds = 1e300", "seconds must be at most 1e+15; got 1e+300."),
        ("price = nan", "price must be a number of at least 0; got nan."),
        ("price = true", "price must be a number of at least 0; got True."),
        (f'price = "{SECRET}"', "price must be a number of at least 0; got text."),
        ("seconds = 0", "seconds must be a number above 0; got 0."),
        (f'word = "{SECRET}"', 'word must be "a" or "b".'),
        ("text = 2026-01-01", "text must be text in quotes; got a date or time."),
        ("inner = [1]", "inner must be a table."),
        ("inner.size = 6", "inner.size must be a whole number from 1 to 5; got 6."),
        ("inner.sise = 6", "inner.sise is unknown; did you mean size?"),
        (
            "zzz = 6",
            "zzz is unknown; the known names are on, count, price, seconds, word, text, inner.",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path, text, said):
    assert problems(tmp_path, f"# first\n{text}\n") == [f"2: {said}"]


def test_all_problems_are_named_at_once(tmp_path):
    found = problems(tmp_path, "on = 1\nprice = -1\n[inner]\nsize = 9\nother = 2\n")
    assert sorted(problem.partition(":")[0] for problem in found) == ["1", "2", "4", "5"]


def test_whole_numbers_are_numbers(tmp_path):
    path = tmp_path / "a.toml"
    # With the mark that editors of Windows put at the beginning.
    path.write_text("\ufeffprice = 3\n", encoding="utf-8")
    config = read_toml(path)
    assert config.validate(Outer, config.content) == Outer(price=3.0)
    config.check()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = '\xff'", "byte 5"),
        (b"a = ", "not TOML"),
        (b"a=" + b"[" * 5000, "TOML"),
        (b"a = " + b"9" * 5000, "not TOML: .* 5000 digits"),
    ],
)
def test_what_is_not_toml_is_refused_in_one_sentence(tmp_path, content, said):
    path = tmp_path / "a.toml"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=said):
        read_toml(path)
