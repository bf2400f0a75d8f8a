"""Run the demo: cells side by side in processes, then blocks, pictures and findings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from joblib import Parallel, delayed, parallel_config

from mild.evaluation.demo.blocks import Block, gather
from mild.evaluation.demo.cells import REGION_CASE, Cell, run_task, tasks
from mild.evaluation.demo.long_tail import TailCase, TailRow, run_case
from mild.evaluation.demo.pictures import Picture, draw_line, draw_plane
from mild.evaluation.demo.settings import DemoSettings

__all__ = ["DemoResults", "Progress", "run_demo"]

#: Called with how many steps are done, how many there are, and what was just done.
Progress: TypeAlias = Callable[[int, int, str], None]

TAIL_ALPHAS = (1e-4, 1e-3, 1e-2)


@dataclass(frozen=True, eq=False)
class DemoResults:
    """Everything that the demo found.

    Attributes
    ----------
    settings : what was run
    blocks : the digits, one block per setup, kind of experts and cost type
    region_block : the case in which experts specialise by region
    tail : the case with a long tail of experts, one row per method
    line, plane : the pictures
    warned : warnings that came up in training, each once, with the number of cells they came up in
    seconds : wall time
    finished : when, in universal time
    """

    settings: DemoSettings
    blocks: tuple[Block, ...]
    region_block: Block
    tail: tuple[TailRow, ...]
    line: Picture
    plane: Picture
    warned: dict[str, int]
    seconds: float
    finished: str


def run_demo(settings: DemoSettings, progress: Progress | None = None) -> DemoResults:
    """Run every cell in ``settings.jobs`` processes and gather what they found.

    The numbers do not depend on ``jobs``. ``progress`` is called after every step.
    """
    start = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    todo = tasks(settings)
    total = len(todo) + 1
    cells: list[Cell] = []
    report(0, total, "starting workers")
    with parallel_config(backend="loky", inner_max_num_threads=1):
        pool = Parallel(n_jobs=settings.jobs, return_as="generator")
        for done, part in enumerate(pool(delayed(run_task)(task, settings) for task in todo), 1):
            cells += part
            report(done, total, f"{part[0].setup}, {part[0].experts}, seed {part[0].seed}")
        groups = _grouped(cells, settings)
        gathered = Parallel(n_jobs=settings.jobs)(
            delayed(gather)(group, settings.confidence) for group in groups
        )
        case = TailCase(draws=settings.tail_draws, alphas=TAIL_ALPHAS, n_folds=settings.folds)
        tail = run_case(case, settings.confidence, settings.jobs)
    line, plane = draw_line(), draw_plane()
    report(total, total, "intervals, long tail and pictures")
    return DemoResults(
        settings,
        tuple(block for block in gathered if block.setup != REGION_CASE),
        next(block for block in gathered if block.setup == REGION_CASE),
        tail,
        line,
        plane,
        _warnings(cells),
        time.perf_counter() - start,
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _grouped(cells: list[Cell], settings: DemoSettings) -> list[list[Cell]]:
    """Cells of one block together, blocks in the order of the settings, regions last."""
    order = [
        (setup, experts, cost)
        for experts in settings.experts
        for setup in settings.setups
        for cost in settings.costs
    ]
    order.append((REGION_CASE, "by region", "error"))
    return [
        [cell for cell in cells if (cell.setup, cell.experts, cell.cost) == key] for key in order
    ]


def _warnings(cells: list[Cell]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for cell in cells:
        for sentence in cell.warned:
            counts[sentence] = counts.get(sentence, 0) + 1
    return counts
