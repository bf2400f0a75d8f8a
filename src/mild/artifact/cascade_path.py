"""The path of one query through a cascade: what was asked, said and accepted, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.answers import answer_codes
from mild.core.arrays import IntArray
from mild.policies import Accept, AgreementTable, Ask, CascadePolicy

# Characters of an answer that are shown.
SHOWN = 60


@dataclass(frozen=True)
class CascadeStep:
    """The answers after a step of a cascade, and whether they are accepted."""

    asked: tuple[str, ...]  # experts of this step
    leading: str | None  # expert who gives the leading answer; None if there is no answer
    agreed: tuple[str, ...]  # experts asked so far that give it
    others: tuple[str, ...]  # experts asked so far that do not
    silent: tuple[str, ...]  # those of them that have no answer
    probability: float  # that it is right
    rows: float  # training rows in which the same experts agreed
    accepted: bool  # whether it is given, after the last step in any case
    said: dict[str, Any] | None = None  # the answers so far; None where the step is only possible

    def sentence(self, threshold: float) -> str:
        """The step in words; ``threshold`` is the probability from which an answer is accepted."""
        if self.said is None:
            if self.leading is None:
                return "If nobody has an answer, nothing is accepted."
            start = "If"
            quoted_answer = ""
        else:
            start = f"Asked {' and '.join(self.asked)}:"
            if self.leading is None:
                return f"{start} nobody has an answer."
            answer_on_one_line = " ".join(str(self.said[self.leading]).split())
            quoted_answer = f"{answer_on_one_line[:SHOWN]!r}, "
        evidence = f"({quoted_answer}as in {self.rows:,.0f} training rows)"
        return f"{start} {self._agreement_words()} {evidence}: {self._outcome_words(threshold)}."

    def _agreement_words(self) -> str:
        """Who gives the leading answer, and who gives none."""
        words = f"{' and '.join(self.agreed)} agree"
        if len(self.agreed) == 1:
            words = f"only {self.agreed[0]} gives the leading answer"
        if self.silent:
            words += f" and {' and '.join(self.silent)} none"
        return words

    def _outcome_words(self, threshold: float) -> str:
        """How probable it is that the answer is right, and what follows from that."""
        chance = f"right with probability {self.probability:.4f}"
        needed = f"{chance}, {threshold:.4f} is needed"
        if not self.accepted:
            return f"{needed}; not accepted, the next step follows"
        if self.probability >= threshold:
            return f"{needed}; accepted"
        return f"{needed}; given, as this is the last step"


@dataclass(frozen=True)
class CascadeReader:
    """Tells, by the names of the experts, what a cascade does with one query."""

    policy: CascadePolicy
    expert_names: Sequence[str]

    @property
    def first_step(self) -> tuple[str, ...]:
        """Experts that are asked first, at the same time."""
        return self._names(self.policy.steps[0])

    def path(self, answers: Mapping[int, Any]) -> tuple[tuple[CascadeStep, ...], tuple[str, ...]]:
        """The steps whose answers are known, and the experts to ask next.

        No expert is asked next if an answer is accepted.
        """
        steps: list[CascadeStep] = []
        known_answers: dict[int, Any] = {}
        for experts in self.policy.steps:
            missing = [expert for expert in experts if expert not in answers]
            if missing:
                return tuple(steps), self._names(missing)
            for expert in experts:
                known_answers[expert] = answers[expert]
            outcome = self.policy.next(None, known_answers)
            steps.append(self._step_after(experts, known_answers, outcome))
            if isinstance(outcome, Accept):
                break
        return tuple(steps), ()

    def unread(
        self,
        answers: Mapping[int, Any],
        path: Iterable[CascadeStep],
        next_step: Sequence[str],
    ) -> tuple[str, ...]:
        """Experts whose answers are known, but which the cascade does not ask on this path."""
        read: set[str] = set()
        for step in path:
            read.update(step.asked)
        for experts in self.policy.steps:
            names = self._names(experts)
            if set(names) & set(next_step):
                # Some of this step have answered; it waits for the others.
                read.update(names)
        return tuple(name for name in self._names(answers) if name not in read)

    def possible_steps(self) -> tuple[CascadeStep, ...]:
        """What may follow the first step, by who agrees, the most frequent first."""
        experts = self.policy.steps[0]
        is_last = len(self.policy.steps) == 1
        table = self._table_of(experts)
        # In the table, codes of answers are numbered from 1.
        patterns = table.groups[np.argsort(-table.counts, kind="stable")] - 1
        leading_columns, scores = table.leading(patterns)
        steps = []
        for codes, column, score in zip(patterns, leading_columns, scores, strict=True):
            accepted = is_last or bool(score >= self.policy.threshold)
            lead = Accept(experts[column], float(score))
            steps.append(self._step(experts, experts, codes, lead, accepted))
        return tuple(steps)

    def _step_after(
        self, experts: Sequence[int], answers: Mapping[int, Any], outcome: Ask | Accept
    ) -> CascadeStep:
        """The step that asks ``experts``, after these answers of all who have been asked.

        ``outcome`` is what the cascade does then.
        """
        codes = answer_codes([list(answers.values())], self.policy.answer_kind)[0]
        lead = outcome if isinstance(outcome, Accept) else self.policy.leading(None, answers)
        said = {self.expert_names[expert]: content for expert, content in answers.items()}
        return self._step(experts, list(answers), codes, lead, isinstance(outcome, Accept), said)

    def _step(
        self,
        experts: Sequence[int],
        asked_so_far: Sequence[int],
        codes: IntArray,
        lead: Accept,
        accepted: bool,
        said: dict[str, Any] | None = None,
    ) -> CascadeStep:
        """The step that asks ``experts``, after answers with these codes of all who have been asked.

        ``codes`` (n_asked,) are equal for answers that agree, and negative for no answer.
        """
        code_of = dict(zip(asked_so_far, codes.tolist(), strict=True))
        leading_code = code_of[lead.expert]
        agreed = []
        if leading_code >= 0:
            agreed = [expert for expert in asked_so_far if code_of[expert] == leading_code]
        leading = None
        if agreed:
            leading = self.expert_names[lead.expert]
        else:
            accepted = False
        like_counts, _ = self._table_of(asked_so_far).same_agreement(codes[None])
        return CascadeStep(
            asked=self._names(experts),
            leading=leading,
            agreed=self._names(agreed),
            others=self._names(expert for expert in asked_so_far if expert not in agreed),
            silent=self._names(expert for expert in asked_so_far if code_of[expert] < 0),
            probability=lead.probability,
            rows=float(like_counts[0]),
            accepted=accepted,
            said=said,
        )

    def _table_of(self, experts: Sequence[int]) -> AgreementTable:
        """The table of agreement of some of the experts."""
        return self.policy.table.of_experts([self.policy.order.index(expert) for expert in experts])

    def _names(self, experts: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.expert_names[expert] for expert in experts)
