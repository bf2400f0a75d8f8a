"""From a table of outcomes to a router, and to a judgement of it."""

from mild.evaluation.tasks.fitting import (
    Fitted,
    comparison_inputs,
    contents,
    fit_task,
    fit_texts,
    make_step,
    save_task,
)
from mild.evaluation.tasks.judging import Evaluation, evaluate_choices, minority_recall
from mild.evaluation.tasks.splitting import possible_folds, search_folds, task_splits
from mild.evaluation.tasks.task import (
    CostTerms,
    Task,
    asking_prices,
    check_rows,
    make_task,
    task_notes,
    terms_of,
    with_experts,
)
from mild.evaluation.tasks.training_queries import Overlap, TrainingQueryIndex

__all__ = [
    "CostTerms",
    "Evaluation",
    "Fitted",
    "Overlap",
    "Task",
    "TrainingQueryIndex",
    "asking_prices",
    "check_rows",
    "comparison_inputs",
    "contents",
    "evaluate_choices",
    "fit_task",
    "fit_texts",
    "make_step",
    "make_task",
    "minority_recall",
    "possible_folds",
    "save_task",
    "search_folds",
    "task_notes",
    "task_splits",
    "terms_of",
    "with_experts",
]
