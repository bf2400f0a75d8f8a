"""Asking real experts, and keeping what they answered.

A file of questions with answers, a file of experts, and a ledger become an outcomes table::

    questions = read_questions("questions.jsonl")
    file = read_experts("experts.toml")
    collect_outcomes(questions, file.experts, file, Path("answers.sqlite"), Path("outcomes.parquet"))

Nothing here is imported before it is needed: aiohttp only where an endpoint is asked.
"""

from mild.collect.config import ExpertFile, choose_experts, read_experts
from mild.collect.grading import Scorer, score_response
from mild.collect.questions import Question, Questions, read_questions
from mild.collect.session import Collected, collect_outcomes, plan_outcomes

__all__ = [
    "Collected",
    "ExpertFile",
    "Question",
    "Questions",
    "Scorer",
    "choose_experts",
    "collect_outcomes",
    "plan_outcomes",
    "read_experts",
    "read_questions",
    "score_response",
]
