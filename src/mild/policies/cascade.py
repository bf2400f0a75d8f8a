"""A policy that reads answers: experts are asked in steps, until the leading answer is probably right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from mild.core.answers import Answers
from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOMES, tie_ranks
from mild.errors import UnsupportedError
from mild.policies.base import Decisions, Policy, Settings, Tensors
from mild.policies.compose import nested, unnested

# Rows that an estimate begins with, at the accuracy of the best expert who says the same.
PRIOR_ROWS = 2.0
# Code of an answer whose score is not known: the row does not count for cascades that ask this expert.
UNKNOWN = -2
# Experts whose pattern fits into one integer.
_MOST_DIGITS = 15
# Patterns of single rows that are remembered.
_MOST_SEEN = 10_000


class Ask(NamedTuple):
    """Ask these experts, at the same time."""

    experts: tuple[int, ...]


class Accept(NamedTuple):
    """Give the answer of this expert."""

    expert: int
    probability: float  # that it is right, as the gate estimates


class CascadeRun(NamedTuple):
    """What a cascade does with n rows whose answers are known."""

    steps: list[list[int]]  # of the cascade
    step: IntArray  # (n,) the step whose answer is accepted, from 0
    expert: IntArray  # (n,) expert whose answer is given
    probability: FloatArray  # (n,) that it is right, as the gate estimates
    asked: BoolArray  # (n, n_experts) which experts were asked
    # (n,) of a mix of two cascades: whether the second one ran; its steps follow the n_first of the first
    is_second: BoolArray | None = None
    n_first: int = 0

    def given(self, scores: FloatArray) -> FloatArray:
        """Scores (n,) of the answers that are given, of scores (n, n_experts)."""
        return scores[np.arange(len(scores)), self.expert]

    def paid(self, prices: FloatArray) -> FloatArray:
        """Prices (n,) of all experts that were asked, of prices (n, n_experts)."""
        return np.where(self.asked, prices, 0.0).sum(axis=1)

    def seconds(self, latencies: FloatArray) -> FloatArray:
        """Seconds (n,) until the answer: of experts that are asked together, those of the slowest."""
        known = np.where(self.asked, latencies, 0.0)
        total = np.zeros(len(known))
        for number, step in enumerate(self.steps):
            slowest = known[:, step].max(axis=1)
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
    for k, own in enumerate(codes.T):
        same = (codes[:, :k] == own[:, None]) & (own >= 0)[:, None]
        earlier = np.max(groups[:, :k] * same, axis=1, initial=0)
        new = groups[:, :k].max(axis=1, initial=0) + 1
        groups[:, k] = np.where(own < 0, own + 1, np.where(earlier > 0, earlier, new))
    return groups


def _patterns(groups: IntArray) -> tuple[IntArray, IntArray]:
    """The first rows (m,) of different groups (n, k), and which of them each row (n,) is."""
    k = groups.shape[1]
    keys = groups if k > _MOST_DIGITS else (groups + 1) @ (k + 2) ** np.arange(k)
    _, first, place = np.unique(keys, return_index=True, return_inverse=True, axis=0)
    return first, place.ravel()


def _sums(place: IntArray, values: FloatArray) -> FloatArray:
    """Sums (m, k) of the values (n, k) at each place."""
    size = int(place.max(initial=-1)) + 1
    return np.column_stack([np.bincount(place, column, size) for column in values.T]).astype(float)


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
        """The table of rows (n, k); codes are ``UNKNOWN`` where scores are not known."""
        known = codes != UNKNOWN
        weights = weight[:, None] * known
        sums = weights * np.where(known, scores, 0.0)
        accuracy = sums.sum(axis=0) / np.maximum(weights.sum(axis=0), 1e-300)
        return cls(answer_groups(codes), weight, sums, accuracy)._merged()

    def of(self, places: Sequence[int]) -> AgreementTable:
        """The table of some of the experts, by their places in it."""
        kept = list(places)
        known = (self.groups[:, kept] >= 0).all(axis=1)
        groups = answer_groups(self.groups[known][:, kept] - 1)
        sums = self.sums[known][:, kept]
        return AgreementTable(groups, self.counts[known], sums, self.accuracy[kept])._merged()

    def _merged(self) -> Self:
        """The table with every pattern once."""
        first, place = _patterns(self.groups)
        totals = _sums(place, np.column_stack([self.counts, self.sums]))
        return replace(self, groups=self.groups[first], counts=totals[:, 0], sums=totals[:, 1:])

    def like(self, codes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Rows (n,) of the table in which the same experts agree, and sums (n, k) of their scores."""
        m, groups = len(self.groups), answer_groups(codes)
        place = _patterns(np.concatenate([self.groups, groups]))[1]
        own = np.pad(np.column_stack([self.counts, self.sums]), ((0, len(groups)), (0, 0)))
        found = _sums(place, own)[place[m:]]
        return found[:, 0], found[:, 1:]

    def expected(
        self, codes: IntArray, own: tuple[FloatArray, FloatArray] | None = None
    ) -> FloatArray:
        """Expected score (n, k) of each expert's answer; 0 where it has none.

        Without past rows, an expert that has no answer counts as one that says something else. ``own`` are
        scores (n, k) and weights (n,) of the rows where they are among those of the table: they are left
        out, each of its own estimate.
        """
        counts, sums = self.like(codes)
        if own is not None:
            scores, weight = own
            counts = counts - weight
            sums = sums - weight[:, None] * scores
        before = np.broadcast_to(self.accuracy, codes.shape)
        silent = (codes < 0) & (codes > UNKNOWN)
        if silent.any():
            others = codes.max() + 1 + np.arange(codes.shape[1])
            apart = self.expected(np.where(silent, others, codes))
            before = np.where(np.any(silent, axis=1, keepdims=True), apart, before)
        estimate = (sums + PRIOR_ROWS * before) / (counts + PRIOR_ROWS)[:, None]
        return np.where(codes < 0, 0.0, np.clip(estimate, 0.0, 1.0))

    def leading(
        self, codes: IntArray, own: tuple[FloatArray, FloatArray] | None = None
    ) -> tuple[IntArray, FloatArray]:
        """The expert (n,) who gives the leading answer best, and its expected score (n,)."""
        # Of those who say the same, the best speaks for all.
        better = np.argsort(np.argsort(tie_ranks(-self.accuracy), kind="stable"))
        same = codes[:, :, None] == codes[:, None, :]
        spoken = (same & (better[None, :] < better[:, None])).any(axis=2) | (codes < 0)
        expected = np.where(spoken, -np.inf, self.expected(codes, own))
        highest = expected.max(axis=1, keepdims=True)
        lead = (expected >= highest - OUTCOMES).argmax(axis=1)
        score = expected[np.arange(len(codes)), lead]
        return lead, np.where(np.isfinite(score), score, 0.0)


