"""The gateway uses uvicorn by its public options, and subclasses the supervisor of its workers alone."""

import ast
import re
import tomllib
from pathlib import Path

GATEWAY = Path(__file__).parents[2]
SOURCES = sorted((GATEWAY / "src" / "mild_gateway").rglob("*.py"))


def test_nothing_below_uvicorn_is_imported_or_subclassed():
    for file in SOURCES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = node.module or ""
                assert module == "uvicorn.supervisors" or not module.startswith("uvicorn."), file
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base) for base in node.bases]
                assert not {"Server", "Config", "uvicorn.Server", "uvicorn.Config"} & set(bases), (
                    file
                )


def test_servers_and_clients_have_no_upper_bound():
    project = tomllib.loads((GATEWAY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = [
        text for text in project["dependencies"] if re.match("uvicorn|aiohttp|starlette", text)
    ]
    assert len(bounds) == 3
    assert not [text for text in bounds if "<" in text or "==" in text]
