"""A policy that reads answers: experts are asked in steps, until the leading answer is probably right."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE, tie_ranks
from mild.errors import UnsupportedError
from mild.policies.base import Decisions, Policy, Settings, Tensors
from mild.policies.compose import nested, unnested

# An estimate counts as many rows more, at the accuracy of the best expert who gives the same answer.
PRIOR_ROWS = 2.0
# Code of an answer whose score is not known: the row does not count for cascades that ask this expert.
UNKNOWN = -2
# Patterns of at most this many experts fit into one integer.
_MOST_DIGITS = 15
# Number of patterns of single rows that are remembered.
_MOST_SEEN = 10_000

# Scores (n, k) and weights (n,) of rows that are among those of a table.
OwnRows: TypeAlias = tuple[FloatArray, FloatArray]
# Of n rows: an expert, or its position among those that were asked, and the probability that it is right.
Lead: TypeAlias = tuple[IntArray, FloatArray]


class Ask(NamedTuple):
    """Ask these experts, at the same time."""

    experts: tuple[int, ...]


class Accept(NamedTuple):
    """Give the answer of this expert."""

    expert: int
    probability: float  # that it is right, as agreement on past rows tells


class CascadeRun(NamedTuple):
    """What a cascade does with n rows whose answers are known."""

    steps: list[list[int]]  # experts of each step of the cascade
    accepted_step: IntArray  # (n,) number of the step whose answer is accepted, from 0
    expert: IntArray  # (n,) expert whose answer is given
    probability: FloatArray  # (n,) that it is right, as agreement on past rows tells
    asked: BoolArray  # (n, n_experts) which experts were asked
    # (n,) whether the second cascade of a mix ran; None without a mix
    is_second: BoolArray | None = None
    n_first: int = 0  # steps of the first cascade of a mix; those of the second one follow

    def answer_scores(self, scores: FloatArray) -> FloatArray:
        """Scores (n,) of the answers that are given, from the scores (n, n_experts) of all experts."""
        return scores[np.arange(len(scores)), self.expert]

    def total_prices(self, prices: FloatArray) -> FloatArray:
        """Prices (n,) of all experts that were asked, from the prices (n, n_experts) of all."""
        return np.where(self.asked, prices, 0.0).sum(axis=1)

    def seconds(self, latencies: FloatArray) -> FloatArray:
        """Seconds (n,) until the answer; of experts that are asked together the slowest one counts."""
        waited = np.where(self.asked, latencies, 0.0)
        total = np.zeros(len(waited))
        for number, step in enumerate(self.steps):
            slowest = waited[:, step].max(axis=1)
            if self.is_second is not None:
                # Both cascades of a mix may ask the same expert.
                slowest = np.where(self.is_second == (number >= self.n_first), slowest, 0.0)
            total += slowest
        return total

    def is_last(self, number: int) -> bool:
        """Whether a step is the last one of its cascade."""
        return number in (self.n_first - 1, len(self.steps) - 1)


def answer_groups(codes: IntArray) -> IntArray:
    """Answers (n, k) numbered from 1 in the order in which they first appear in a row.

    0 is no answer, -1 one whose score is unknown.

    >>> answer_groups(np.array([[7, 7, 3], [-1, 2, 2]]))
    array([[1, 1, 2],
           [0, 1, 1]])
    """
    groups = np.zeros(codes.shape, np.intp)
    for k, column in enumerate(codes.T):
        is_same = (codes[:, :k] == column[:, None]) & (column >= 0)[:, None]
        earlier_group = np.max(groups[:, :k] * is_same, axis=1, initial=0)
        new_group = groups[:, :k].max(axis=1, initial=0) + 1
        group_of_answer = np.where(earlier_group > 0, earlier_group, new_group)
        groups[:, k] = np.where(column < 0, column + 1, group_of_answer)
    return groups


def _distinct_patterns(groups: IntArray) -> tuple[IntArray, IntArray]:
    """The first row (m,) of each distinct pattern of groups (n, k), and the pattern (n,) of each row."""
    k = groups.shape[1]
    keys = groups
    if k <= _MOST_DIGITS:
        # Groups are -1 to k: the digits of a number to the base k + 2, which sorts faster than rows.
        keys = (groups + 1) @ (k + 2) ** np.arange(k)
    _, first_row, pattern_of_row = np.unique(keys, return_index=True, return_inverse=True, axis=0)
    return first_row, pattern_of_row.ravel()


def _sums_by_pattern(pattern_of_row: IntArray, values: FloatArray) -> FloatArray:
    """Sums (m, k) of the values (n, k) over the rows of each pattern."""
    n_patterns = int(pattern_of_row.max(initial=-1)) + 1
    sums = [np.bincount(pattern_of_row, column, n_patterns) for column in values.T]
    return np.column_stack(sums).astype(float)


@dataclass(eq=False)
class AgreementTable:
    """Which of k experts agreed on past rows, and what their answers scored.

    It gives the expected score of an answer by who gives it and who gives another one. An answer leads if
    no other has a higher expected score. Experts that were not asked, or failed, do not count.

    With ``count`` past rows of the same pattern of agreement, in which the answers of expert k scored
    ``sum_k`` in total, the expected score of its answer is::

        (sum_k + PRIOR_ROWS * before_k) / (count + PRIOR_ROWS)

    where ``before_k`` is the accuracy of expert k (if an expert has no answer, see ``expected``).
    """

    groups: IntArray  # (m, k) patterns of agreement, as ``answer_groups`` numbers them
    counts: FloatArray  # (m,) rows with each pattern
    sums: FloatArray  # (m, k) of the scores of each expert's answers
    accuracy: FloatArray  # (k,) mean score of each expert

    @classmethod
    def of_rows(cls, codes: IntArray, scores: FloatArray, weight: FloatArray) -> Self:
        """The table of rows (n, k); codes are ``UNKNOWN`` where scores are not known."""
        known = codes != UNKNOWN
        weights = weight[:, None] * known
        sums = weights * np.where(known, scores, 0.0)
        accuracy = sums.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
        return cls(answer_groups(codes), weight, sums, accuracy)._merged()

    def of_experts(self, positions: Sequence[int]) -> AgreementTable:
        """The table of some of the experts, by their positions in it."""
        columns = list(positions)
        is_known = (self.groups[:, columns] >= 0).all(axis=1)
        groups = answer_groups(self.groups[is_known][:, columns] - 1)
        sums = self.sums[is_known][:, columns]
        counts = self.counts[is_known]
        return AgreementTable(groups, counts, sums, self.accuracy[columns])._merged()

    def _merged(self) -> Self:
        """The table with every pattern once."""
        first_row, pattern_of_row = _distinct_patterns(self.groups)
        counts_and_sums = np.column_stack([self.counts, self.sums])
        totals = _sums_by_pattern(pattern_of_row, counts_and_sums)
        return replace(self, groups=self.groups[first_row], counts=totals[:, 0], sums=totals[:, 1:])

    def same_agreement(self, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rows (n,) of the table in which the same experts agree, and sums (n, k) of their scores."""
        groups = answer_groups(codes)
        _, pattern_of_row = _distinct_patterns(np.concatenate([self.groups, groups]))
        # The rows of ``codes`` themselves add nothing to the sums of their patterns.
        counts_and_sums = np.column_stack([self.counts, self.sums])
        padded = np.pad(counts_and_sums, ((0, len(groups)), (0, 0)))
        totals = _sums_by_pattern(pattern_of_row, padded)
        totals_of_row = totals[pattern_of_row[len(self.groups) :]]
        return totals_of_row[:, 0], totals_of_row[:, 1:]

    def expected(self, codes: IntArray, own_rows: OwnRows | None = None) -> FloatArray:
        """Expected score (n, k) of each expert's answer; 0 where it has none.

        Past rows in which the same experts have no answer tell most. As long as there are few of them, an
        expert that has no answer counts as one that says something else: ``before`` is then the expected
        score of that pattern. Each of the ``own_rows`` is left out of its own estimate.
        """
        counts, sums = self.same_agreement(codes)
        if own_rows is not None:
            scores, weight = own_rows
            counts = counts - weight
            sums = sums - weight[:, None] * scores
        before = np.broadcast_to(self.accuracy, codes.shape)
        is_silent = (codes < 0) & (codes > UNKNOWN)
        if is_silent.any():
            new_codes = codes.max() + 1 + np.arange(codes.shape[1])
            if_they_disagreed = self.expected(np.where(is_silent, new_codes, codes))
            has_silent = np.any(is_silent, axis=1, keepdims=True)
            before = np.where(has_silent, if_they_disagreed, before)
        estimate = (sums + PRIOR_ROWS * before) / (counts + PRIOR_ROWS)[:, None]
        return np.where(codes < 0, 0.0, np.clip(estimate, 0.0, 1.0))

    def leading(self, codes: IntArray, own_rows: OwnRows | None = None) -> Lead:
        """The position (n,) of the expert who gives the leading answer, and its expected score (n,).

        Of experts who give the same answer, the most accurate one speaks for all.
        """
        accuracy_rank = np.argsort(np.argsort(tie_ranks(-self.accuracy), kind="stable"))
        is_same = codes[:, :, None] == codes[:, None, :]
        is_more_accurate = accuracy_rank[None, :] < accuracy_rank[:, None]
        has_speaker = (is_same & is_more_accurate).any(axis=2)
        takes_no_part = has_speaker | (codes < 0)
        expected = np.where(takes_no_part, -np.inf, self.expected(codes, own_rows))
        highest = expected.max(axis=1, keepdims=True)
        lead = (expected >= highest - OUTCOME_TOLERANCE).argmax(axis=1)
        score = expected[np.arange(len(codes)), lead]
        # Where nobody has an answer, the score is 0.
        return lead, np.where(np.isfinite(score), score, 0.0)


