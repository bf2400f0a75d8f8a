"""The path of one query through a cascade: what was asked, said and accepted, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    leading: str | None  # expert who gives the leading answer; None if there is no answer
    agreed: tuple[str, ...]  # experts asked so far that give it
    others: tuple[str, ...]  # experts asked so far that do not
    silent: tuple[str, ...]  # those of them that have no answer
    probability: float  # that it is right, as the gate estimates
    rows: float  # training rows in which the same experts agreed
    accepted: bool  # whether it is given; after the last step, whatever the gate says
    said: dict[str, Any] | None = None  # the answers so far; None where the step is only possible

    def sentence(self, threshold: float) -> str:
        """The step in words."""
        start, answer = "If", ""
        if self.said is not None:
            start, line = f"Asked {' and '.join(self.asked)}:", self.said.get(self.leading or "")
            answer = f"{' '.join(str(line).split())[:SHOWN]!r}, "
        if self.leading is None:
            return f"{start} nobody has an answer."
        who = " and ".join(self.agreed)
        who = f"{who} agree" if len(self.agreed) > 1 else f"only {who} gives the leading answer"
        who += f" and {' and '.join(self.silent)} none" if self.silent else ""
        end = "not accepted, the next step follows"
        if self.accepted:
            end = "accepted" if self.probability >= threshold else "given, as this is the last step"
        return (
            f"{start} {who} ({answer}as in {self.rows:,.0f} training rows): right with probability "
            f"{self.probability:.4f}, {threshold:.4f} is needed; {end}."
        )


def path_of(
    policy: AnswerCascadePolicy, x: FloatArray, answers: Mapping[int, Any], names: Sequence[str]
) -> tuple[tuple[CascadeStep, ...], tuple[str, ...]]:
    """The steps whose answers are known, and the experts to ask next; none if an answer is accepted."""
    found: list[CascadeStep] = []
    asked: list[int] = []
    for step in policy.steps[int(policy.first_steps(x[None])[0]) :]:
        if not set(step) <= set(answers):
            return tuple(found), tuple(names[k] for k in step if k not in answers)
        asked += step
        known = {k: answers[k] for k in asked}
        following = policy.next(x, known)
        accepted = isinstance(following, Accept)
        lead = following if isinstance(following, Accept) else policy.leading(x, known)
        contents = [one.content if isinstance(one, Answer) else one for one in known.values()]
        said = dict(zip(_named(names, asked), contents, strict=True))
        codes = answer_codes([contents], policy.answer_kind)
        found.append(_step(policy, names, step, asked, codes, lead, accepted, said))
        if accepted:
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
    found = []
    for own, place, score in zip(codes[:, None], *table.leading(codes), strict=True):
        lead = Accept(step[place], float(score))
        found.append(_step(policy, names, step, step, own, lead, last or score >= policy.threshold))
    return tuple(found)


def _step(
    policy: AnswerCascadePolicy,
    names: Sequence[str],
    step: Sequence[int],
    asked: Sequence[int],
    codes: IntArray,
    lead: Accept,
    accepted: bool,
    said: dict[str, Any] | None = None,
) -> CascadeStep:
    """The step after answers with these codes (1, n_asked)."""
    code = codes[0, list(asked).index(lead.expert)]
    agreed = [k for k, own in zip(asked, codes[0], strict=True) if code >= 0 and own == code]
    return CascadeStep(
        asked=_named(names, step),
        leading=names[lead.expert] if agreed else None,
        agreed=_named(names, agreed),
        others=_named(names, (k for k in asked if k not in agreed)),
        silent=_named(names, (k for k, own in zip(asked, codes[0], strict=True) if own < 0)),
        probability=lead.probability,
        rows=float(policy.table.of([policy.order.index(k) for k in asked]).like(codes)[0][0]),
        accepted=bool(accepted and agreed),
        said=said,
    )


def _named(names: Sequence[str], experts: Iterable[int]) -> tuple[str, ...]:
    return tuple(names[k] for k in experts)
