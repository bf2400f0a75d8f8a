"""The command ``mild``: in a process of its own as a user has it, and in this one, which is faster."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from mild.cli import main

# Seconds that a process may take on a machine that is busy.
LONGEST = 600


@dataclass
class Finished:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def figures(self) -> Any:
        """What it prints as JSON."""
        return json.loads(self.out)


def process(folder: Path, words: Sequence[str], stdin: str | None = None) -> Finished:
    """Run ``python WORDS`` in a folder."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=LONGEST,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def mild(folder: Path, words: Sequence[str], stdin: str | None = None) -> Finished:
    """Run ``mild WORDS`` in a folder and a process; it must do what it is asked."""
    done = process(folder, ["-m", "mild", *words], stdin)
    assert done.code == 0, f"mild {' '.join(words)}: {done.code}\n{done.err}"
    return done


def mild_here(folder: Path, words: Sequence[str], stdin: str = "") -> Finished:
    """Run ``mild WORDS`` in a folder and this process. An error that mild does not expect is raised."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch("sys.argv", ["mild", *words]),
        mock.patch("sys.stdin", given),
        warnings.catch_warnings(),
    ):
        # Tests turn warnings into errors, and users do not.
        warnings.simplefilter("default")
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    return Finished(code, *texts)
