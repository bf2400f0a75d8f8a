"""Errors are one line; what is unexpected keeps its traceback; JSON stands alone."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mild import errors
from mild.cli import console
from mild.cli.console import MildCommand, emit, fixed, print_table, progress_bar, wrapped
from mild.errors import ConvergenceWarning, InvalidInputError


def invoke(command, *words):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(cls=MildCommand)(command)
    return CliRunner().invoke(app, list(words))


def test_an_error_of_mild_is_one_line_and_exit_1():
    def command() -> None:
        raise InvalidInputError("costs must be known.")

    done = invoke(command)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "error: costs must be known.\n")


def test_with_json_the_error_is_on_stdout_too():
    def command(as_json: bool = False) -> None:
        raise InvalidInputError("costs must be known.")

    done = invoke(command, "--as-json")
    assert json.loads(done.stdout) == {"error": "costs must be known.", "code": "invalid_input"}
    assert done.stderr == "error: costs must be known.\n"


def test_an_interrupt_is_one_sentence_and_exit_130():
    def command(as_json: bool = False) -> None:
        raise KeyboardInterrupt

    done = invoke(command)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == "interrupted: nothing was saved.\n"
    found = json.loads(invoke(command, "--as-json").stdout)
    assert found == {"error": "interrupted", "code": "interrupted"}


def test_an_unexpected_error_is_not_swallowed():
    def command() -> None:
        raise ZeroDivisionError("a bug")

    assert isinstance(invoke(command).exception, ZeroDivisionError)


def test_warnings_of_mild_are_one_line_each():
    def command() -> None:
        for _ in range(3):
            warnings.warn("the solver stopped.", ConvergenceWarning, stacklevel=1)

    done = invoke(command)
    assert (done.exit_code, done.stderr) == (0, "warning: the solver stopped.\n")


def test_solvers_that_stopped_early_give_one_warning():
    class ConvergenceWarning(UserWarning):  # as scikit-learn's
        pass

    def command() -> None:
        for category in (ConvergenceWarning, errors.ConvergenceWarning):
            for steps in range(3):
                warnings.warn(f"stopped\nafter {steps} steps.", category, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        done = invoke(command)
    assert (done.exit_code, done.stderr) == (0, "warning: stopped after 0 steps.\n")


def test_other_warnings_are_left_to_python():
    def command() -> None:
        warnings.warn("not ours", UserWarning, stacklevel=1)

    assert isinstance(invoke(command).exception, UserWarning)


def test_json_has_no_nan(capsys):
    emit({"a": float("nan"), "b": [float("inf"), 1.0]}, True, lambda: None)
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.0]}


@pytest.mark.parametrize(("value", "text"), [(0.12345, "0.1235"), (None, "–"), (float("nan"), "–")])
def test_numbers_are_short(value, text):
    assert fixed(value) == text


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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [20, 33, 80])
def test_a_terminal_shows_whole_words(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = (
        "note: 486 rows are ties (26.8 %): all that were asked score the same, by qwen-2.5-coder."
    )
    lines = wrapped(text, Terminal()).split("\n")
    assert max(map(len, lines)) <= width
    assert " ".join(lines) == text


def test_lines_wrap_only_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    text = "a sentence that is longer than twenty letters"
    assert wrapped(text, io.StringIO()) == text


def test_a_point_of_a_list_is_indented(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    assert wrapped("- one two three four five", Terminal()) == "- one two three four\n  five"


def test_a_message_is_printed_as_it_is():
    message = "guarantee must come with max_quality_loss; replace r with overwrite=True."

    def command(overwrite: bool = False, guarantee: float = 0.0) -> None:
        console.note(message)
        raise InvalidInputError(message, parameter="guarantee")

    assert invoke(command).stderr == f"note: {message}\nerror: {message}\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_a_full_disk_is_an_error_of_one_sentence(words):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mild", *words], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device.\n"


# Tables: numbers stay whole and are right-aligned, names wrap.

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
