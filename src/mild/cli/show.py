"""``mild show``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mild.cli import options as o
from mild.cli.console import emit, print_facts, print_table


def show(folder: o.RouterArgument, as_json: o.AsJson = False) -> None:
    """Describe a saved router: kind, experts, margins, settings, training data, sizes.

    \b
    Example:
      mild show router
    """
    from mild.artifact import load
    from mild.artifact.versions import find_version

    router = load(folder)
    files = [file for file in sorted(find_version(folder)[0].iterdir()) if file.is_file()]
    sizes = {file.name: file.stat().st_size for file in files}
    report = {"folder": str(folder), **router.as_dict(), "bytes": sizes}
    emit(report, as_json, lambda: _show(report, router.facts))


def _show(report: Mapping[str, Any], facts: Mapping[str, str]) -> None:
    size = f"{sum(report['bytes'].values()):,} bytes"
    print_facts(report["folder"], "router", {**facts, "size": size}, left=True)
    names, margins = report["experts"], report["margins"]
    columns = {
        "expert": names,
        "index": [str(k) for k in range(len(names))],
        "margin": ["–"] * len(names) if margins is None else [f"{m:.4g}" for m in margins],
    }
    print_table("experts", columns)
    tensors = report["tensors"].values()
    columns = {
        "tensor": list(report["tensors"]),
        "shape": [" x ".join(map(str, entry["shape"])) for entry in tensors],
        "type": [entry["dtype"] for entry in tensors],
    }
    print_table("tensors", columns)
