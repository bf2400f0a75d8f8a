"""Statistics: seeds gathered into rows, rows into blocks, each beside the paper's figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.exceptions import DataFileError, InvalidInputError
from mild.metrics import Interval
from mild.reproduce.comparisons import paired_t_interval, standard_errors_apart
from mild.reproduce.keys import canonical_json
from mild.reproduce.labels import (
    YARDSTICKS,
    block_order,
    block_title,
    method_label,
    method_order,
    tell_apart,
)
from mild.reproduce.paper import PAPER_RUNS, PaperFigure, lookup

__all__ = ["Block", "Row", "summarise"]

#: Data that stand in for the paper's.
STAND_INS = {"svhn5000": "svhn"}

Record = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Row:
    """One method and decision in one block, or a yardstick (the best constant, the oracle).

    Attributes
    ----------
    method : what the records hold of the method; {"name": "oracle"} or {"name": "constant"}
    decision : "argmax", "stationary", or None for a yardstick
    label : short readable name
    seeds, losses : seeds in order, and the deferral loss of each
    shares : mean share of the test rows sent to each expert
    recall : mean recall of the rows on which each expert is cheapest; None where there are none
    margins : mean margins used; None where the method has none
    paper : the paper's figure for this cell and method, if there is one
    from_paper : ours minus the paper's, in standard errors
    against_tdef : interval of this row's loss minus TDEF's, paired over common seeds
    verdict : what the interval decides
    """

    method: Mapping[str, Any]
    decision: str | None
    label: str
    seeds: tuple[int, ...]
    losses: tuple[float, ...]
    shares: tuple[float, ...]
    recall: tuple[float | None, ...]
    margins: tuple[float, ...] | None
    paper: PaperFigure | None = None
    from_paper: float | None = None
    against_tdef: Interval | None = None
    verdict: str = ""

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.losses)

    @property
    def mean(self) -> float:
        """Mean deferral loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (divided by n - 1); None for one seed."""
        return float(np.std(self.losses, ddof=1)) if self.n > 1 else None

    @property
    def yardstick(self) -> bool:
        """Whether it is no method: the best constant, the oracle."""
        return self.method["name"] in YARDSTICKS


@dataclass(frozen=True, eq=False)
class Block:
    """All methods in one cell of a table.

    Attributes
    ----------
    cell : what the rows have in common: a record's cell without method and seed
    title : the same in words
    rows : TDEF, MILD's readings, other methods, the best constant, the oracle
    confidence : of the intervals, each by itself or jointly
    comparisons : number of rows that are compared with TDEF
    simultaneous : whether all intervals of the block hold jointly (Bonferroni)
    records : what it was made from
    """

    cell: Mapping[str, Any]
    title: str
    rows: tuple[Row, ...]
    confidence: float
    comparisons: int
    simultaneous: bool
    records: tuple[Record, ...]

    @property
    def table(self) -> str:
        """Name of the table."""
        return str(self.cell["table"])

    def named(self, name: str) -> Row | None:
        """First row of a method or yardstick, such as "tdef" or "oracle"."""
        return next((row for row in self.rows if row.method["name"] == name), None)

    @property
    def above_constant(self) -> tuple[Row, ...]:
        """Methods that cost more than always asking the best single expert."""
        constant = self.named("constant")
        if constant is None:
            return ()
        levels = dict(zip(constant.seeds, constant.losses, strict=True))
        # On the row's own seeds: others have other test costs.
        return tuple(
            row
            for row in self.rows
            if not row.yardstick and row.mean > float(np.mean([levels[seed] for seed in row.seeds]))
        )


def summarise(
    records: Iterable[Record], *, confidence: float = 0.95, simultaneous: bool = False
) -> tuple[Block, ...]:
    """Blocks of a table, in the order of the paper, from records of any cells.

    Records that differ in nothing but method and seed form a block; those that differ in nothing but
    the seed form a row per decision.

    Parameters
    ----------
    records : as ``read_records`` gives them
    confidence : of the intervals of MILD minus TDEF
    simultaneous : whether the intervals of a block hold jointly; each then has confidence
        ``1 - (1 - confidence) / m`` for m rows compared with TDEF (Bonferroni)
    """
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence must lie between 0 and 1; got {confidence}.")
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(canonical_json(_common(record)), []).append(record)
    blocks = [_block(group, confidence, simultaneous) for group in groups.values()]
    blocks.sort(key=lambda block: block_order(block.cell))
    titles = [f"{block.table} {block.title}" for block in blocks]
    told = tell_apart(titles, [block.cell for block in blocks])
    return tuple(
        replace(block, title=title.removeprefix(f"{block.table} "))
        for block, title in zip(blocks, told, strict=True)
    )


def _block(records: Sequence[Record], confidence: float, simultaneous: bool) -> Block:
    cell = _common(records[0])
    sizes = sorted({len(record["reference"]["oracle_shares"]) for record in records})
    if len(sizes) > 1:
        raise DataFileError(
            f"records of one block must have as many experts each; {block_title(cell)} has records "
            f"with {' and '.join(map(str, sizes))}. Remove those that do not belong to it."
        )
    ordered = sorted(records, key=lambda record: record["cell"]["seed"])
    groups: dict[str, list[Record]] = {}
    for record in ordered:
        groups.setdefault(canonical_json(record["cell"]["method"]), []).append(record)
    rows = [
        _row(cell, [record for record in group if _outcome(record, decision)], decision)
        for group in groups.values()
        for decision in dict.fromkeys(name for record in group for name in record["outcomes"])
    ]
    rows.sort(key=lambda row: method_order(row.method, row.decision))
    labels = [row.label for row in rows]
    rows = [
        replace(row, label=method_label(row.method, row.decision, full=True))
        if labels.count(row.label) > 1
        else row
        for row in rows
    ]
    tdef = next((row for row in rows if row.method["name"] == "tdef"), None)
    comparisons = sum(len(_common_seeds(row, tdef)) > 1 for row in rows if row is not tdef)
    level = 1 - (1 - confidence) / max(1, comparisons) if simultaneous else confidence
    judged = [_judged(row, tdef, level) for row in rows]
    return Block(
        cell,
        block_title(cell),
        (*judged, _constant(ordered), _oracle(ordered)),
        confidence,
        comparisons,
        simultaneous,
        tuple(ordered),
    )


def _row(cell: Mapping[str, Any], records: Sequence[Record], decision: str) -> Row:
    outcomes = [_outcome(record, decision) for record in records]
    method = records[0]["cell"]["method"]
    used = [record["margins"] for record in records if record["margins"] is not None]
    row = Row(
        method,
        decision,
        method_label(method, decision),
        tuple(record["cell"]["seed"] for record in records),
        tuple(float(outcome["loss"]) for outcome in outcomes),
        _means([outcome["shares"] for outcome in outcomes]),
        _known_means([outcome["recall"] for outcome in outcomes]),
        _means(used) if used else None,
    )
    figure = _paper_figure(cell, str(method["name"]))
    if figure is None or figure.loss is None or figure.std is None:
        return row
    apart = standard_errors_apart(row.mean, row.std, row.n, figure.loss, figure.std, PAPER_RUNS)
    return replace(row, paper=figure, from_paper=apart)


def _outcome(record: Record, decision: str) -> dict[str, Any]:
    """What a decision came to; with equal margins argmax alone is kept, and both rules agree."""
    outcomes: Mapping[str, dict[str, Any]] = record["outcomes"]
    equal = len(set(record["margins"] or ())) == 1
    return outcomes.get(decision) or (outcomes.get("argmax") if equal else None) or {}


def _paper_figure(cell: Mapping[str, Any], method: str) -> PaperFigure | None:
    """Any reading of MILD stands beside the paper's one MILD."""
    table = cell["table"]
    if cell["experts"] == "people":
        return None
    if table not in ("table1", "table2", "severe"):
        table = "table2" if cell["experts"] == "real" else "table1"
        table = "severe" if cell["setup"] == "severe" else table
    dataset = STAND_INS.get(cell["dataset"], cell["dataset"])
    return lookup(table, dataset, cell["setup"], cell["cost"], method)


