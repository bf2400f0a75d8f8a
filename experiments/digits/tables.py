"""What is shown and written: tables, findings in sentences, JSON and CSV files."""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from experiments.digits.long_tail import describe
from mild.artifact.files import left_behind, replacing
from mild.datasets import SETUPS
from mild.errors import DataFileError, OutputExistsError

FILES = ("results.json", "results.csv", "overview.png", "pictures.png")
MARKS = {"better": "▲", "worse": "▼", "level": ""}
METHOD_WIDTH = 23
LOSS_WIDTH = 15
#: Width of one share by its decimals.
SHARE_WIDTH = {0: 3, 1: 5}
TUNED = "mild_tuned_stationary"
THEORY = ("mild_theory_argmax", "mild_theory_stationary")

Block = Mapping[str, Any]
#: Writes the results of ``run_digits`` to a file.
Draw = Callable[[Any, Path], None]


def verdict_of(interval: Mapping[str, float] | None) -> str:
    """ "better" or "worse" (costs: less is better) if the interval excludes 0, else "level"."""
    if interval is None:
        return "level"
    return "better" if interval["high"] < 0 else "worse" if interval["low"] > 0 else "level"


def findings(found: Mapping[str, Any]) -> list[str]:
    """Sentences on which method beats which, counted over the blocks by their intervals."""
    blocks = found["blocks"]
    means = [{row["method"]: row["mean"] for row in block["rows"]} for block in blocks]
    rows = [[row for row in block["rows"] if row["method"] != "oracle"] for block in blocks]

    def verdicts(first: str, second: str) -> list[str]:
        if second == "tdef":
            return [
                r["verdict_against_tdef"] for part in rows for r in part if r["method"] == first
            ]
        pairs = [pair for b in blocks for pair in b["comparisons"]]
        return [verdict_of(p) for p in pairs if (p["method"], p["minus"]) == (first, second)]

    def tally(first: str, second: str) -> str:
        counts = Counter(verdicts(first, second))
        return (
            f"better in {counts['better']}, worse in {counts['worse']}, undecided in {counts['level']} of "
            f"{_count(len(blocks), 'block')}"
        )

    def gap(first: str, second: str, b: int) -> str:
        setup, experts, cost = (blocks[b][key] for key in ("setup", "experts", "cost"))
        where = f"setup {setup}, {experts} experts, {cost.replace('+', ' + ')}"
        return f"{means[b][first]:.4f} to {means[b][second]:.4f} ({where})"

    gains = [b for b, verdict in enumerate(verdicts(TUNED, "tdef")) if verdict == "better"]
    leaders = Counter(min(part, key=lambda row: row["mean"])["label"] for part in rows)
    text = _prose(
        "findings.txt",
        blocks=blocks,
        tuned=TUNED,
        theory=THEORY,
        verdicts=verdicts,
        tally=tally,
        gap=gap,
        most=min(gains, key=lambda b: means[b][TUNED] - means[b]["tdef"], default=None),
        worst=max(range(len(blocks)), key=lambda b: means[b][THEORY[0]] - means[b][THEORY[1]]),
        leaders=leaders.most_common(),
        marked=sum(any(row["best"] for row in part) for part in rows),
        regions={row["method"]: row["mean"] for row in found["region_case"]["rows"]},
        tail=found["long_tail"],
        line=found["line"],
    )
    return text.splitlines()


def caption(settings: Mapping[str, Any]) -> str:
    """How the numbers were computed and what the marks mean."""
    return _prose("caption.txt", settings=settings)


def _prose(name: str, **values: Any) -> str:
    """The text of a template."""
    loader = jinja2.PackageLoader("experiments.digits")
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined)
    environment.filters |= {
        "counted": _count,
        "fixed": lambda value, digits=4: f"{value:.{digits}f}",
        "mean": np.mean,
        "numbers": lambda values: ", ".join(f"{value:g}" for value in values),
    }
    return environment.get_template(name).render(values)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def render(results: Any, width: int) -> Iterator[RenderableType]:
    """Everything that the terminal shows, for ``width`` columns."""
    document = results.document
    groups = [
        list(group)
        for _, group in groupby(
            document["blocks"], key=lambda block: (block["experts"], block["setup"])
        )
    ]
    # Shares have a decimal if every table has the room for it.
    digits = int(all(_needed(group, 1) <= width for group in groups))
    for group in groups:
        coverage = "-".join(map(str, SETUPS[group[0]["setup"]]))
        title = f"Setup {group[0]['setup']} ({coverage}) · {group[0]['experts']} experts"
        # One table per type of cost if they do not fit side by side.
        for part in [group] if _needed(group, 0) <= width else [[block] for block in group]:
            yield _block_table(title, part, width, digits)
            yield Text()
    title = "Experts by region of a plane · labels say nothing"
    yield _block_table(title, [document["region_case"]], width, digits)
    yield Text()
    table = _empty_table("20 experts, long tail of shares, 400 rows · recall of the rarer half")
    table.add_column("method", no_wrap=True)
    for name in ("loss", "balanced", "recall", "minus TDEF"):
        table.add_column(f"  {name}", justify="right", no_wrap=True)
    for row in document["long_tail"]:
        table.add_row(*map(Text, describe(row)))
    yield table
    yield Text()
    yield Text(document["caption"], style="dim")
    yield Text()
    yield Text("Findings", style="bold")
    bullets = Table.grid(padding=(0, 1))
    for sentence in document["findings"]:
        bullets.add_row("•", Text(sentence))
    yield Padding(bullets, (0, 0, 0, 1))


