"""``mild serve``."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest
import typer
from typer.testing import CliRunner

from mild.cli.console import MildCommand
from mild_gateway.cli.serve import serve
from waiting import PATIENCE


def run(verb, *arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(cls=MildCommand)(verb)
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "mild serve DIR --config mild.toml"),
        (["router"], "--config"),
        (["router", "--demo"], "--demo has its own"),
        (["--demo", "--config", "x.toml"], "--demo has its own"),
        (["router", "-c", "x.toml", "--endpoint", "smollm2=http://x/v1"], "an expert of --demo"),
        (["--demo", "--endpoint", "smollm2"], "must be NAME=URL"),
        (["--demo", "--endpoint", "sage=http://x/v1"], "smollm2, gemma3, rules"),
        (["--demo", "--endpoint", "smollm2=ftp://x/v1"], "must be an address such as"),
        (["--demo", "--endpoint", "smollm2=http://u:secret@x/v1"], "must hold no user"),
        (["--demo", *["--endpoint", "gemma3=http://x/v1"] * 2], "once for each stand-in"),
        (["--demo", "--host", "0.0.0.0"], "--demo listens only on this machine"),
        (["router", "-c", "x.toml", "--tls-key", "k"], "must be given together"),
        (["router", "-c", "x.toml", "--tls-certificate", "c"], "must be given together"),
        (["--demo", "--tls-certificate", "c", "--tls-key", "k"], "not with --demo"),
    ],
)
def test_what_is_missing_is_said(arguments, says):
    found = run(serve, *arguments)
    assert found.exit_code == 1
    words = " ".join(found.output.split())
    assert says in words
    assert "secret" not in words


def test_options_reach_the_server(monkeypatch):
    seen = []
    monkeypatch.setattr(os, "execv", lambda path, command: seen.append((path, command)))
    tls = ["--tls-certificate", "c.pem", "--tls-key", "k.pem"]
    logs = ["--log-format", "json"]
    found = run(serve, "router", "-c", "mild.toml", "--port", "0", "--workers", "3", *tls, *logs)
    assert found.exit_code == 0
    path, command = seen[0]
    assert path == sys.executable
    assert command[1:3] == ["-m", "mild_gateway.server"]
    assert json.loads(command[3]) == {
        "router": "router",
        "config": "mild.toml",
        "host": None,
        "port": 0,
        "workers": 3,
        "tls_certificate": "c.pem",
        "tls_key": "k.pem",
        "logs": {"log_format": "json"},
        "demo": False,
        "endpoints": {},
    }


def test_endpoints_reach_the_demo(monkeypatch):
    seen = []
    monkeypatch.setattr(os, "execv", lambda path, command: seen.append(command))
    given = ["smollm2=http://localhost:8131/v1/", "gemma3=https://x.example/v1"]
    found = run(serve, "--demo", "--endpoint", given[0], "--endpoint", given[1])
    assert found.exit_code == 0
    options = json.loads(seen[0][3])
    assert options["demo"]
    assert options["endpoints"] == {
        "smollm2": "http://localhost:8131/v1",
        "gemma3": "https://x.example/v1",
    }


def test_the_demo_runs_in_one_process():
    found = run(serve, "--demo", "--workers", "2")
    assert found.exit_code == 1
    assert "--demo runs in one process; got --workers 2." in found.stderr


def test_serve_the_demo():
    code = (
        "import typer; from mild_gateway.cli import serve as commands; app = typer.Typer(); "
        "app.command()(commands.serve); app()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--demo", "--port", "0"], stdout=subprocess.PIPE
    )
    try:
        url = process.stdout.readline().decode().split(" on ")[1].split()[0]
        with urllib.request.urlopen(f"{url}/health/ready") as answer:
            assert json.load(answer)["status"] == "ready"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()
