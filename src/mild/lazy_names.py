"""Public names that are loaded when they are first used, so that importing a package imports little.

The stub of the package, ``__init__.pyi``, is the one list of its names: type checkers and editors read it,
and so does the package. Each of its lines is ``from module import name as name``. The package lazy_loader
does the same; it is not used because a saved router needs NumPy and safetensors only.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any


def attach_stub(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package, from the stub beside its ``file``."""
    homes = _read_stub(os.path.splitext(file)[0] + ".pyi")

    def load(name: str) -> Any:
        if name not in homes:
            from mild.errors import missing_name

            raise missing_name(package, name)
        value = getattr(importlib.import_module(homes[name]), name)
        # From now on it is found without this function.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted(homes)

    return load, list_names, sorted(homes)


def _read_stub(path: str) -> dict[str, str]:
    """Name -> module that defines it."""
    homes = {}
    with open(path, encoding="utf-8") as stub:
        for line in stub:
            words = line.split()
            if words[:1] == ["from"]:
                homes[words[3]] = words[1]
    return homes
