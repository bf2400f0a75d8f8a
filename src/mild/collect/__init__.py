"""Asking real experts, and keeping what they answered.

Questions with answers and a file of experts become a table of outcomes::

    collect_outcomes("questions.jsonl", "experts.toml", "outcomes.parquet")

Nothing here is imported before it is needed: aiohttp only where an endpoint is asked.
"""

from mild.collect.config import ExpertFile, read_experts
from mild.collect.grading import score_response
from mild.collect.questions import Question, Questions, read_questions
from mild.collect.session import Collected, collect_outcomes, plan_outcomes

__all__ = [
    "Collected",
    "ExpertFile",
    "Question",
    "Questions",
    "collect_outcomes",
    "plan_outcomes",
    "read_experts",
    "read_questions",
    "score_response",
]
