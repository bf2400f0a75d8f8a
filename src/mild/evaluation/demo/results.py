"""Write the demo's results: JSON with every number, CSV with one line per method and seed."""

from __future__ import annotations

import csv
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import mild
from mild.artifact.files import left_behind, replacing
from mild.data.datasets import SETUPS
from mild.errors import DataFileError, OutputExistsError
from mild.evaluation.demo.findings import caption, findings
from mild.evaluation.demo.pictures import Picture, segments
from mild.evaluation.demo.run import METHODS, Block, DemoResults, Row

__all__ = ["FILES", "check_folder", "document", "write_results"]

SCHEMA = 1
FILES = ("results.json", "results.csv", "overview.png", "pictures.png")

Draw = Callable[[DemoResults, Path], None]


def check_folder(folder: Path) -> None:
    """Refuse a target that holds anything but an earlier demo's own files, or cannot be written."""
    if not folder.exists():
        parent = next(place for place in folder.absolute().parents if place.exists())
        if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
            raise DataFileError(
                f"the output folder must be one that can be made; {parent} cannot be written to. "
                f"Choose another --out."
            )
        return
    if not folder.is_dir():
        raise OutputExistsError(
            f"the output folder must be a folder; {folder} is a file. Choose another --out."
        )
    own = {*FILES, *(left.name for name in FILES for left in left_behind(folder / name))}
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in own)
    if others:
        raise OutputExistsError(
            f"the output folder must be new, empty, or an earlier demo's; {folder} holds "
            f"{others[0]!r}{' and more' if len(others) > 1 else ''}. Choose another --out."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataFileError(f"the output folder must be writable; {folder} is not.")


def write_results(
    results: DemoResults, folder: Path, draw: Mapping[str, Draw] | None = None
) -> list[Path]:
    """Write JSON, CSV and the figures in ``draw``; each file appears whole or not at all.

    Files of an earlier demo that this one does not write are removed.
    """
    check_folder(folder)
    writers: dict[str, Draw] = {"results.json": _write_json, "results.csv": _write_csv}
    writers.update(draw or {})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, write in writers.items():
            with replacing(folder / name) as file:
                write(results, Path(file.name))
        for name in FILES:
            stale = [] if name in writers else [folder / name]
            for path in (*stale, *left_behind(folder / name)):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise DataFileError(f"the results could not be written to {folder}: {error}.") from error
    return [folder / name for name in writers]


def document(results: DemoResults) -> dict[str, Any]:
    """Data, seeds, settings, versions, hardware and every number, JSON-ready."""
    settings = results.settings
    return {
        "schema": SCHEMA,
        "finished": results.finished,
        "seconds": round(results.seconds, 2),
        "data": {
            "digits": "scikit-learn's digits, 1,797 of 8 x 8 pixels divided by 16; stratified halves",
            "features": "Nystroem features of a radial kernel, 128 components, from the training half",
            "setups": {name: list(SETUPS[name]) for name in settings.setups},
            "regions": f"{settings.region_samples} points of the unit square per seed, halves",
            "long_tail": "20 Gaussian domains with shares proportional to 1 / k, 400 rows to train on",
        },
        "settings": asdict(settings),
        "seeds": list(range(settings.seeds)),
        "versions": _versions(),
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "byte_order": sys.byteorder,
        },
        "methods": [
            {"key": key, "label": label, "what": what, "compete": key != "oracle"}
            for key, label, what in METHODS
        ],
        "caption": caption(results),
        "findings": findings(results),
        "warnings": results.warned,
        "blocks": [_block(block) for block in results.blocks],
        "region_case": _block(results.region_block),
        "long_tail": [row.as_dict() for row in results.tail],
        "line": _line(results.line),
        "plane": _picture(results.plane),
    }


def _write_json(results: DemoResults, path: Path) -> None:
    text = json.dumps(document(results), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _write_csv(results: DemoResults, path: Path) -> None:
    most = max(len(coverage) for coverage in SETUPS.values())
    shares = [f"share_{k + 1}" for k in range(most)]
    header = ["setup", "experts", "cost", "method", "seed", "loss", "balanced_recall", *shares]
    header += ["alpha", "margins", "n_neighbors", "seconds"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for block in (*results.blocks, results.region_block):
            writer.writerows(_csv_lines(block, most))


def _csv_lines(block: Block, most: int) -> Iterable[list[Any]]:
    for row in block.rows:
        for seed, loss in enumerate(row.losses):
            found = row.found[seed]
            shares = [f"{share:.6g}" for share in row.shares[seed]]
            margins = ";".join(f"{value:.6g}" for value in found.get("margins", []))
            yield [
                *(block.setup, block.experts, block.cost, row.key, seed),
                f"{loss:.8g}",
                f"{row.recall[seed]:.8g}",
                *(shares + [""] * (most - len(shares))),
                *(found.get("alpha", ""), margins, found.get("n_neighbors", "")),
                f"{row.seconds[seed]:.3f}",
            ]


def _block(block: Block) -> dict[str, Any]:
    return {
        "setup": block.setup,
        "experts": block.experts,
        "cost": block.cost,
        "expert_names": list(block.expert_names),
        "oracle_shares": block.oracle_shares.tolist(),
        "rows": [_row(row) for row in block.rows],
        "comparisons": [
            {"method": first, "minus": second, **asdict(interval)}
            for (first, second), interval in block.pairs.items()
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "method": row.key,
        "label": row.label,
        "mean": row.mean,
        "std": row.std,
        "losses": list(row.losses),
        "mean_shares": row.shares.mean(axis=0).tolist(),
        "shares": row.shares.tolist(),
        "balanced_recall": list(row.recall),
        "minus_tdef": None if row.against_tdef is None else asdict(row.against_tdef),
        "verdict_against_tdef": row.verdict,
        "same_choices_as_tdef": row.same_as_tdef,
        "best": row.best,
        "found": list(row.found),
        "seconds": [round(value, 4) for value in row.seconds],
    }


def _line(picture: Picture) -> dict[str, Any]:
    positions = picture.grid[:, 0]
    result = _picture(picture)
    result["best_regions"] = segments(positions, picture.best)
    for entry, learned in zip(result["learned"], picture.learned, strict=True):
        entry["regions"] = segments(positions, learned.chosen)
    return result


def _picture(picture: Picture) -> dict[str, Any]:
    return {
        "n_samples": len(picture.data.X),
        "expert_names": list(picture.data.expert_names),
        "betas": [float(beta) for beta in picture.data.betas],
        "best_loss": picture.best_loss,
        "constant_loss": picture.constant_loss,
        "learned": [
            {"label": entry.label, "loss": entry.loss, "agreement_with_best": entry.agreement}
            for entry in picture.learned
        ],
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "mild": mild.__version__}
    for name in ("numpy", "scipy", "scikit-learn", "joblib", "matplotlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def _processor() -> str:
    """Name of the processor; on Linux from a file."""
    source = Path("/proc/cpuinfo")
    if source.exists():
        for line in source.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
