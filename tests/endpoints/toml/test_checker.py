"""Values of a TOML file: each kind is checked, and refused with its line."""

from __future__ import annotations

import pytest

from mild.endpoints.toml import read_toml
from mild.errors import DataFileError

SECRET = "sk-hidden"


def checker(tmp_path, text):
    file = tmp_path / "a.toml"
    file.write_text(text)
    return read_toml(file)


@pytest.mark.parametrize(
    ("ask", "text", "said"),
    [
        (lambda c: c.flag(("on",), False), "on = 1", "on must be true or false; got 1."),
        (
            lambda c: c.whole(("n",), 1, 1, 5),
            "n = 6",
            "n must be a whole number from 1 to 5; got 6.",
        ),
        (
            lambda c: c.whole(("n",), 1, 1),
            "n = true",
            "n must be a whole number of at least 1; got True.",
        ),
        (lambda c: c.number(("x",), 1.0), "x = nan", "x must be a number at least 0; got nan."),
        (lambda c: c.number(("x",), 1.0, True), "x = 0", "x must be a number above 0; got 0."),
        (
            lambda c: c.choice(("w",), "a", ("a", "b")),
            f'w = "{SECRET}"',
            'w must be "a" or "b"; got text that is neither.',
        ),
        (
            lambda c: c.text(("t",), None),
            "t = 2026-01-01",
            "t must be text in quotes; got a date or time.",
        ),
        (lambda c: c.table(("t",)), "t = [1]", "t must be a table; got a list."),
    ],
)
def test_a_wrong_value_is_refused_with_its_line_and_no_text_is_shown(tmp_path, ask, text, said):
    found = checker(tmp_path, f"# first\n{text}\n")
    with pytest.raises(DataFileError) as caught:
        ask(found)
    assert str(caught.value) == f"{tmp_path / 'a.toml'}, line 2: {said}"
    assert SECRET not in str(caught.value)


def test_what_is_not_said_has_its_default(tmp_path):
    found = checker(tmp_path, "")
    assert found.flag(("a",), None) is None
    assert found.whole(("a",), None, 1) is None
    assert found.choice(("a",), "x", ("x",)) == "x"
    assert found.place(("a",)) == str(tmp_path / "a.toml")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = ", "it is not TOML: "),
        (b"a = '\xff'", "a TOML file must be UTF-8; byte 5 is not."),
        (None, "it cannot be read: No such file or directory."),
    ],
)
def test_a_file_that_is_no_toml_is_refused(tmp_path, content, said):
    file = tmp_path / "a.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DataFileError, match=r"a\.toml: ") as caught:
        read_toml(file)
    assert said in str(caught.value)
