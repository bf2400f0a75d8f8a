"""Install each extra of both distributions by itself and import what it is for: ``make test-extras``.

Each extra gets an environment of its own, so that a module which needs another extra fails.
tests/test_extras.py checks the most important ones in one environment, by blocking imports.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What is installed -> modules that it is for, or statements that use it.
USES = {
    "mild-learn": (
        "import mild.cli.app, mild.tuning.tune, mild.evaluation.comparison, mild.report, mild.batch"
    ),
    "mild-learn[encoder]": "import mild.features.pooling, transformers, onnx",
    "mild-learn[excel]": "import mild.data.tables, openpyxl",
    "mild-learn[gateway]": "import mild_gateway.demo.serving, mild_gateway.learning",
    "mild-learn[hub]": "import mild.artifact.hub, huggingface_hub",
    "mild-learn[neural]": "import mild.nn, mild.routers.neural.network",
    "mild-learn[onnx]": "import mild.features.onnx, onnxruntime, tokenizers",
    "mild-learn[plot]": "import mild.evaluation.displays, matplotlib.figure",
    "mild-learn[ray]": "import mild.batch.ray_connection, ray",
    "mild-gateway": "import mild_gateway.server.app, mild_gateway.collect, mild_gateway.experts.client",
    "mild-gateway[litellm]": "import mild_gateway.litellm_plugin",
    "mild-gateway[otel]": (
        "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http.trace_exporter"
    ),
    "mild-gateway[postgres]": "import psycopg",
}
# What a process has no use for. A gateway starts quickly and stays small.
UNUSED = {
    "mild-learn": ("torch", "pandas", "polars", "matplotlib", "ray", "aiohttp", "mild_gateway"),
    "mild-learn[gateway]": ("torch", "sklearn", "scipy", "pandas", "polars", "matplotlib", "ray"),
    "mild-learn[onnx]": ("torch", "transformers"),
    "mild-gateway": ("torch", "sklearn", "scipy", "pandas", "polars", "matplotlib", "ray"),
}


def statement(requirement: str) -> str:
    """A program that uses what was installed, and fails if it loads what it has no use for."""
    return (
        f"{USES[requirement]}\nimport sys\n"
        f"found = sorted(set({UNUSED.get(requirement, ())}) & set(sys.modules))\n"
        f"sys.exit(f'imports {{found}}' if found else 0)"
    )


def folders(requirement: str) -> list[str]:
    """What to install from the checkout; the gateway is not on an index, so its folder is named."""
    name, extras = re.fullmatch(r"([a-z-]+)(\[\w+\])?", requirement).groups(default="")
    if name == "mild-gateway":
        return [".", f"./gateway{extras}"]
    if extras == "[gateway]":
        return [".[gateway]", "./gateway"]
    return [f".{extras}"]


def check(requirement: str, uv: str) -> bool:
    """Whether what is installed with this requirement is enough for its uses."""
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        install = [uv, "pip", "install", "--quiet", "--python", python]
        commands = [
            [uv, "venv", "--quiet", "--python", sys.executable, folder],
            [*install, "--constraints", "constraints.txt", *folders(requirement)],
            [python, "-W", "ignore", "-c", statement(requirement)],
        ]
        return all(subprocess.run(command, cwd=ROOT).returncode == 0 for command in commands)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("requirements", nargs="*", default=list(USES), help="default: all")
    parser.add_argument("--uv", default="uv", help="the uv program")
    given = parser.parse_args()
    failed = []
    for requirement in given.requirements:
        if check(requirement, given.uv):
            print(f"{requirement}: ok", flush=True)
        else:
            print(f"{requirement}: FAILED", flush=True)
            failed.append(requirement)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
