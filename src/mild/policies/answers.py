"""A policy that reads answers: experts are asked in steps, until the leading answer is probably right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies.base import Policy, Settings, Tensors

# Rows that an estimate begins with, at the accuracy of the best expert who says the same.
PRIOR_ROWS = 2.0


class Ask(NamedTuple):
    """Ask these experts, at the same time."""

    experts: tuple[int, ...]


class Accept(NamedTuple):
    """Give the answer of this expert, whose expected score is known."""

    expert: int
    score: float


class CascadeRun(NamedTuple):
    """What a cascade does with n rows whose answers are known."""

    step: IntArray  # (n,) the step whose answer is accepted, from 0
    expert: IntArray  # (n,) expert whose answer is given
    score: FloatArray  # (n,) its expected score
    asked: BoolArray  # (n, n_experts) which experts were asked


def answer_groups(codes: IntArray) -> IntArray:
    """Answers (n, k) numbered from 1 in the order in which they first appear in a row; 0 for none.

    >>> answer_groups(np.array([[7, 7, 3], [-1, 2, 2]]))
    array([[1, 1, 2],
           [0, 1, 1]])
    """
    groups = np.zeros(codes.shape, np.intp)
    for k, own in enumerate(codes.T):
        same = (codes[:, :k] == own[:, None]) & (own >= 0)[:, None]
        earlier = np.max(groups[:, :k] * same, axis=1, initial=0)
        new = groups[:, :k].max(axis=1, initial=0) + 1
        groups[:, k] = np.where(own < 0, 0, np.where(earlier > 0, earlier, new))
    return groups


def _patterns(groups: IntArray) -> tuple[IntArray, IntArray]:
    """Different rows (m, k) of groups (n, k), and which of them each row is."""
    digits = (groups.shape[1] + 1) ** np.arange(groups.shape[1])
    _, first, place = np.unique(groups @ digits, return_index=True, return_inverse=True)
    return groups[first], place


@dataclass(eq=False)
class AgreementTable:
    """Which of k experts agreed on past rows, and what their answers scored.

    It gives the expected score of the leading answer by who says it and who says something else. An answer
    leads if no other has a higher expected score. Experts that were not asked, or failed, do not count.
    """

    groups: IntArray  # (m, k) patterns of agreement, as ``answer_groups`` numbers them
    counts: FloatArray  # (m,) rows with each pattern
    sums: FloatArray  # (m, k) of the scores of each expert's answers
    accuracy: FloatArray  # (k,) mean score of each expert

    @classmethod
    def of_rows(cls, codes: IntArray, scores: FloatArray, weight: FloatArray) -> Self:
        """The table of rows (n, k) in which every expert was asked."""
        patterns, place = _patterns(answer_groups(codes))
        size = len(patterns)
        counts = np.bincount(place, weight, size)
        sums = [np.bincount(place, weight * column, size) for column in scores.T]
        return cls(patterns, counts, np.column_stack(sums), weight @ scores / weight.sum())

    def of(self, places: Sequence[int]) -> AgreementTable:
        """The table of some of the experts, by their places in it."""
        kept = list(places)
        groups, place = _patterns(answer_groups(self.groups[:, kept] - 1))
        counts = np.bincount(place, self.counts, len(groups))
        sums = [np.bincount(place, column, len(groups)) for column in self.sums[:, kept].T]
        return AgreementTable(groups, counts, np.column_stack(sums), self.accuracy[kept])

    def leading(
        self, codes: IntArray, own: tuple[FloatArray, FloatArray] | None = None
    ) -> tuple[IntArray, FloatArray]:
        """The expert (n,) who gives the leading answer best, and its expected score (n,).

        ``own`` are scores (n, k) and weights (n,) of the rows where they are among those of the table:
        they are left out, each of its own estimate.
        """
        every, place = _patterns(answer_groups(codes))
        equal = (every[:, None] == self.groups[None]).all(axis=2)
        counts, sums = (equal @ self.counts)[place][:, None], (equal @ self.sums)[place]
        if own is not None:
            scores, weight = own
            counts = counts - weight[:, None]
            sums = sums - weight[:, None] * scores
        # Of those who say the same, the best speaks for all.
        order = np.argsort(-self.accuracy, kind="stable")
        best = np.zeros(every.shape, bool)
        for i, row in enumerate(every):
            spoken = {0}
            for k in order:
                if row[k] not in spoken:
                    spoken.add(row[k])
                    best[i, k] = True
        expected = (sums + PRIOR_ROWS * self.accuracy) / (counts + PRIOR_ROWS)
        expected = np.where(best[place], expected, -np.inf)
        lead = expected.argmax(axis=1)
        score = expected[np.arange(len(codes)), lead]
        return lead, np.where(np.isfinite(score), score, 0.0)


@dataclass(eq=False)
class AnswerCascadePolicy(Policy, kind="answer_cascade"):
    """Asks experts step by step, and accepts the leading answer once its expected score is high enough.

    After the last step the leading answer is accepted in any case. Without answers, as in ``predict``, the
    decision is the first expert of the first step.
    """

    steps: list[list[int]]  # experts that are asked together, step by step
    threshold: float  # expected score from which an answer is accepted
    table: AgreementTable  # of the experts of all steps, in their order
    n_experts: int
    n_features: int

    def __post_init__(self) -> None:
        self.order = [expert for step in self.steps for expert in step]
        # Of the experts that were asked after each step.
        ends = np.cumsum([len(step) for step in self.steps]).tolist()
        self._tables = [self.table.of(range(end)) for end in ends]

    def next(self, answers: Mapping[int, str | None]) -> Ask | Accept:
        """What to do after these answers, by expert; None for one that failed or gave no answer."""
        asked: list[int] = []
        for step, table in zip(self.steps, self._tables, strict=True):
            asked += step
            missing = tuple(expert for expert in step if expert not in answers)
            if missing:
                return Ask(missing)
            said = [answers[expert] for expert in asked]
            different = list(dict.fromkeys(said))
            codes = np.array([[-1 if one is None else different.index(one) for one in said]])
            lead, score = table.leading(codes)
            accepted = Accept(asked[int(lead[0])], float(score[0]))
            if accepted.score >= self.threshold and said[int(lead[0])] is not None:
                break
        return accepted

    def run(self, codes: IntArray) -> CascadeRun:
        """What the policy does with rows whose answers (n, n_experts) are known."""
        n = len(codes)
        step = np.full(n, len(self.steps) - 1)
        expert, score = np.full(n, self.order[-1]), np.zeros(n)
        asked, open_rows = np.zeros((n, self.n_experts), bool), np.arange(n)
        for number, (now, table) in enumerate(zip(self.steps, self._tables, strict=True)):
            asked[np.ix_(open_rows, now)] = True
            before = self.order[: table.groups.shape[1]]
            lead, found = table.leading(codes[np.ix_(open_rows, before)])
            expert[open_rows], score[open_rows] = np.array(before)[lead], found
            accepted = found >= self.threshold
            step[open_rows[accepted]] = number
            open_rows = open_rows[~accepted]
        return CascadeRun(step, expert, score, asked)

    def decision_function(self, X: Any) -> FloatArray:
        """1 for the expert that is asked first, else 0."""
        scores = np.zeros((X.shape[0], self.n_experts))
        scores[:, self.order[0]] = 1.0
        return scores

    def predict_proba(self, X: Any) -> FloatArray:
        return self.decision_function(X)

    def predict(self, X: Any) -> IntArray:
        return np.full(X.shape[0], self.order[0])

    def without(self, expert: int) -> AnswerCascadePolicy:
        self._check_drop(expert)
        kept = [k for k, one in enumerate(self.order) if one != expert]
        if not kept:
            raise UnsupportedError("the only expert of a cascade cannot be taken out of it.")
        steps = [[k - (k > expert) for k in step if k != expert] for step in self.steps]
        return replace(
            self,
            steps=[step for step in steps if step],
            table=self.table.of(kept),
            n_experts=self.n_experts - 1,
        )

    def state(self) -> tuple[Settings, Tensors]:
        table = self.table
        settings = {
            "steps": self.steps,
            "threshold": float(self.threshold),
            "n_experts": self.n_experts,
            "n_features": self.n_features,
        }
        parts = {"groups": table.groups.astype(np.float64), "counts": table.counts}
        return settings, {**parts, "sums": table.sums, "accuracy": table.accuracy}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        table = AgreementTable(
            tensors["groups"].astype(np.intp),
            tensors["counts"],
            tensors["sums"],
            tensors["accuracy"],
        )
        return cls(table=table, **settings)
