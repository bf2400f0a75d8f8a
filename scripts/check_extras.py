"""Install each extra by itself and import what it is for: ``make test-extras``.

Each extra gets an environment of its own, so that a module which needs another extra fails.
tests/test_extras.py checks the most important ones in one environment, by blocking imports.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Modules that an extra is for, or statements that use it. "" is an installation without extras.
USES = {
    "": "import mild.cli.app, mild.tuning.tune, mild.evaluation.comparison, mild.report, mild.distributed",
    "collect": "import mild_gateway.collect, mild_gateway.experts.client",
    "excel": "import mild.data.tables, openpyxl",
    "gateway": "import mild_gateway.server.app, mild_gateway.demo.serving, mild_gateway.learning",
    "hub": "import mild.artifact.hub, huggingface_hub",
    "litellm": "import mild_gateway.litellm_plugin",
    "neural": "import mild.nn, mild.routers.neural.network",
    "onnx": "import mild.features.onnx, onnxruntime, tokenizers",
    "otel": "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "plot": "import mild.evaluation.displays, matplotlib.figure",
    "postgres": "import psycopg",
    "ray": "import mild.distributed.ray_connection, ray",
    "encoder": "import mild.features.pooling, transformers, onnx",
}
# What a process of an extra has no use for. A gateway starts quickly and stays small.
UNUSED = {
    "": ("torch", "pandas", "polars", "matplotlib", "transformers", "ray", "aiohttp", "pydantic"),
    "collect": ("torch", "sklearn", "scipy", "pandas", "starlette", "sqlalchemy"),
    "gateway": ("torch", "sklearn", "scipy", "pandas", "polars", "matplotlib", "ray"),
    "onnx": ("torch", "transformers"),
}


def statement(extra: str) -> str:
    """A program that uses the extra and fails if it loads what it has no use for."""
    return (
        f"{USES[extra]}\nimport sys\n"
        f"found = sorted(set({UNUSED.get(extra, ())}) & set(sys.modules))\n"
        f"sys.exit(f'imports {{found}}' if found else 0)"
    )


def check(extra: str, uv: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        install = [uv, "pip", "install", "--quiet", "--python", python, "--constraints"]
        commands = [
            [uv, "venv", "--quiet", "--python", sys.executable, folder],
            [*install, "constraints.txt", f".[{extra}]" if extra else "."],
            [python, "-W", "ignore", "-c", statement(extra)],
        ]
        return all(subprocess.run(command, cwd=ROOT).returncode == 0 for command in commands)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("extras", nargs="*", default=list(USES), help="default: all")
    parser.add_argument("--uv", default="uv", help="the uv program")
    given = parser.parse_args()
    failed = []
    for extra in given.extras:
        good = check(extra, given.uv)
        print(f"{extra or 'no extra'}: {'ok' if good else 'FAILED'}", flush=True)
        failed += [] if good else [extra]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
