"""Programs: text in, text out, in time."""

from __future__ import annotations

import asyncio
import sys

import pytest

from mild_gateway.collect.programs import run_program
from mild_gateway.experts.errors import ExpertError
from waiting import PATIENCE


def run(code, text="", timeout_s=PATIENCE):
    program = run_program([sys.executable, "-I", "-S", "-c", code], text, timeout_s)
    return asyncio.run(asyncio.wait_for(program, 2 * PATIENCE))


def test_what_it_prints_is_the_answer():
    assert run("print(input().upper() + '\\n')", "héllo") == "HÉLLO"


def test_it_need_not_read_what_it_gets():
    assert run("print(1)", "x" * 1_000_000) == "1"


def test_an_exit_code_is_a_failure_with_its_last_line():
    with pytest.raises(ExpertError, match="exit code 3: second") as caught:
        run("import sys; print('first\\nsecond', file=sys.stderr); sys.exit(3)")
    assert caught.value.kind == "client_error"


def test_a_program_that_is_not_there_closes_the_expert():
    with pytest.raises(ExpertError, match="cannot be run: No such file") as caught:
        asyncio.run(run_program(["/no/such/program"], "", 5))
    assert caught.value.permanent


def test_one_that_takes_too_long_ends_with_what_it_started():
    # Who waited for the second program would wait too long.
    code = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    )
    with pytest.raises(ExpertError, match=r"took longer than 0\.5 s") as caught:
        run(code, timeout_s=0.5)
    assert (caught.value.kind, caught.value.may_cost) == ("timeout", False)
