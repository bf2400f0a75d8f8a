"""The commands of the README and of the tutorial run as written, and print what is shown."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

import mild

ROOT = Path(__file__).parents[1]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "getting-started.md"
# A block of code with its language and its title, also indented in a tab.
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
NUMBER = r"\d[\d,]*(?:\.\d+)?"
SERVE = "mild serve --demo"


def blocks(document: Path) -> list[tuple[str, str, str]]:
    """Language, title and content of the blocks of code of a page."""
    found = BLOCK.findall(document.read_text(encoding="utf-8"))
    return [(language, title, textwrap.dedent(text)) for _, language, title, text in found]


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "100",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


def shown(wanted: str, got: str) -> bool:
    """Whether a command printed what a page shows; ... stands for any text, as in doctests.

    Numbers may differ by 2 %, because solvers round differently on other processors.
    """
    wanted, got = (" ".join(re.sub("[━┏┓┳╇┡┩┃│└┘┴─]", " ", text).split()) for text in (wanted, got))
    parts = re.split(rf"({NUMBER}|\.\.\.)", wanted)
    numbers = [float(part.replace(",", "")) for part in parts if re.fullmatch(NUMBER, part)]
    pattern = [
        f"({NUMBER})" if re.fullmatch(NUMBER, part) else ".*" if part == "..." else re.escape(part)
        for part in parts
    ]
    match = re.fullmatch("".join(pattern), got, re.DOTALL)
    if match is None:
        return False
    values = [float(text.replace(",", "")) for text in match.groups()]
    return values == pytest.approx(numbers, rel=0.02, abs=0.005)


@pytest.mark.slow
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    parts = blocks(TUTORIAL)
    got, checked = "", 0
    for language, title, text in parts:
        if title:
            (tmp_path / title).write_text(text, encoding="utf-8")
        elif language == "sh" and not text.startswith((SERVE, "curl")):
            got = run(text, tmp_path)
        elif language == "text":
            assert shown(text, got), f"shown:\n{text}\nprinted:\n{got}"
            checked += 1
    assert checked == sum(language == "text" for language, *_ in parts) >= 4
    assert mild.read_outcomes(tmp_path / "mylog.csv").experts == ["large", "small"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
def test_the_gateway_of_the_tutorial_answers(tmp_path: Path) -> None:
    commands = [text for language, _, text in blocks(TUTORIAL) if language == "sh"]
    (serve,) = (text.split() for text in commands if text.startswith(SERVE))
    (curl,) = (text for text in commands if text.startswith("curl"))
    # A free port, because tests run side by side.
    asked = [sys.executable, "-m", *serve, "--port", "0"]
    process = subprocess.Popen(asked, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = re.search(r":(\d+)", process.stdout.readline())
        assert port is not None
        got = run(curl.replace(":6060/", f":{port[1]}/"), tmp_path)
    finally:
        process.terminate()
        process.communicate()
    assert json.loads(got)["model"] == "rules"


def test_every_command_of_the_readme_is_in_the_tutorial() -> None:
    def commands(document: Path) -> set[str]:
        text = "".join(part for language, _, part in blocks(document) if language == "sh")
        lines = text.replace("\\\n", " ").replace(",\n", ", ").splitlines()
        return {" ".join(line.partition(" #")[0].split()) for line in lines}

    own = {line for line in commands(README) if line.startswith(("mild", "curl"))}
    assert len(own) >= 6
    assert own <= commands(TUTORIAL)


def test_other_words_and_other_numbers_are_noticed_and_rounding_is_not() -> None:
    page = "...\n│ router │ 60.4 % │\nIt adds $1.05 for 1,000 inputs. ..."
    printed = "a table\n│ router │ 60.5 %  │\nIt adds $1.05 for 1,000\ninputs. The end."
    assert shown(page, printed)
    assert not shown(page, printed.replace("60.5", "63.4"))
    assert not shown(page, printed.replace("adds", "saves"))
    assert not shown("It adds $1.05.", "It adds $1.05. More.")


@pytest.mark.slow
def test_the_commands_of_the_experiments_take_what_the_documents_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [README, ROOT / "docs" / "science" / "reproduction.md"]
    lines = [
        line.split("#")[0].split()
        for page in pages
        for line in page.read_text(encoding="utf-8").splitlines()
    ]
    commands = {tuple(words[2:]) for words in lines if words[:2] == ["python", "-m"]}
    assert len(commands) == 5
    for module, *words in sorted(commands):
        # With --help a command only says what it takes; what it does not take is an error before that.
        parts = [word for word in words if not word.startswith("-") and "." not in word]
        monkeypatch.setattr(sys, "argv", [module, *parts[:1], "--help"])
        run_as_main(module)
        shown_help = capsys.readouterr().out
        for option in (word for word in words if word.startswith("--")):
            assert option in shown_help


def run_as_main(module: str) -> None:
    """What ``python -m MODULE`` does, in this process: all of them import torch, which takes seconds."""
    with warnings.catch_warnings():
        # Another test may have imported the module.
        warnings.filterwarnings("ignore", "'.*' found in sys.modules", RuntimeWarning)
        with pytest.raises(SystemExit) as end:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert end.value.code in (0, None)
