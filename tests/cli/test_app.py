"""The command as a whole: help, version, start-up time, real processes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mild

COMMANDS = [
    "fit", "tune", "evaluate", "compare", "explain", "demo", "route", "describe", "convert",
]  # fmt: skip


def run(*words):
    command = [sys.executable, "-m", "mild", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_help_names_every_command(mild):
    done = mild("--help")
    assert done.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_takes_json(command, mild):
    done = mild(command, "--help")
    assert done.code == 0
    assert f"Example:\n    mild {command}" in done.out
    assert "--json" in done.out


def test_the_commands_of_the_library_need_no_other_distribution():
    from mild.cli.app import build_app

    assert [command.name for command in build_app().registered_commands] == COMMANDS


def test_the_version_is_that_of_the_package():
    assert run("--version").stdout.strip() == f"mild {mild.__version__}"


def test_an_interrupt_before_the_command_starts_says_that_nothing_was_saved():
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'mild.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from mild.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "interrupted: nothing was saved.\n"


def test_without_arguments_the_help_is_shown(mild):
    assert "Usage: mild" in mild().out + mild().err


def test_a_missing_option_is_a_usage_error(mild):
    done = mild("fit", "log.csv")
    assert done.code == 2
    assert "--out" in done.err


def test_help_opens_without_the_heavy_packages():
    code = (
        "import sys\n"
        "sys.argv = ['mild', '--help']\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'sklearn', 'scipy', 'pyarrow', 'torch', 'rich', 'matplotlib'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == "[]"


def test_a_session_in_real_processes(tables):
    router = tables.folder / "r"
    assert run("fit", tables.log, "--out", router).returncode == 0
    chosen = run("route", router, tables.new)
    assert len(chosen.stdout.splitlines()) == 160
    refused = run("fit", tables.log, "--out", router, "--json")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: ")
    assert "exists" in json.loads(refused.stdout)["error"]


def test_a_closed_pipe_is_no_error(fitted, tables):
    big = tables.write(tables.make(20_000, 2), "big.csv")
    command = f"{sys.executable} -m mild route {fitted} {big} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stdout.startswith('{"id": "q0", "expert": ')
    assert "Traceback" not in done.stderr
