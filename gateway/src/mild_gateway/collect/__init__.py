"""Asking real experts, and keeping what they answered.

Questions with answers and a file of experts become a table of outcomes::

    collect_outcomes("questions.jsonl", "experts.toml", "outcomes.parquet")

Nothing here is imported before it is needed: aiohttp only where an endpoint is asked.
"""

from mild_gateway.collect.collected import Collected
from mild_gateway.collect.config import ExpertFile, read_experts
from mild_gateway.collect.questions import Question, Questions, read_questions
from mild_gateway.collect.session import collect_outcomes, plan_outcomes
from mild_gateway.grading import score_response

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
