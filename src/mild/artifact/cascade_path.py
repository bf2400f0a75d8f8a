"""The path of one query through a cascade: what was asked, said and accepted, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.answers import Answer, answer_codes
from mild.core.arrays import FloatArray, IntArray
from mild.policies import Accept, CascadePolicy

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
    # whether it is given, after the last step whatever the gate says; None if the gate must read it first
    accepted: bool | None
    said: dict[str, Any] | None = None  # the answers so far; None where the step is only possible

    def sentence(self, threshold: float) -> str:
        """The step in words."""
        start, answer = "If", ""
        if self.said is not None:
            start, line = f"Asked {' and '.join(self.asked)}:", self.said.get(self.leading or "")
            answer = f"{' '.join(str(line).split())[:SHOWN]!r}, "
        if self.leading is None and self.said is None:
            return "If nobody has an answer, nothing is accepted."
        if self.leading is None:
            return f"{start} nobody has an answer."
        who = " and ".join(self.agreed)
        who = f"{who} agree" if len(self.agreed) > 1 else f"only {who} gives the leading answer"
        who += f" and {' and '.join(self.silent)} none" if self.silent else ""
        right = f"right with probability {self.probability:.4f}"
        end = f"{right}, {threshold:.4f} is needed; not accepted, the next step follows"
        if self.accepted is None:
            end = f"{right} before the gate reads the answer, which decides"
        elif self.accepted:
            enough = self.probability >= threshold
            how = "accepted" if enough else "given, as this is the last step"
            end = f"{right}, {threshold:.4f} is needed; {how}"
        return f"{start} {who} ({answer}as in {self.rows:,.0f} training rows): {end}."


def path_of(
    policy: CascadePolicy, x: FloatArray, answers: Mapping[int, Any], names: Sequence[str]
) -> tuple[tuple[CascadeStep, ...], tuple[str, ...]]:
    """The steps whose answers are known, and the experts to ask next; none if an answer is accepted."""
    found: list[CascadeStep] = []
    known: dict[int, Any] = {}
    for step in policy.steps[int(policy.first_steps(x[None])[0]) :]:
        if not set(step) <= set(answers):
            return tuple(found), tuple(names[k] for k in step if k not in answers)
        known |= {k: answers[k] for k in step}
        following = policy.next(x, known)
        accepted = isinstance(following, Accept)
        lead = following if isinstance(following, Accept) else policy.leading(x, known)
        said = {k: one.content if isinstance(one, Answer) else one for k, one in known.items()}
        codes = answer_codes([list(said.values())], policy.answer_kind)[0]
        found.append(_step(policy, names, step, said, codes, lead, accepted))
        if accepted:
            break
    return tuple(found), ()


def possible_steps(
    policy: CascadePolicy, x: FloatArray, names: Sequence[str]
) -> tuple[CascadeStep, ...]:
    """What may follow the first step, by who agrees, the most frequent first.

    Probabilities are those of the agreement, before a gate reads the answers themselves.
    """
    first = int(policy.first_steps(x[None])[0])
    step, last = policy.steps[first], first == len(policy.steps) - 1
    table = policy.table.of([policy.order.index(k) for k in step])
    patterns = table.groups[np.argsort(-table.counts, kind="stable")] - 1
    found = []
    for codes, place, score in zip(patterns, *table.leading(patterns), strict=True):
        read = policy.gate is None or last
        accepted = bool(last or score >= policy.threshold) if read else None
        lead = Accept(step[place], float(score))
        one = _step(policy, names, step, dict.fromkeys(step), codes, lead, accepted)
        found.append(replace(one, said=None))
    return tuple(found)


def _step(
    policy: CascadePolicy,
    names: Sequence[str],
    step: Sequence[int],
    said: Mapping[int, Any],
    codes: IntArray,
    lead: Accept,
    accepted: bool | None,
) -> CascadeStep:
    """The step after answers ``said`` with these codes (n_asked,)."""
    own = dict(zip(said, codes.tolist(), strict=True))
    agreed = [k for k in own if own[k] == own[lead.expert] >= 0]
    table = policy.table.of([policy.order.index(k) for k in own])

    def named(experts: Any) -> tuple[str, ...]:
        return tuple(names[k] for k in experts)

    return CascadeStep(
        asked=named(step),
        leading=names[lead.expert] if agreed else None,
        agreed=named(agreed),
        others=named(k for k in own if k not in agreed),
        silent=named(k for k in own if own[k] < 0),
        probability=lead.probability,
        rows=float(table.like(codes[None])[0][0]),
        accepted=accepted if agreed else False,
        said={names[k]: answer for k, answer in said.items()},
    )
