"""A table of outcomes of our own: 1,500 questions, asked of two small language models and of rules.

The questions are those of :mod:`mild.data.datasets.questions`. SmolLM2-135M and Gemma-3-270M, both behind
llama.cpp on one thread, and a rule-based solver really answered each of them; ``scripts/`` has what was
run. Latencies were measured, and prices follow from counted tokens at made-up rates, in proportion to the
models' sizes.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["outcomes_file"]


def outcomes_file() -> Path:
    """The table, as a file that ``mild.data.read_outcomes`` reads.

    Examples
    --------
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(outcomes_file())
    >>> table.rows, table.expert_names
    (1500, ['smollm2', 'gemma3', 'rules'])
    """
    return Path(__file__).with_name("outcomes.parquet")
