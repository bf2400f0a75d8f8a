"""``python -m experiments.show``: tables of results files, ours beside the paper's figures."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table
from scipy.special import stdtrit

from experiments.console import main
from experiments.images.data import DATASETS
from experiments.images.methods import method_label
from experiments.paper import PAPER_RUNS, paper_figure
from experiments.records import Record, content_key, read_records
from mild.errors import check_option
from mild.metrics import Interval

FORMATS = ("text", "markdown", "latex", "csv", "json")
TITLES = {
    "table1": "Table 1: synthetic experts",
    "table2": "Table 2: real experts",
    "severe": "Severe imbalance",
    "llm": "Routing among language models",
    "ablation": "Margins for language models: uniform, theory, tuned",
    "noise": "Noisy costs of language models",
    "extreme": "Extreme imbalance among language models",
    "readings": "Readings of the paper",
    "people": "People as experts",
}
METHOD_ORDER = ("tdef", "mild", "plugin", "ce", "cwce", "ldam")
# Losses are means of float32 costs: smaller differences are rounding.
ROUNDING = 1e-7


@dataclass(frozen=True, eq=False)
class Block:
    """All methods in one cell of a table: a title, one row per method and decision, and notes."""

    table: str
    title: str
    rows: pd.DataFrame
    notes: tuple[str, ...]


def paired_t_interval(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95, ratio: float = 0.0
) -> Interval | None:
    """Student's interval of the mean of ``a - b``; None where it is not defined.

    Pairs from random splits of the same rows are not independent: the variance of their mean is then
    ``(1 / n + ratio) * s^2`` (Nadeau and Bengio 2003), ``ratio`` being test rows over training rows.

    >>> interval = paired_t_interval([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    >>> round(interval.low, 3), round(interval.high, 3)
    (-0.484, 4.484)
    """
    difference = np.subtract(a, b)
    n = len(difference)
    if n < 2:
        return None
    rounding = ROUNDING * float(np.max(np.abs([a, b])))
    if np.abs(difference).max() <= rounding:
        difference = np.zeros(n)
    elif np.ptp(difference) <= rounding:
        # Equal differences say nothing of their spread.
        return None
    estimate = float(difference.mean())
    error = float(difference.std(ddof=1)) * math.sqrt(1 / n + ratio)
    reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * error
    return Interval(estimate, estimate - reach, estimate + reach, error, n, confidence)


def summarise(records: Iterable[Record], confidence: float = 0.95) -> list[Block]:
    """Blocks in the order of the tables: records that differ in method and seed alone form one."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_common(record), []).append(record)
    blocks = [_block(group, confidence) for group in groups.values()]
    order = list(TITLES)
    return sorted(blocks, key=lambda block: (order.index(block.table), block.title))


def _block(records: Sequence[Record], confidence: float) -> Block:
    cell = records[0]["cell"]
    frame = pd.DataFrame([row for record in records for row in _outcome_rows(record)])
    # Methods are paired with TDEF where they were judged on the same experts.
    tdef = frame[frame.name == "tdef"].set_index("seed")
    rows = []
    for (_, label), group in frame.groupby(["place", "label"], sort=True):
        group = group.sort_values("seed")
        row: dict[str, Any] = {
            "method": label,
            "seeds": len(group),
            "loss": group.loss.mean(),
            "std": group.loss.std() if len(group) > 1 else math.nan,
            "shares": " ".join(f"{100 * v:.1f}" for v in np.mean(group.shares.tolist(), axis=0)),
        }
        if group.control.notna().all():
            # The same shares, dealt at random.
            row["shuffled"] = group.control.mean()
        figure = group.figure.iloc[0]
        if figure is not None and figure.loss is not None:
            row |= {"paper": figure.loss, "paper std": figure.std}
            error = math.sqrt(row["std"] ** 2 / len(group) + figure.std**2 / PAPER_RUNS)
            row["SE from paper"] = (row["loss"] - figure.loss) / error if error > 0 else math.nan
        if figure is not None and figure.shares:
            row["paper's shares"] = " ".join(f"{share:g}" for share in figure.shares)
        same = [s for s, o in zip(group.seed, group.oracle, strict=True) if _same(tdef, s, o)]
        if group.name.iloc[0] not in ("tdef", "constant", "oracle") and same:
            ours = group.set_index("seed").loss
            interval = paired_t_interval(
                ours[same].tolist(), tdef.loss[same].tolist(), confidence, float(group.ratio.mean())
            )
            if interval is not None:
                row["minus TDEF"] = (
                    f"{interval.estimate:+.4f} [{interval.low:+.4f}, {interval.high:+.4f}]"
                )
                low, high = interval.low, interval.high
                row["verdict"] = "better" if high < 0 else "worse" if low > 0 else "level"
        rows.append(row)
    return Block(cell["table"], block_title(cell), pd.DataFrame(rows), _notes(records))


def _same(tdef: pd.DataFrame, seed: int, oracle: float) -> bool:
    return seed in tdef.index and math.isclose(
        tdef.oracle[seed], oracle, rel_tol=1e-7, abs_tol=1e-9
    )


def _outcome_rows(record: Record) -> Iterable[dict[str, Any]]:
    cell, reference = record["cell"], record["reference"]
    rows = record.get("rows")
    shared = {
        "seed": cell["seed"],
        "oracle": reference["oracle"],
        "ratio": rows["test"] / rows["train"] if rows else 0.0,
    }
    name = cell["method"]["name"]
    place = METHOD_ORDER.index(name) if name in METHOD_ORDER else len(METHOD_ORDER)
    for decision, outcome in record["outcomes"].items():
        yield {
            **shared,
            "place": place,
            "name": name,
            "label": method_label(cell["method"], decision),
            "loss": outcome["loss"],
            "shares": outcome["shares"],
            "control": outcome.get("control", math.nan),
            "figure": paper_figure(cell, cell["method"]),
        }
    if name != "tdef":
        return
    oracle = reference["oracle_shares"]
    constant = np.eye(len(oracle))[reference["constant_expert"]]
    optimal = paper_figure(cell, {"name": "optimal"})
    for place, label, loss, chosen, figure in (
        (98, "best single expert", "constant", constant, None),
        (99, "oracle", "oracle", oracle, optimal),
    ):
        yield {
            **shared,
            "place": place,
            "name": loss,
            "label": label,
            "loss": reference[loss],
            "shares": chosen,
            "control": math.nan,
            "figure": figure,
        }


def block_title(cell: Mapping[str, Any]) -> str:
    """What the rows of a block have in common."""
    protocol = cell["protocol"]
    if cell["experts"] == "language models":
        cost = "error"
        if cell["cost"] == "cost":
            cost = f"error + cost ({', '.join(f'{value:g}' for value in cell['beta'])})"
        if cell["skew"]:
            cost += f", skewed to {100 * cell['skew']['share']:g} %"
        if cell["noise"]:
            cost += f", {cell['noise']['kind']} noise {cell['noise']['std']:g}"
        features = protocol["features"]
        model = f" ({features['model']})" if features.get("model") else ""
        router = f"{protocol['name']} on {features['kind']}{model}"
        if len(protocol.get("alphas", ())) == 1:
            router += f", alpha {protocol['alphas'][0]:g}"
        if "dropout" in protocol:
            decay, dropout = protocol["weight_decay"], protocol["dropout"]
            router += f", epochs {protocol['epochs']}, decay {decay:g}, dropout {dropout:g}"
        if cell.get("validation"):
            router += " · judged on held-out training rows"
        return " · ".join([cell["dataset"], ", ".join(cell["models"]), cost, router])
    coverage = "-".join(f"{100 * part:.3g}" for part in cell["coverage"])
    dataset = DATASETS[cell["dataset"]].title if cell["dataset"] in DATASETS else cell["dataset"]
    parts = [dataset, f"setup {cell['setup']} ({coverage})", f"{cell['experts']} experts"]
    parts.append("error" if cell["cost"] == "error" else "error + cost")
    parts.append(_protocol_words(protocol))
    trained = cell.get("expert_protocol")
    if trained is not None and trained != protocol:
        parts.append(f"experts by {_protocol_words(trained)}")
    if "others" in cell:
        parts.append(f"experts see {100 * cell['others']:g} % of the other classes")
    for name, words in (
        ("ambiguous", f"{100 * (cell.get('ambiguous') or 0):g} % ambiguous rows"),
        ("validation", "judged on held-out training rows"),
        ("holdout", "holdout"),
    ):
        parts += [words] if cell.get(name) not in (None, False) else []
    parts += [] if protocol["augment"] else ["no augmentation"]
    parts += ["rewards scaled to sum 1"] if cell.get("scale", "raw") == "unit" else []
    if protocol.get("batch_size", 1024) != 1024 or protocol.get("width", 64) != 64:
        parts.append(f"batch {protocol['batch_size']}, width {protocol['width']}")
    parts += [f"first stride {protocol['stride']}"] if "stride" in protocol else []
    return " · ".join(parts)


def _protocol_words(protocol: Mapping[str, Any]) -> str:
    decay = f"{protocol.get('decay', 'coupled')} decay {protocol['weight_decay']:g}"
    return f"{protocol['name']} ({protocol['epochs']} epochs, rate {protocol['lr']:g}, {decay})"


def _notes(records: Sequence[Record]) -> tuple[str, ...]:
    def each(values: Iterable[Any]) -> str:
        return ", ".join(dict.fromkeys(map(str, values)))

    seconds = sum(record["training"]["seconds"] for record in records)
    notes = [
        f"Hardware: {each(r['hardware'] for r in records)}. Commits: "
        f"{each((r['commit'] or 'not recorded')[:12] for r in records)}. {len(records)} trainings, "
        f"{seconds:,.0f} s."
    ]
    data = each(r["note"] for r in records if r["note"])
    notes += [f"Data: {data}."] if data else []
    experts = each(filter(None, map(_experts_words, records)))
    return (
        *notes,
        *([f"Experts are right on own, other test images: {experts}."] if experts else []),
    )


def _experts_words(record: Record) -> str:
    """How often trained experts are right on test images of their own classes and of the others."""
    facts = record["experts"].get("notes", {}).get("experts", ()) if "experts" in record else ()
    found = []
    for fact in facts:
        right = fact["accuracy"]["test"]
        shares = (right[part] for part in ("own", "others"))
        words = ("–" if share is None else f"{100 * share:.1f}" for share in shares)
        found.append(f"{fact['name']} {' and '.join(words)} %")
    return "; ".join(found)


def print_tables(
    paths: Sequence[Path], format: str = "text", only: Collection[str] | None = None
) -> None:
    """Print all blocks, or those with a record of these keys."""
    records = read_records(paths)
    if only is not None:
        kept = {_common(record) for record in records if record["key"] in only}
        records = [record for record in records if _common(record) in kept]
    blocks = summarise(records)
    if format == "json":
        typer.echo(json.dumps([_plain(block) for block in blocks], indent=1))
    elif format == "csv":
        frames = [b.rows.assign(table=b.table, block=b.title) for b in blocks]
        typer.echo(pd.concat(frames).to_csv(index=False), nl=False)
    else:
        write = {"text": _print_text, "markdown": _print_markdown, "latex": _print_latex}[format]
        for place, block in enumerate(blocks):
            if format == "markdown" and (not place or blocks[place - 1].table != block.table):
                typer.echo(f"## {TITLES[block.table]}\n")
            write(block)


def _common(record: Record) -> str:
    return content_key({k: v for k, v in record["cell"].items() if k not in ("method", "seed")})


def _plain(block: Block) -> dict[str, Any]:
    rows = json.loads(block.rows.to_json(orient="records"))
    return {"table": block.table, "title": block.title, "rows": rows, "notes": list(block.notes)}


def _formatted(block: Block) -> pd.DataFrame:
    frame = block.rows.copy()
    for column in ("loss", "std", "shuffled", "paper", "paper std", "SE from paper"):
        if column in frame:
            digits = "+.1f" if column == "SE from paper" else ".4f"
            frame[column] = [None if math.isnan(v) else format(v, digits) for v in frame[column]]
    return frame.astype(object).where(frame.notna(), "")


def _print_text(block: Block) -> None:
    table = Table(title=f"{TITLES[block.table]}\n{block.title}", title_justify="left")
    frame = _formatted(block)
    for column in frame.columns:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in frame.itertuples(index=False):
        table.add_row(*map(str, row))
    console = Console(width=max(100, Console().width))
    console.print(table, *block.notes, sep="\n")


def _print_markdown(block: Block) -> None:
    typer.echo(f"### {block.title}\n")
    typer.echo(_formatted(block).to_markdown(index=False, disable_numparse=True) + "\n")
    typer.echo("\n".join(block.notes) + "\n")


def _print_latex(block: Block) -> None:
    caption = f"{TITLES[block.table]}: {block.title}"
    typer.echo(_formatted(block).to_latex(index=False, escape=True, caption=caption))


def show(
    paths: Annotated[list[Path], typer.Argument(help="Results files, or folders of them.")],
    format: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "text",
) -> None:
    """Tables of results files, ours beside the paper's figures."""
    print_tables(paths, check_option("format", format, FORMATS))


if __name__ == "__main__":
    app = typer.Typer(add_completion=False)
    app.command()(show)
    main(app)
