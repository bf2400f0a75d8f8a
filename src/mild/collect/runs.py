"""What each expert is asked, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mild.collect.ledger import Answer, Ledger, request_key
from mild.collect.prompts import PROMPTS, bare_prompt, fill_prompt
from mild.collect.questions import Question
from mild.endpoints.expert import Expert

__all__ = ["ExpertRun", "plan_runs"]


@dataclass
class ExpertRun:
    """What one expert is asked, and what came of it.

    Attributes
    ----------
    expert : whom
    prompts, keys : prompt and ledger key of every question; equal questions share them
    answers : by key
    from_ledger : how many of them were known before
    asked, failed : questions put to it in this run, and those left without an answer
    attempts : requests sent, repeated ones included; in_flight : those without an outcome yet
    spent : dollars for answers of this run; lost : dollars that replies which never came may have cost
    reasons : why attempts failed, counted
    stopped : why it is not asked any more
    """

    expert: Expert
    prompts: list[str]
    keys: list[str]
    answers: dict[str, Answer] = field(default_factory=dict)
    from_ledger: int = 0
    asked: int = 0
    failed: int = 0
    attempts: int = 0
    in_flight: int = 0
    spent: float = 0.0
    lost: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    def pending(self) -> list[int]:
        """Questions without an answer, equal ones once."""
        first: dict[str, int] = {}
        for place, key in enumerate(self.keys):
            first.setdefault(key, place)
        return [place for key, place in first.items() if key not in self.answers]


def plan_runs(
    questions: Sequence[Question],
    experts: Sequence[Expert],
    ledger: Ledger | None,
    prompts: Mapping[str, str] = PROMPTS,
) -> list[ExpertRun]:
    """What every expert would be asked, with the answers that the ledger, if there is one, has."""
    runs = []
    for expert in experts:
        texts = [_prompt(expert, question, prompts) for question in questions]
        run = ExpertRun(expert, texts, [request_key(expert.request(text)) for text in texts])
        run.answers = {} if ledger is None else ledger.answers(run.keys)
        run.from_ledger = len(run.answers)
        runs.append(run)
    return runs


def _prompt(expert: Expert, question: Question, prompts: Mapping[str, str]) -> str:
    if expert.command is not None:
        return bare_prompt(question.query, question.options)
    return fill_prompt(prompts[question.kind], question.query, question.options)
