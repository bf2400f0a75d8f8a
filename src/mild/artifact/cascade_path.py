"""The path of one query through a cascade: what was asked, said and accepted, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.answers import Answer, answer_codes
from mild.core.arrays import FloatArray, IntArray
from mild.policies import Accept, AnswerCascadePolicy

# Characters of an answer that are shown.
SHOWN = 60


@dataclass(frozen=True)
class CascadeStep:
    """The answers after a step of a cascade, and what the gate makes of them."""

    asked: tuple[str, ...]  # experts of this step
    # answers so far, None for none; None in all where the step is only possible
    said: dict[str, Any] | None
    leading: str | None  # expert who gives the leading answer; None if there is no answer
    agreed: tuple[str, ...]  # experts asked so far that give it
    others: tuple[str, ...]  # experts asked so far that do not
    probability: float  # that it is right, as the gate estimates
    rows: float  # rows of the fit in which the same experts agreed
    accepted: bool
    last: bool  # whether the answer is given whatever the gate says

    @property
    def reason(self) -> str:
        """Who agrees, how probable it is that they are right, and how often that was seen."""
        if self.leading is None:
            return "nobody has an answer"
        words = f"only {self.leading} says this"
        if len(self.agreed) > 1:
            words = f"{' and '.join(self.agreed)} agree"
            words += f", {' and '.join(self.others)} not" if self.others else ""
        seen = f"as in {self.rows:,.0f} training rows"
        return f"{words}, {seen}, and it is right with probability {self.probability:.4f}"

    def sentence(self, number: int, threshold: float) -> str:
        """The step in words."""
        start = f"Step {number} asks {' and '.join(self.asked)}"
        if self.leading is None:
            return f"{start}: {self.reason}."
        answer = f"the answer {shortened((self.said or {}).get(self.leading))!r} of {self.leading}"
        if self.last:
            return f"{start}, and is the last: {answer} is given ({self.reason})."
        verb = "accepted" if self.accepted else "not accepted"
        return f"{start}: {answer} is {verb}: {self.reason}; {threshold:.4f} is needed."


def shortened(answer: Any) -> str:
    """An answer on one line."""
    line = " ".join(str(answer).split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def path_of(
    policy: AnswerCascadePolicy, x: FloatArray, answers: Mapping[int, Any], names: Sequence[str]
) -> tuple[tuple[CascadeStep, ...], tuple[str, ...]]:
    """The steps whose answers are known, and the experts to ask next; none if an answer is accepted."""
    found: list[CascadeStep] = []
    asked: list[int] = []
    last = len(policy.steps) - 1
    for number in range(int(policy.first_steps(x[None])[0]), last + 1):
        step = policy.steps[number]
        if not set(step) <= set(answers):
            return tuple(found), tuple(names[k] for k in step if k not in answers)
        asked += step
        known = {k: answers[k] for k in asked}
        found_next = policy.next(x, known)
        lead = found_next if isinstance(found_next, Accept) else policy.leading(x, known)
        said = {names[k]: _content(answer) for k, answer in known.items()}
        codes = answer_codes([[_content(answers[k]) for k in asked]], policy.answer_kind)
        found.append(_step(policy, asked, codes, *lead, number == last, names, step, said))
        if found[-1].accepted:
            break
    return tuple(found), ()


def possible_steps(
    policy: AnswerCascadePolicy, x: FloatArray, names: Sequence[str]
) -> tuple[CascadeStep, ...]:
    """What may follow the first step, by who agrees, the most frequent first.

    Probabilities are those of the agreement, before a gate reads the answers themselves.
    """
    first = int(policy.first_steps(x[None])[0])
    step, last = policy.steps[first], first == len(policy.steps) - 1
    table = policy.table.of([policy.order.index(k) for k in step])
    codes = table.groups[np.argsort(-table.counts, kind="stable")] - 1
    return tuple(
        _step(policy, step, codes[i : i + 1], step[lead], score, last, names, step)
        for i, (lead, score) in enumerate(zip(*table.leading(codes), strict=True))
    )


def _step(
    policy: AnswerCascadePolicy,
    asked: Sequence[int],
    codes: IntArray,
    expert: int,
    probability: float,
    last: bool,
    names: Sequence[str],
    step: Sequence[int],
    said: dict[str, Any] | None = None,
) -> CascadeStep:
    """The step after answers with these codes (1, n_asked)."""
    own, table = codes[0], policy.table.of([policy.order.index(k) for k in asked])
    lead = own[list(asked).index(expert)]
    agree = [lead >= 0 and code == lead for code in own]
    return CascadeStep(
        asked=tuple(names[k] for k in step),
        said=said,
        leading=names[expert] if lead >= 0 else None,
        agreed=tuple(names[k] for k, same in zip(asked, agree, strict=True) if same),
        others=tuple(names[k] for k, same in zip(asked, agree, strict=True) if not same),
        probability=float(probability),
        rows=float(table.rows_like(codes)[0]),
        accepted=last or bool(lead >= 0 and probability >= policy.threshold),
        last=last,
    )


def _content(answer: Any) -> Any:
    return answer.content if isinstance(answer, Answer) else answer
