"""Synthetic tables of outcomes: as many further rows as wanted come from the same world.

A query names its topic and how hard it is; an expert is right with a probability that depends on both.
Prices are dollars per query times the length of the answer, which is the same for all experts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

TOPICS = ("algebra", "poetry", "biology", "contracts", "history", "coding", "chess", "cooking")
HARDNESS = ("easy", "usual", "difficult")
FILLERS = ("please", "kindly", "now", "soon", "again", "today", "maybe", "also")
EXPERTS = ("a", "b", "c", "d")
FEW_DOLLARS = (0.010, 0.004, 0.0012, 0.0003)
GROUP_SIZE = 5

Floats = NDArray[np.float64]


def profile(seed: int, n_experts: int, spread: float = 0.9) -> Floats:
    """What each expert is good at: (topics, experts), mean 0 over the topics."""
    skills = np.random.default_rng(seed).normal(0, spread, (len(TOPICS), n_experts))
    return skills - skills.mean(axis=0)


def level_experts() -> Floats:
    """Skills (topics, 4) where the first two experts have the same expected quality.

    Topics are equally frequent, and the second expert's skills are the first one's in reverse.
    """
    first = np.linspace(-1.2, 1.2, len(TOPICS))
    others = profile(1, 2)
    return np.column_stack([first + 1.5, first[::-1] + 1.5, others[:, 0] + 0.6, others[:, 1] - 0.2])


@dataclass(frozen=True)
class World:
    """Where tables come from.

    ``skills`` (topics, experts) are log-odds of a right answer at usual hardness, ``dollars`` (experts,)
    mean prices per query, ``budgets`` dollars per 1,000 queries that routers are asked to hold.
    """

    title: str
    skills: Floats
    dollars: tuple[float, ...]
    hardness: float = 0.8
    has_answers: bool = False
    group_size: int = 1
    budgets: tuple[float, ...] = ()

    @property
    def experts(self) -> list[str]:
        n_experts = self.skills.shape[1]
        return list(EXPERTS) if n_experts == len(EXPERTS) else [f"e{k}" for k in range(n_experts)]

    def draw(self, n_rows: int, rng: np.random.Generator) -> pd.DataFrame:
        """A table of ``n_rows`` queries."""
        n_queries = n_rows // self.group_size
        each = np.repeat(np.arange(n_queries), self.group_size)
        topic = rng.integers(0, len(TOPICS), n_queries)
        hard = rng.integers(0, len(HARDNESS), n_queries)
        logit = self.skills[topic] - self.hardness * (hard[:, None] - 1)
        if self.group_size > 1:
            # Equal queries share what makes them hard for an expert.
            logit = logit + rng.normal(size=logit.shape)
        right = rng.random((n_rows, len(self.dollars))) < 1 / (1 + np.exp(-logit[each]))
        length = rng.lognormal(0, 0.4, n_rows)
        words = rng.choice(FILLERS, (n_queries, 3))
        queries = [
            f"{HARDNESS[h]} {TOPICS[t]} question {number} {' '.join(row)}"
            for number, (h, t, row) in enumerate(zip(hard, topic, words, strict=True))
        ]
        columns: dict[str, Any] = {"query": np.array(queries, object)[each]}
        for k, expert in enumerate(self.experts):
            columns[f"correct__{expert}"] = right[:, k].astype(int)
            columns[f"cost__{expert}"] = self.dollars[k] * length
        if self.has_answers:
            answers = self._answers(right, topic[each], rng)
            for k, expert in enumerate(self.experts):
                columns[f"answer__{expert}"] = answers[:, k].astype(str)
        return pd.DataFrame(columns)

    def _answers(self, right: Any, topic: Any, rng: np.random.Generator) -> Any:
        """Numbers; experts that are wrong say the same in the second half of the topics."""
        truth = rng.integers(100, 1000, len(right))
        shared = topic >= len(TOPICS) // 2
        mistakes = np.where(shared[:, None], 1000, rng.integers(1000, 1100, right.shape))
        return truth[:, None] + np.where(right, 0, mistakes)


def _worlds() -> dict[str, World]:
    few = profile(2, 4) + np.array([2.2, 0.9, 0.6, 0.0])
    many = profile(3, 10) + np.linspace(-0.3, 1.9, 10)
    return {
        "par_10_1": World("two at par, 10 : 1", level_experts(), (0.010, 0.001, 0.0003, 0.0001)),
        "par_10_9": World("two at par, 10 : 9", level_experts(), (0.010, 0.009, 0.002, 0.0004)),
        "best": World("one clearly best", few, FEW_DOLLARS),
        "ten": World("ten experts", many, tuple(np.exp(np.linspace(-8.5, -4.5, 10)).tolist())),
        "answers": World("answers", few, FEW_DOLLARS, has_answers=True),
        "groups": World("groups of five", few, FEW_DOLLARS, group_size=GROUP_SIZE),
        "budget": World("a budget", few, FEW_DOLLARS, budgets=(4.0, 2.0)),
        "independent": World(
            "scores independent of the text",
            np.broadcast_to([1.8, 1.1, 0.8, 0.4], (len(TOPICS), 4)),
            FEW_DOLLARS,
            hardness=0.0,
        ),
    }


WORLDS = _worlds()
