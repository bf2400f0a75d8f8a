"""Tables on a terminal: numbers stay whole and are right-aligned, names wrap."""

from __future__ import annotations

import pytest

from mild.cli.console import print_table

NAMES = ["llama3.2-1b", "qwen2.5-32b-coder-instruct", "mistralai/Mixtral-8x7B"]


def cells(out, column):
    """Lines of a column's body, with their blanks."""
    return [line.split("│")[column + 1] for line in out.splitlines() if "│" in line]


def test_names_with_brackets_are_printed_as_they_are(capsys):
    print_table("title [x]", {"expert [red]": ["[bold]large[/bold]"]})
    out = capsys.readouterr().out
    assert "[bold]large[/bold]" in out
    assert "title [x]" in out
    assert "expert [red]" in out


def test_a_table_of_no_rows_is_a_header(capsys):
    print_table("t", {"expert": [], "share": []})
    assert "share" in capsys.readouterr().out


@pytest.mark.parametrize("width", [60, 80])
def test_numbers_are_whole_and_right_aligned(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    values = ["0.422", "45.1 %", "100.0 %", "* 1.25"]
    header = ["accuracy", "oracle's share", "only right", "mean loss"]
    cells_of = dict(zip(header, ([value] * 3 for value in values), strict=True))
    print_table("t", {"expert": NAMES, **cells_of})
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "".join(cell.strip() for cell in cells(out, 0)) == "".join(NAMES)
    for column, value in enumerate(values, 1):
        found = [cell for cell in cells(out, column) if cell.strip()]
        assert [cell.strip() for cell in found] == [value] * 3
        assert all(cell.endswith(f"{value} ") for cell in found)


def test_columns_of_words_can_be_left_aligned(capsys):
    print_table("t", {"name": ["a", "b"], "words": ["one", "one two"]}, left=["words"])
    assert cells(capsys.readouterr().out, 1) == [" one     ", " one two "]


@pytest.mark.parametrize("width", [60, 80])
def test_columns_that_do_not_fit_follow_in_a_second_table(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["best constant", "cost regression"]
    header = ["shares at random", "balanced cost", "seconds", "minority recall", "$ per 1,000"]
    print_table(
        "t", {"method": names, **{name: ["0.6853", "12.25"] for name in [*header, "recall"]}}
    )
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    words = set(out.replace("│", " ").replace("┃", " ").split())
    assert {word for name in [*names, *header] for word in name.split()} <= words