def _needed(blocks: Sequence[Block], digits: int) -> int:
    """Columns of text that the blocks take side by side, one space between columns."""
    share = SHARE_WIDTH[digits] + 1
    return METHOD_WIDTH + sum(3 + LOSS_WIDTH + share * len(b["expert_names"]) for b in blocks)


def _block_table(title: str, blocks: Sequence[Block], width: int, digits: int) -> Table:
    gap = max(0, min(4, width - _needed(blocks, digits)))
    table = _empty_table(title)
    table.add_column("method", no_wrap=True, width=METHOD_WIDTH)
    share_width = SHARE_WIDTH[digits]
    for place, block in enumerate(blocks):
        numbers = " ".join(f"{k + 1:>{share_width}}" for k in range(len(block["expert_names"])))
        loss_width = LOSS_WIDTH + (gap if place else 0)
        table.add_column(block["cost"], justify="right", no_wrap=True, width=loss_width)
        table.add_column("", no_wrap=True, width=1)
        table.add_column(numbers, no_wrap=True, width=len(numbers))
    for rows in zip(*(block["rows"] for block in blocks), strict=True):
        cells = [Text(rows[0]["label"])]
        for row in rows:
            style = "bold" if row["best"] else ""
            loss = f"{row['mean']:.4f}" + ("" if row["std"] is None else f" ± {row['std']:.4f}")
            mark = "" if row["method"] == "oracle" else MARKS[row["verdict_against_tdef"]]
            shares = (f"{100 * share:>{share_width}.{digits}f}" for share in row["mean_shares"])
            cells.append(Text(loss, style=style))
            cells.append(Text("★" if row["best"] else mark, style=style))
            cells.append(Text(" ".join(shares)))
        faint = rows[0]["method"] in ("label", "constant", "oracle")
        table.add_row(*cells, style="dim" if faint else None)
    return table


def _empty_table(title: str) -> Table:
    return Table(
        title=title,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        show_edge=False,
        pad_edge=False,
        padding=0,
    )


def check_folder(folder: Path) -> None:
    """Refuse a target that holds anything but an earlier run's own files, or cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(
            f"the output folder must be a folder; {folder} is a file. Choose another --out."
        )
    others: list[str] = []
    if folder.exists():
        own = {*FILES, *(left.name for name in FILES for left in left_behind(folder / name))}
        others = sorted(entry.name for entry in folder.iterdir() if entry.name not in own)
    if others:
        raise OutputExistsError(
            f"the output folder must be new, empty, or an earlier run's; {folder} holds "
            f"{others[0]!r}{' and more' if len(others) > 1 else ''}. Choose another --out."
        )
    place = folder.absolute()
    place = next(part for part in (place, *place.parents) if part.exists())
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        raise DataFileError(
            f"the output folder must be writable; {place} cannot be written to. Choose another --out."
        )


def write_results(results: Any, folder: Path, draw: Mapping[str, Draw] | None = None) -> list[Path]:
    """Write JSON, CSV and the figures in ``draw``; each file appears whole or not at all.

    Files of an earlier run that this one does not write are removed.
    """
    check_folder(folder)
    writers = {"results.json": _write_json, "results.csv": _write_csv, **(draw or {})}
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


def _write_json(results: Any, path: Path) -> None:
    text = json.dumps(results.document, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _write_csv(results: Any, path: Path) -> None:
    document = results.document
    shares = [f"share_{k + 1}" for k in range(max(map(len, SETUPS.values())))]
    header = ["setup", "experts", "cost", "method", "seed", "loss", "balanced_recall", *shares]
    header += ["alpha", "margins", "n_neighbors", "seconds"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, restval="", extrasaction="ignore")
        writer.writeheader()
        for block in (*document["blocks"], document["region_case"]):
            for row in block["rows"]:
                for seed, found in enumerate(row["found"]):
                    numbers = (f"{share:.6g}" for share in row["shares"][seed])
                    line = {**block, **found, "method": row["method"], "seed": seed}
                    line |= dict(zip(shares, numbers, strict=False))
                    line["loss"] = f"{row['losses'][seed]:.8g}"
                    line["balanced_recall"] = f"{row['balanced_recall'][seed]:.8g}"
                    line["margins"] = ";".join(f"{value:.6g}" for value in found.get("margins", []))
                    line["seconds"] = f"{row['seconds'][seed]:.3f}"
                    writer.writerow(line)
