"""From a table of outcomes to a router, and to a judgement of it."""

from mild.evaluation.tasks.evaluation import Evaluation, evaluate_choices, minority_recall
from mild.evaluation.tasks.experts import with_experts
from mild.evaluation.tasks.fitting import Fitted, fit_task, fit_texts, save_task
from mild.evaluation.tasks.folds import search_folds, task_splits
from mild.evaluation.tasks.inputs import comparison_inputs, contents, make_step
from mild.evaluation.tasks.notes import task_notes, terms_of
from mild.evaluation.tasks.pricing import asking_prices
from mild.evaluation.tasks.seen import Overlap, Seen
from mild.evaluation.tasks.task import Task, make_task
from mild.evaluation.tasks.terms import CostTerms

__all__ = [
    "CostTerms",
    "Evaluation",
    "Fitted",
    "Overlap",
    "Seen",
    "Task",
    "asking_prices",
    "comparison_inputs",
    "contents",
    "evaluate_choices",
    "fit_task",
    "fit_texts",
    "make_step",
    "make_task",
    "minority_recall",
    "save_task",
    "search_folds",
    "task_notes",
    "task_splits",
    "terms_of",
    "with_experts",
]
