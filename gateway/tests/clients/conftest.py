"""A gateway with the demo's stand-ins, in a process of its own, for every client."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

# Where `make test-clients` installs the packages of npm.
NODE_FOLDER = Path(__file__).parents[3] / ".venv-clients" / "node"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    """``url`` of the gateway, and ``api``, its address with /v1."""
    folder = tmp_path_factory.mktemp("gateway")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mild", "serve", "--demo", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"the gateway did not start: {line!r}"
        yield SimpleNamespace(url=found.group(), api=f"{found.group()}/v1")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


@pytest.fixture
def run_node(gateway):
    """Run a script beside this file with the gateway's address, and expect it to end well."""

    def run(name, package):
        node = shutil.which("node")
        if node is None or not (NODE_FOLDER / "node_modules" / package).is_dir():
            pytest.skip(f"needs node and its package {package} (make test-clients)")
        script = Path(__file__).with_name(name).read_text(encoding="utf-8")
        done = subprocess.run(
            [node, "--input-type=module", "-"],
            input=script,
            cwd=NODE_FOLDER,
            env={**os.environ, "BASE_URL": gateway.api},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run
