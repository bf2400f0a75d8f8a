"""Errors are one line; what is unexpected keeps its traceback; JSON stands alone."""

from __future__ import annotations

import json
import sys
import warnings

import pytest
import typer
from typer.testing import CliRunner

from mild.cli.console import emit, number, print_table, progress_bar, reported
from mild.exceptions import ConvergenceWarning, InvalidInputError


def invoke(verb, *words):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(reported(verb))
    return CliRunner().invoke(app, list(words))


def test_an_error_of_ours_is_one_line_and_exit_1():
    def verb() -> None:
        raise InvalidInputError("costs must be known.")

    done = invoke(verb)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "error: costs must be known.\n")


def test_with_json_the_error_is_on_stdout_too():
    def verb(as_json: bool = False) -> None:
        raise InvalidInputError("costs must be known.")

    done = invoke(verb, "--as-json")
    assert json.loads(done.stdout) == {"error": "costs must be known."}
    assert done.stderr == "error: costs must be known.\n"


def test_an_interrupt_is_one_sentence_and_exit_130():
    def verb(as_json: bool = False) -> None:
        raise KeyboardInterrupt

    done = invoke(verb)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "interrupted: nothing was written.\n"
    assert json.loads(invoke(verb, "--as-json").stdout) == {"error": "interrupted"}


def test_an_unexpected_error_is_not_swallowed():
    def verb() -> None:
        raise ZeroDivisionError("a bug")

    assert isinstance(invoke(verb).exception, ZeroDivisionError)


def test_warnings_of_ours_are_one_line_each():
    def verb() -> None:
        for _ in range(3):
            warnings.warn("the solver stopped.", ConvergenceWarning, stacklevel=1)

    done = invoke(verb)
    assert (done.exit_code, done.stderr) == (0, "warning: the solver stopped.\n")


def test_other_warnings_are_left_to_python():
    def verb() -> None:
        warnings.warn("not ours", UserWarning, stacklevel=1)

    assert isinstance(invoke(verb).exception, UserWarning)


def test_json_has_no_nan(capsys):
    emit({"a": float("nan"), "b": [float("inf"), 1.0]}, True, lambda: None)
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.0]}


def test_names_with_brackets_are_printed_as_they_are(capsys):
    print_table("title [x]", ["expert [red]"], [["[bold]large[/bold]"]])
    out = capsys.readouterr().out
    assert "[bold]large[/bold]" in out
    assert "title [x]" in out
    assert "expert [red]" in out


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.1235"), (None, "–"), (float("nan"), "–")])
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_the_bar_is_off_when_stderr_is_no_terminal(monkeypatch):
    with progress_bar("searching") as progress:
        assert progress is None


def test_the_bar_goes_to_stderr(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar("searching") as progress:
        progress(1, 2, "fold 1")
        progress(2, 2, "fold 2")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "fold 2" in captured.err


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
