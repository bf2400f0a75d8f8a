"""Three small tables with known outcomes, each in rows to train on and rows to judge.

All are made by a generator with a fixed seed, from uniform numbers alone. Inputs are multiples of 1/256, so
that they are the same numbers in single and in double precision. Experts are in the order of the alphabet.
"""

from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np


@dataclass(frozen=True)
class Rows:
    """Rows of a table: arrays with one row per query; those of the experts have one column per expert."""

    experts: tuple
    inputs: np.ndarray
    errors: np.ndarray  # NaN where an expert was not asked
    prices: np.ndarray | None = None  # dollars
    latencies: np.ndarray | None = None  # seconds
    answers: np.ndarray | None = None  # of objects, None where an expert has no answer
    topics: np.ndarray | None = None  # of texts: rows that belong together

    def take(self, rows):
        """Some of the rows."""
        taken = {}
        for field in fields(self):
            values = getattr(self, field.name)
            if isinstance(values, np.ndarray):
                taken[field.name] = values[rows]
        return replace(self, **taken)

    @property
    def columns(self):
        """Topics and answers by the names of their columns in a table."""
        columns = {}
        if self.topics is not None:
            columns["topic"] = self.topics
        if self.answers is not None:
            for expert, answers in zip(self.experts, self.answers.T, strict=True):
                columns[f"answer__{expert}"] = answers
        return columns

    def split(self, n_train):
        """The first rows, to train on, and the others."""
        return self.take(slice(n_train)), self.take(slice(n_train, None))


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def uniform_inputs(rng, n, n_features):
    """Numbers between -1 and 1."""
    return np.round(256 * (2 * rng.random((n, n_features)) - 1)) / 256


@cache
def vectors():
    """Errors between 0 and 1 without ties, three experts: the last is best in three rows of five."""
    rng = np.random.default_rng(52)
    X = uniform_inputs(rng, 700, 4)
    difficulty = np.column_stack(
        [
            0.9 + 2.2 * X[:, 0],
            1.2 - 2.4 * X[:, 1] + 2.0 * X[:, 2] * (X[:, 3] > 0),
            -0.3 + 1.0 * X[:, 2] - 0.8 * X[:, 0],
        ]
    )
    errors = 0.1 + 0.8 * sigmoid(difficulty) + 0.2 * (rng.random((700, 3)) - 0.5)
    return Rows(("alpha", "beta", "gamma"), X, errors).split(400)


@cache
def priced():
    """Right or wrong answers of four experts with prices and latencies, in topics of four rows."""
    rng = np.random.default_rng(53)
    topic = np.arange(640) // 4
    X = (uniform_inputs(rng, 160, 3)[topic] + uniform_inputs(rng, 640, 3)) / 2
    ability = np.array([-0.6, 0.0, 0.5, 1.4])
    strength = 2.5 * np.array([[1, 0, 0], [-1, 1, 0], [0, -1, 1], [0.2, 0.2, -0.2]])
    errors = (rng.random((640, 4)) > sigmoid(ability + X @ strength.T)).astype(float)
    length = np.exp(0.8 * X[:, :1]) * (0.8 + 0.4 * rng.random((640, 4)))
    prices = np.array([0.0002, 0.001, 0.003, 0.012]) * length
    latencies = np.array([0.3, 0.5, 0.4, 1.5]) * (0.5 + rng.random((640, 4)))
    topics = np.array([f"topic {number}" for number in topic])
    experts = ("large-1", "medium-1", "medium-2", "small-1")
    columns = [3, 1, 2, 0]
    return Rows(
        experts, X, errors[:, columns], prices[:, columns], latencies[:, columns], topics=topics
    ).split(400)


def with_gaps(rows):
    """The rows, of which each expert was asked in about three of four."""
    rng = np.random.default_rng(54)
    n, n_experts = rows.errors.shape
    is_asked = rng.random((n, n_experts)) < 0.75
    # Two experts of each row were always asked.
    first = np.arange(n) % n_experts
    is_asked[np.arange(n), first] = True
    is_asked[np.arange(n), (first + 1) % n_experts] = True
    changed = {"errors": np.where(is_asked, rows.errors, np.nan)}
    if rows.prices is not None:
        changed["prices"] = np.where(is_asked, rows.prices, np.nan)
        changed["latencies"] = np.where(is_asked, rows.latencies, np.nan)
    return replace(rows, **changed)


@cache
def answered():
    """Answers of three experts to sums: a dear one, and two who are mostly right if they agree."""
    rng = np.random.default_rng(55)
    n = 900
    X = uniform_inputs(rng, n, 3)
    truth = 10 + (90 * rng.random(n)).astype(int)
    hardness = rng.random(n)
    ability = np.array([0.98, 0.82, 0.80])
    is_right = rng.random((n, 3)) < ability - np.array([0.15, 0.6, 0.6]) * hardness[:, None] ** 2
    mistake = 1 + (4 * rng.random((n, 3))).astype(int)
    given = truth[:, None] + np.where(is_right, 0, mistake)
    wording = (3 * rng.random((n, 3))).astype(int)
    is_silent = rng.random((n, 3)) < np.array([0.0, 0.01, 0.01])
    wordings = ("{}", "The answer is {}.", "{}.0")
    answers = np.empty((n, 3), object)
    for row, expert in np.ndindex(n, 3):
        if not is_silent[row, expert]:
            answers[row, expert] = wordings[wording[row, expert]].format(given[row, expert])
    errors = np.where(is_right & ~is_silent, 0.0, 1.0)
    prices = np.array([0.01, 0.0005, 0.0007]) * (0.8 + 0.4 * rng.random((n, 3)))
    experts = ("large", "small-1", "small-2")
    return Rows(experts, X, errors, prices, answers=answers).split(600)
