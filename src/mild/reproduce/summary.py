"""Statistics: seeds gathered into rows, rows into blocks, each beside the paper's figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.exceptions import DataFileError, InvalidInputError
from mild.reproduce.comparisons import paired_t_interval
from mild.reproduce.keys import canonical_json
from mild.reproduce.labels import (
    block_order,
    block_title,
    method_label,
    method_order,
    tell_apart,
)
from mild.reproduce.rows import (
    Record,
    Row,
    constant_row,
    method_row,
    oracle_row,
    outcome_of,
    same_experts,
)

__all__ = ["Block", "Row", "summarise"]


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
    overlap : test rows over training rows where seeds are splits of the same rows; 0 otherwise
    """

    cell: Mapping[str, Any]
    title: str
    rows: tuple[Row, ...]
    confidence: float
    comparisons: int
    simultaneous: bool
    records: tuple[Record, ...]
    overlap: float = 0.0

    @property
    def table(self) -> str:
        """Name of the table."""
        return str(self.cell["table"])

    def named(self, name: str) -> Row | None:
        """First row of a method or yardstick, such as "tdef" or "oracle"."""
        return next((row for row in self.rows if row.method["name"] == name), None)

    @property
    def above_constant(self) -> tuple[Row, ...]:
        """Methods that cost more than always asking the best single expert.

        That of the row's own seeds and experts: others have other test costs.
        """
        # A method that asks that very expert adds its costs up in another order.
        return tuple(
            row
            for row in self.rows
            if not row.yardstick and row.mean > float(np.mean(row.constants)) + 1e-9
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
    leading = _leading(groups.values())
    rows = [
        _row(cell, [record for record in group if outcome_of(record, decision)], decision, leading)
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
    overlap = _overlap(ordered)
    judged = [_judged(row, tdef, level, overlap) for row in rows]
    one_per_seed = list(leading.values())
    return Block(
        cell,
        block_title(cell),
        (*judged, constant_row(one_per_seed), oracle_row(cell, one_per_seed)),
        confidence,
        comparisons,
        simultaneous,
        tuple(ordered),
        overlap,
    )


def _leading(groups: Iterable[Sequence[Record]]) -> dict[int, Record]:
    """Per seed the record whose experts are those of the block: TDEF's, or the next method's."""
    first: dict[int, Record] = {}
    for group in sorted(groups, key=lambda each: method_order(each[0]["cell"]["method"], None)):
        for record in group:
            first.setdefault(record["cell"]["seed"], record)
    return dict(sorted(first.items()))


def _row(
    cell: Mapping[str, Any],
    records: Sequence[Record],
    decision: str,
    leading: Mapping[int, Record],
) -> Row:
    row = method_row(cell, records, decision)
    seen = zip(row.seeds, records, strict=True)
    other = tuple(seed for seed, record in seen if not same_experts(record, leading[seed]))
    return replace(row, other_experts=other)


def _judged(row: Row, tdef: Row | None, confidence: float, overlap: float) -> Row:
    if row is tdef:
        return row
    if tdef is None:
        return replace(row, verdict="cannot tell (no TDEF)")
    seeds = _common_seeds(row, tdef)
    ours, theirs = (dict(zip(r.seeds, r.losses, strict=True)) for r in (row, tdef))
    interval = paired_t_interval(
        [ours[s] for s in seeds], [theirs[s] for s in seeds], confidence, overlap
    )
    if interval is None:
        why = ("no common seed", "one seed")[len(seeds)] if len(seeds) < 2 else "no spread"
        if len(seeds) < 2 and set(row.other_experts) & set(tdef.seeds):
            why = "other experts"
        return replace(row, verdict=f"cannot tell ({why})")
    verdict = "level"
    if interval.decided:
        verdict = "better than TDEF" if interval.high < 0 else "worse"
    return replace(row, against_tdef=interval, verdict=verdict)


def _overlap(records: Sequence[Record]) -> float:
    """Splits of the same rows share test and training rows: how many per training row."""
    ratios = [
        record["rows"]["test"] / record["rows"]["train"] for record in records if "rows" in record
    ]
    return float(np.mean(ratios)) if ratios else 0.0


def _common_seeds(row: Row, other: Row | None) -> list[int]:
    """Seeds that can be paired: those that both were judged on the same experts in."""
    return [] if other is None else sorted(set(row.seeds) & set(other.seeds) - {*row.other_experts})


def _common(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record["cell"].items() if name not in ("method", "seed")}