def _judged(row: Row, tdef: Row | None, confidence: float) -> Row:
    if row is tdef:
        return row
    if tdef is None:
        return replace(row, verdict="cannot tell (no TDEF)")
    seeds = _common_seeds(row, tdef)
    ours, theirs = (dict(zip(r.seeds, r.losses, strict=True)) for r in (row, tdef))
    interval = paired_t_interval([ours[s] for s in seeds], [theirs[s] for s in seeds], confidence)
    if interval is None:
        why = ("no common seed", "one seed")[len(seeds)] if len(seeds) < 2 else "no spread"
        return replace(row, verdict=f"cannot tell ({why})")
    verdict = "level"
    if interval.decided:
        verdict = "better than TDEF" if interval.high < 0 else "worse"
    return replace(row, against_tdef=interval, verdict=verdict)


def _common_seeds(row: Row, other: Row | None) -> list[int]:
    return [] if other is None else sorted(set(row.seeds) & set(other.seeds))


def _constant(records: Sequence[Record]) -> Row:
    chosen = [
        [float(k == reference["constant_expert"]) for k in range(len(reference["oracle_shares"]))]
        for reference in _references(records).values()
    ]
    return _yardstick(records, "constant", chosen)


def _oracle(records: Sequence[Record]) -> Row:
    shares = [reference["oracle_shares"] for reference in _references(records).values()]
    return _yardstick(records, "oracle", shares)


def _yardstick(records: Sequence[Record], name: str, shares: Sequence[Sequence[float]]) -> Row:
    references = _references(records)
    return Row(
        {"name": name},
        None,
        YARDSTICKS[name],
        tuple(references),
        tuple(float(reference[name]) for reference in references.values()),
        _means(shares),
        (None,) * len(shares[0]),
        None,
    )


def _references(records: Sequence[Record]) -> dict[int, Mapping[str, Any]]:
    """What depends on the seed's data alone: one per seed, whatever the method."""
    return {record["cell"]["seed"]: record["reference"] for record in records}


def _means(lists: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.mean(np.array(lists, dtype=np.float64), axis=0))


def _known_means(lists: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    known = [
        [value for value in column if value is not None] for column in zip(*lists, strict=True)
    ]
    return tuple(float(np.mean(values)) if values else None for values in known)


def _common(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record["cell"].items() if name not in ("method", "seed")}