@dataclass(eq=False, repr=False)
class CascadePolicy(Policy, kind="cascade"):
    """Asks experts step by step, and accepts the leading answer once it is probably right.

    The answer of the last step is not judged: that of its last expert is given, or if that has none, the
    leading one. Without answers, as in ``predict``, the decision is the first expert of the first step.
    ``direct`` decides without answers, for callers who want one expert only.

    The probability that the leading answer is right is that of the agreement table.
    """

    answer_kind: str  # how answers are compared
    steps: list[list[int]]  # experts that are asked together, step by step
    threshold: float  # probability from which an answer is accepted
    table: AgreementTable  # of the experts of all steps, in their order
    direct: Policy

    def __post_init__(self) -> None:
        if self.direct.n_columns != self.direct.n_features:
            raise UnsupportedError(
                "the policy of a cascade that decides without answers must not be a mix; mix two cascades.",
                parameter="direct",
            )
        self.n_experts = self.direct.n_experts
        self.n_features = self.direct.n_features
        self.order = [expert for step in self.steps for expert in step]
        self._seen: dict[tuple[Any, ...], Lead] = {}

    @property
    def cascades(self) -> list[CascadePolicy]:
        """This cascade; a mix has two."""
        return [self]

    def drawn_cascade(self, x: FloatArray | None) -> CascadePolicy:
        """The cascade that runs for one input: this one; a mix has two."""
        return self

    def next(self, x: FloatArray | None, answers: Mapping[int, Any]) -> Ask | Accept:
        """What to do after these answers, by expert; a mix needs the features x of the query for its draw.

        An answer is what an expert said; None for an expert that failed or has no answer.
        """
        asked: list[int] = []
        missing: tuple[int, ...] = ()
        for step in self.steps:
            missing = tuple(expert for expert in step if expert not in answers)
            if missing:
                break
            asked += step
        if not missing:
            # The last step has been asked: its answer is given.
            return self._accepted(asked, answers, is_last=True)
        if asked:
            accepted = self._accepted(asked, answers)
            if accepted.probability >= self.threshold:
                return accepted
        return Ask(missing)

    def leading(self, x: FloatArray | None, answers: Mapping[int, Any]) -> Accept:
        """The leading one of these answers, by expert; its probability is 0 if there is none."""
        answering = [expert for expert in self.order if expert in answers]
        return self._accepted(answering, answers)

    def _accepted(
        self, experts: list[int], answers: Mapping[int, Any], is_last: bool = False
    ) -> Accept:
        """The answer to give after these experts were asked; the last expert's if nobody was asked."""
        if not experts:
            return Accept(self.order[-1], 0.0)
        contents = [answers[expert] for expert in experts]
        row = Answers.of([contents], self.answer_kind)
        expert, probability = self._judge(experts, row, is_last)
        return Accept(int(expert[0]), float(probability[0]))

    def run(self, X: Any, answers: Answers) -> CascadeRun:
        """What the policy does with rows whose answers (n, n_experts) are known."""
        n_rows = len(answers.codes)
        last_step = len(self.steps) - 1
        run = CascadeRun(
            self.steps,
            accepted_step=np.full(n_rows, last_step),
            expert=np.full(n_rows, self.order[-1]),
            probability=np.zeros(n_rows),
            asked=np.zeros((n_rows, self.n_experts), bool),
        )
        rows = np.arange(n_rows)
        experts: list[int] = []
        for number, step in enumerate(self.steps):
            experts += step
            run.asked[rows[:, None], step] = True
            row_answers = answers.take(rows).of_experts(experts)
            expert, probability = self._judge(experts, row_answers, number == last_step)
            run.expert[rows] = expert
            run.probability[rows] = probability
            is_accepted = probability >= self.threshold
            run.accepted_step[rows[is_accepted]] = number
            rows = rows[~is_accepted]
        return run

    def first_asked(self, X: Any) -> list[list[int]]:
        """Experts that are asked first, at the same time, for each input."""
        return [self.steps[0]] * X.shape[0]

    def with_direct(self, direct: Policy) -> CascadePolicy:
        """The cascade with another policy that decides without answers."""
        return replace(self, direct=direct)

    def with_answer_kind(self, kind: str) -> CascadePolicy:
        """The cascade that compares answers of another kind."""
        return replace(self, answer_kind=kind)

    def _judge(self, experts: list[int], answers: Answers, is_last: bool) -> Lead:
        """Expert (n,) with the leading of these experts' answers, and the probability that it is right.

        After the last step, it is the last expert unless that has no answer.
        """
        codes = answers.codes
        position, probability = self._estimate(tuple(experts), codes, is_last)
        expert = np.array(experts)[position]
        is_silent = codes[np.arange(len(codes)), position] < 0
        if is_last and len(experts) > 1 and is_silent.any():
            earlier_answers = answers.of_experts(range(len(experts) - 1))
            earlier_lead = self._judge(experts[:-1], earlier_answers, False)
            expert = np.where(is_silent, earlier_lead[0], expert)
            probability = np.where(is_silent, earlier_lead[1], probability)
        return expert, probability

    def _estimate(self, experts: tuple[int, ...], codes: IntArray, is_last: bool) -> Lead:
        """As ``_judge``, by position in the experts; that of a single row is remembered."""
        if len(codes) != 1:
            return self._estimate_by_table(experts, codes, is_last)
        key = (experts, is_last, tuple(codes[0].tolist()))
        lead = self._seen.get(key)
        if lead is None:
            lead = self._estimate_by_table(experts, codes, is_last)
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[key] = lead
        return lead

    def _estimate_by_table(self, experts: tuple[int, ...], codes: IntArray, is_last: bool) -> Lead:
        """As ``_estimate``, by the agreement table."""
        table = self.table.of_experts([self.order.index(expert) for expert in experts])
        if not is_last:
            return table.leading(codes)
        last_position = np.full(len(codes), len(experts) - 1)
        return last_position, table.expected(codes)[:, -1]

    def decision_function(self, X: Any) -> FloatArray:
        """Minus the place (n, n_experts) of each expert in the order in which they are asked."""
        never_asked = [expert for expert in range(self.n_experts) if expert not in self.order]
        places = np.empty(self.n_experts, np.float32)
        places[[*self.order, *never_asked]] = range(self.n_experts)
        return np.tile(-places, (X.shape[0], 1))

    def decide(self, X: Any) -> Decisions:
        """The first expert of the first step; shares and costs of each expert are those of ``direct``."""
        return replace(
            self.direct.decide(X),
            chosen=self.predict(X),
            values=self.decision_function(X),
            by="first step",
        )

    def predict_proba(self, X: Any) -> FloatArray:
        return self.direct.predict_proba(X)

    def expected_costs(self, X: Any) -> FloatArray:
        return self.direct.expected_costs(X)

    def predict(self, X: Any) -> IntArray:
        return np.full(X.shape[0], self.order[0], np.intp)

    def with_decision(self, rule: str) -> Policy:
        raise only_direct("the decision rule", "decision")

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        if betas is None:
            raise only_direct("the prices", "price_weight")
        raise only_direct("the prices", "beta")

    def asking(self, experts: Collection[int]) -> CascadePolicy | None:
        """The cascade that asks only these experts, by index; None if it asks nobody then.

        It decides like that of ``with_experts``, but all experts keep their indices.
        """
        places = [place for place, expert in enumerate(self.order) if expert in experts]
        if not places:
            return None
        if len(places) == len(self.order):
            return self
        steps = []
        for step in self.steps:
            left = [expert for expert in step if expert in experts]
            if left:
                steps.append(left)
        return replace(self, steps=steps, table=self.table.of_experts(places))

    def with_experts(self, experts: IntArray) -> Policy:
        """The cascade of these experts; the direct policy where nobody is left to ask."""
        direct = self.direct.with_experts(experts)
        new_index = {expert: index for index, expert in enumerate(experts.tolist())}
        places = [place for place, expert in enumerate(self.order) if expert in new_index]
        if not places:
            return direct
        steps = []
        for step in self.steps:
            left = [new_index[expert] for expert in step if expert in new_index]
            if left:
                steps.append(left)
        return replace(self, steps=steps, table=self.table.of_experts(places), direct=direct)

    @property
    def ranks(self) -> IntArray | None:
        return self.direct.ranks

    def with_ranks(self, ranks: IntArray | None) -> CascadePolicy:
        return replace(self, direct=self.direct.with_ranks(ranks))

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.direct.parts]

    def state(self) -> tuple[Settings, Tensors]:
        tensors = {
            "groups": self.table.groups.astype(np.float64),
            "counts": self.table.counts,
            "sums": self.table.sums,
            "accuracy": self.table.accuracy,
        }
        nested_settings, all_tensors = nested([self.direct], **tensors)
        settings = {
            "answer_kind": self.answer_kind,
            "steps": self.steps,
            "threshold": float(self.threshold),
        }
        return {**settings, **nested_settings}, all_tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        table = AgreementTable(
            groups=tensors["groups"].astype(np.intp),
            counts=tensors["counts"],
            sums=tensors["sums"],
            accuracy=tensors["accuracy"],
        )
        (direct,) = unnested(settings, tensors)
        return cls(settings["answer_kind"], settings["steps"], settings["threshold"], table, direct)


def only_direct(setting: str, parameter: str) -> UnsupportedError:
    """The refusal to change a setting that a cascade was fitted for."""
    return UnsupportedError(
        f"{setting} of a cascade cannot be changed after fitting, because its steps were chosen for it; "
        "fit it again, or use its router without answers (router.direct).",
        parameter=parameter,
    )