@dataclass(eq=False, repr=False)
class CascadePolicy(Policy, kind="cascade"):
    """Asks experts step by step, and accepts the leading answer once it is probably right.

    The answer of the last step is not judged: that of its last expert is given, or if that has none, the
    leading one. Without answers, as in ``predict``, the decision is the first expert of the first step.
    ``direct`` decides without answers, for callers who want one expert only.

    The probability that the leading answer is right is that of the agreement table. With a ``gate``, its
    log-odds are ``gate[0] * log-odds + gate[1:-2] @ signals + gate[-2] * error + gate[-1]``, with the
    signals of the leading answer and the error that ``heads`` expect of its expert from the query. Where
    ``heads`` expect an error above ``start_error`` of every expert of the first step, the last step is the
    first.
    """

    answer_kind: str  # how answers are compared
    steps: list[list[int]]  # experts that are asked together, step by step
    threshold: float  # probability from which an answer is accepted
    table: AgreementTable  # of the experts of all steps, in their order
    direct: Policy
    gate: FloatArray | None = None  # (len(SIGNALS) + 3,)
    heads: Policy | None = None  # expected errors from the query
    start_error: float | None = None

    def __post_init__(self) -> None:
        if self.direct.n_columns != self.direct.n_features:
            raise UnsupportedError(
                "the policy of a cascade that decides without answers must not be a mix; mix two cascades.",
                parameter="direct",
            )
        self.n_experts, self.n_features = self.direct.n_experts, self.direct.n_features
        self.order = [expert for step in self.steps for expert in step]
        self._seen: dict[tuple[Any, ...], tuple[IntArray, FloatArray]] = {}

    @property
    def cascades(self) -> list[CascadePolicy]:
        """This cascade; a mix has two."""
        return [self]

    def drawn_cascade(self, x: FloatArray | None) -> CascadePolicy:
        """The cascade that runs for one input: this one; a mix has two."""
        return self

    def next(self, x: FloatArray | None, answers: Mapping[int, Any]) -> Ask | Accept:
        """What to do after these answers, by expert, to a query with features x (n_features,).

        An answer is an ``Answer`` or its content; None for an expert that failed or has no answer.
        """
        errors = self._errors(x)
        first = 0 if errors is None else int(self._first_steps(errors)[0])
        asked: list[int] = []
        for step in self.steps[first:]:
            if missing := tuple(expert for expert in step if expert not in answers):
                break
            asked += step
        if missing and not asked:
            return Ask(missing)
        found = self._accepted(errors, asked, answers, is_last=not missing)
        return found if not missing or found.probability >= self.threshold else Ask(missing)

    def leading(self, x: FloatArray | None, answers: Mapping[int, Any]) -> Accept:
        """The leading one of these answers, by expert; its probability is 0 if there is none."""
        return self._accepted(self._errors(x), [k for k in self.order if k in answers], answers)

    def _accepted(
        self,
        errors: FloatArray | None,
        experts: list[int],
        answers: Mapping[int, Any],
        is_last: bool = False,
    ) -> Accept:
        if not experts:
            return Accept(self.order[-1], 0.0)
        row = Answers.of([[answers[expert] for expert in experts]], self.answer_kind)
        expert, score = self._judge(experts, row, errors, is_last)
        return Accept(int(expert[0]), float(score[0]))

    def run(self, X: Any, answers: Answers) -> CascadeRun:
        """What the policy does with rows whose answers (n, n_experts) are known."""
        n, last = len(answers.codes), len(self.steps) - 1
        step, expert, score = np.full(n, last), np.full(n, self.order[-1]), np.zeros(n)
        asked = np.zeros((n, self.n_experts), bool)
        errors = None if self.heads is None else self.heads.expected_errors(X)
        first = np.zeros(n, np.intp) if errors is None else self._first_steps(errors)
        for start in np.unique(first):
            rows, experts = np.flatnonzero(first == start), list[int]()
            for number in range(start, last + 1):
                experts += self.steps[number]
                asked[rows[:, None], self.steps[number]] = True
                said = answers.take(rows).of_experts(experts)
                own = None if errors is None else errors[rows]
                expert[rows], score[rows] = self._judge(experts, said, own, number == last)
                accepted = score[rows] >= self.threshold
                step[rows[accepted]] = number
                rows = rows[~accepted]
        return CascadeRun(self.steps, step, expert, score, asked)

    def first_steps(self, X: Any) -> IntArray:
        """The step (n,) that each query begins with: 0, or the last."""
        if self.start_error is None or self.heads is None:
            return np.zeros(X.shape[0], np.intp)
        return self._first_steps(self.heads.expected_errors(X))

    def first_asked(self, X: Any) -> list[list[int]]:
        """Experts that are asked first, at the same time, for each input."""
        return [self.steps[number] for number in self.first_steps(X).tolist()]

    def with_direct(self, direct: Policy) -> CascadePolicy:
        """The cascade with another policy that decides without answers."""
        return replace(self, direct=direct)

    def with_answer_kind(self, kind: str) -> CascadePolicy:
        """The cascade that compares answers of another kind."""
        return replace(self, answer_kind=kind)

    def _first_steps(self, errors: FloatArray) -> IntArray:
        limit = np.inf if self.start_error is None else self.start_error
        hard = errors[:, self.steps[0]].min(axis=1) > limit
        return np.where(hard, len(self.steps) - 1, 0)

    def _errors(self, x: FloatArray | None) -> FloatArray | None:
        if self.heads is None:
            return None
        if x is None:
            raise UnsupportedError("this cascade needs the features of the query; got none.")
        return self.heads.expected_errors(x[None])

    def _judge(
        self, experts: list[int], answers: Answers, errors: FloatArray | None, is_last: bool
    ) -> tuple[IntArray, FloatArray]:
        """Expert (n,) with the leading of these experts' answers, and the probability that it is right.

        After the last step, it is the last expert unless it has no answer.
        """
        codes, rows = answers.codes, np.arange(len(answers.codes))
        place, score = self._estimate(tuple(experts), codes, is_last)
        expert = np.array(experts)[place]
        silent = codes[rows, place] < 0
        if self.gate is not None:
            own = np.zeros(len(rows)) if errors is None else errors[rows, expert]
            inputs = gate_inputs(score, answers.signals[rows, place], own)
            score = np.where(silent, 0.0, gate_values(inputs, self.gate))
        if is_last and len(experts) > 1 and silent.any():
            rest = answers.of_experts(range(len(experts) - 1))
            other, probability = self._judge(experts[:-1], rest, errors, False)
            expert, score = np.where(silent, other, expert), np.where(silent, probability, score)
        return expert, score

    def _estimate(
        self, experts: tuple[int, ...], codes: IntArray, is_last: bool
    ) -> tuple[IntArray, FloatArray]:
        """As ``_judge`` without a gate, by place in the experts; of single rows it is remembered."""
        key = experts, is_last, tuple(codes[0].tolist()) if len(codes) == 1 else None
        if key in self._seen:
            return self._seen[key]
        table = self.table.of([self.order.index(one) for one in experts])
        if is_last:
            found = np.full(len(codes), len(experts) - 1), table.expected(codes)[:, -1]
        else:
            found = table.leading(codes)
        if len(codes) == 1:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[key] = found
        return found

    def decision_function(self, X: Any) -> FloatArray:
        """Minus the place (n, n_experts) of each expert in the order in which they are asked."""
        rest = [expert for expert in range(self.n_experts) if expert not in self.order]
        places = np.empty((len(self.steps), self.n_experts), np.float32)
        for first in range(len(self.steps)):
            steps = [*self.steps[first:], *self.steps[:first], rest]
            places[first, [expert for step in steps for expert in step]] = range(self.n_experts)
        return -places[self.first_steps(X)]

    def decide(self, X: Any) -> Decisions:
        """The first expert of the first step; shares and costs of each expert are those of ``direct``."""
        found, values = self.direct.decide(X), self.decision_function(X)
        return replace(found, chosen=self.predict(X), values=values, by="first step")

    def predict_proba(self, X: Any) -> FloatArray:
        return self.direct.predict_proba(X)

    def expected_costs(self, X: Any) -> FloatArray:
        return self.direct.expected_costs(X)

    def predict(self, X: Any) -> IntArray:
        return np.array([step[0] for step in self.steps])[self.first_steps(X)]

    def with_decision(self, rule: str) -> Policy:
        raise only_direct("the decision rule", "decision")

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        raise only_direct("the prices", "price_weight" if betas is None else "beta")

    def with_experts(self, experts: IntArray) -> Policy:
        """The cascade of these experts; the direct policy where nobody is left to ask."""
        new_index = {expert: index for index, expert in enumerate(experts.tolist())}
        kept = [place for place, expert in enumerate(self.order) if expert in new_index]
        direct = self.direct.with_experts(experts)
        if not kept:
            return direct
        steps = [[new_index[k] for k in step if k in new_index] for step in self.steps]
        return replace(
            self,
            steps=[step for step in steps if step],
            table=self.table.of(kept),
            direct=direct,
            heads=None if self.heads is None else self.heads.with_experts(experts),
        )

    @property
    def ranks(self) -> IntArray | None:
        return self.direct.ranks

    def with_ranks(self, ranks: IntArray | None) -> CascadePolicy:
        return replace(self, direct=self.direct.with_ranks(ranks))

    @property
    def parts(self) -> list[str]:
        return [self.kind, *self.direct.parts]

    def state(self) -> tuple[Settings, Tensors]:
        table = self.table
        own = {"groups": table.groups.astype(np.float64), "counts": table.counts}
        own |= {"sums": table.sums, "accuracy": table.accuracy}
        if self.gate is not None:
            own["gate"] = self.gate
        parts, tensors = nested([self.direct, *([] if self.heads is None else [self.heads])], **own)
        settings = {
            "answer_kind": self.answer_kind,
            "steps": self.steps,
            "threshold": float(self.threshold),
            "start_error": self.start_error,
        }
        return {**settings, **parts}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        names = ("groups", "counts", "sums", "accuracy")
        groups, counts, sums, accuracy = (tensors[name] for name in names)
        direct, *heads = unnested(settings, tensors)
        return cls(
            settings["answer_kind"],
            settings["steps"],
            settings["threshold"],
            AgreementTable(groups.astype(np.intp), counts, sums, accuracy),
            direct,
            tensors.get("gate"),
            heads[0] if heads else None,
            settings["start_error"],
        )


def only_direct(what: str, parameter: str) -> UnsupportedError:
    """The refusal to change what a cascade was fitted for."""
    return UnsupportedError(
        f"{what} of a cascade cannot be changed after fitting, because its steps were chosen for it; fit "
        "it again, or use its router without answers (router.direct).",
        parameter=parameter,
    )


def gate_inputs(score: FloatArray, signals: FloatArray, errors: FloatArray) -> FloatArray:
    """Inputs (n, len(SIGNALS) + 3) of a gate: log-odds of the agreement, signals, expected error, 1."""
    inside = np.clip(score, 1e-6, 1 - 1e-6)
    return np.column_stack([np.log(inside / (1 - inside)), signals, errors, np.ones(len(score))])


def gate_values(inputs: FloatArray, gate: FloatArray) -> FloatArray:
    """Probabilities (n,) that answers are right, by a gate."""
    values: FloatArray = np.exp(-np.logaddexp(0.0, -(inputs @ gate)))
    return values
