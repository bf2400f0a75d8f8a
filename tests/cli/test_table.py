"""Tables that fit a terminal without breaking words."""

from __future__ import annotations

import pytest

from mild.cli.table import print_table

NAMES = ["llama3.2-1b", "qwen2.5-32b-coder-instruct", "mistralai/Mixtral-8x7B"]


def test_names_with_brackets_are_printed_as_they_are(capsys):
    print_table("title [x]", ["expert [red]"], [["[bold]large[/bold]"]])
    out = capsys.readouterr().out
    assert "[bold]large[/bold]" in out
    assert "title [x]" in out
    assert "expert [red]" in out


def test_numbers_stay_whole_in_a_table_too_narrow_for_long_words(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "27")
    rows = [["uncharacteristically", "-0.7070"]]
    print_table("t", ["parameters", "difference"], rows, unbroken=["difference"])
    lines = capsys.readouterr().out.splitlines()
    assert any("-0.7070" in line for line in lines)
    assert max(map(len, lines)) <= 27


def test_a_table_of_no_rows_is_a_header(capsys):
    print_table("t", ["expert", "share"], [])
    assert "share" in capsys.readouterr().out


def cells(out, column=0):
    """Lines of a column's body."""
    return [line.split("│")[column + 1].strip() for line in out.splitlines() if "│" in line]


@pytest.mark.parametrize("width", [44, 60, 80])
def test_names_break_at_their_hyphens_alone(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [[name, "0.422", "45.1 %", "100.0 %"] for name in NAMES]
    print_table("t", ["expert", "accuracy", "oracle's share", "only right"], rows)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    pieces = [piece for piece in cells(out) if piece]
    assert "".join(pieces) == "".join(NAMES)
    ends = ("1b", "instruct", "8x7B")
    assert all(piece.endswith((*ends, "-", "/")) for piece in pieces)
    assert [cell for cell in cells(out, 3) if cell] == ["100.0 %"] * 3


def test_columns_without_room_stand_in_a_further_table(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    header = ["method", "± over splits", "shares at random", "largest share", "recall", "seconds"]
    print_table("how", header, [["best constant", "0.0091", "0.0909", "50.0 %", "16.7 %", "0.0"]])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 40
    assert "(continued)" in out
    assert out.count("│ best ") == out.count("method") == 2
    for cell in ("0.0091", "0.0909", "50.0 %", "16.7 %", "0.0 "):
        assert cell in out
    # No word of a header is broken.
    assert {word for name in header for word in name.split()} <= set(out.split())


def test_where_there_is_no_room_at_all_nothing_is_lost(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "18")
    print_table("t", ["expert", "accuracy", "share"], [["uncharacteristically", "0.422", "45.1 %"]])
    assert "".join(cells(capsys.readouterr().out)) == "uncharacteristically"
