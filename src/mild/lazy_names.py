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
    """Make ``__getattr__``, ``__dir__`` and ``__all__`` of a package from its stub.

    Parameters
    ----------
    package : str
        The ``__name__`` of the package.
    file : str
        The ``__file__`` of the package; the stub is the file beside it that ends in .pyi.

    Returns
    -------
    load : callable
        Returns the object of a public name, from the module that the stub names.
    list_names : callable
        Returns all public names.
    names : list of str
        All public names.
    """
    path, _ = os.path.splitext(file)
    module_of = _read_stub(f"{path}.pyi")

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module_of[name]), name)
        # From now on, Python finds the name without calling this function.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted(module_of)

    return load, list_names, sorted(module_of)


def _read_stub(path: str) -> dict[str, str]:
    """Return the module that defines each name of a stub."""
    module_of = {}
    with open(path, encoding="utf-8") as stub:
        for line in stub:
            tokens = line.split()
            if tokens[:1] == ["from"]:
                _, module, _, name, *_ = tokens
                module_of[name] = module
    return module_of
