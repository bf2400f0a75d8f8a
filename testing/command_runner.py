"""A runner for the command line, as the fixture ``mild``."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from mild.cli.app import build_app


@pytest.fixture
def mild():
    """Run ``mild`` in this process: ``mild("fit", path, ...)`` gives exit code, stdout, stderr."""
    runner = CliRunner()

    def run(*words):
        result = runner.invoke(build_app(), [str(word) for word in words], prog_name="mild")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return SimpleNamespace(
            code=result.exit_code,
            out=result.stdout,
            err=result.stderr,
            json=lambda: json.loads(result.stdout),
        )

    return run
