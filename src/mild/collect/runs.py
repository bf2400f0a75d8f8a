"""What each expert is asked, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mild.collect.ledger import Answer, Ledger, request_key
from mild.collect.prompts import PROMPTS, bare_prompt, fill_prompt
from mild.collect.questions import Question
from mild.endpoints.expert import Expert
from mild.endpoints.prices import Usage, most_tokens

__all__ = ["ExpertRun", "most_usage", "plan_runs"]


@dataclass
class ExpertRun:
    """What one expert is asked, and what came of it.

    Attributes
    ----------
    prompts, keys : prompt and ledger key of every question; equal questions share them
    answers : by key
    from_ledger : how many of them were known before
    asked, failed : questions put to it in this run, and those left without an answer
    attempts, in_flight : requests sent, repeated ones included, and those without an outcome yet
    spent : dollars for answers of this run
    lost : dollars that replies which never came may have cost
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
        first = {key: place for place, key in reversed(list(enumerate(self.keys)))}
        return sorted(place for key, place in first.items() if key not in self.answers)

    @property
    def total(self) -> int:
        """Different questions."""
        return len(set(self.keys))

    @property
    def done(self) -> int:
        """Questions that need no more waiting."""
        return self.total if self.stopped is not None else len(self.answers) + self.failed

    def describe(self) -> str:
        """Where this expert stands, in a few words."""
        spent = f" ${self.spent:.4f}" if self.expert.price.known else ""
        failed = f" ({self.failed} failed)" if self.failed else ""
        over = " stopped" if self.stopped is not None else ""
        return f"{self.expert.name} {len(self.answers)}/{self.total}{spent}{failed}{over}"


def plan_runs(
    questions: Sequence[Question],
    experts: Sequence[Expert],
    ledger: Ledger | None,
    prompts: Mapping[str, str] = PROMPTS,
) -> list[ExpertRun]:
    """What every expert would be asked, with the answers that the ledger, if there is one, has."""
    runs = []
    for expert in experts:
        if expert.command is not None:
            texts = [bare_prompt(one.query, one.options) for one in questions]
        else:
            texts = [fill_prompt(prompts[one.kind], one.query, one.options) for one in questions]
        run = ExpertRun(expert, texts, [request_key(expert.request(text)) for text in texts])
        run.answers = {} if ledger is None else ledger.answers(run.keys)
        run.from_ledger = len(run.answers)
        runs.append(run)
    return runs


def most_usage(expert: Expert, prompt: str) -> Usage | None:
    """Tokens that a request can take at most: a token is a byte or longer. None for programs."""
    if expert.command is not None:
        return None
    return Usage(most_tokens((expert.system or "") + prompt), expert.max_tokens)
