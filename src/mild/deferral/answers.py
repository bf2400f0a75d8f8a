"""Labels, and answers of experts in the type of the labels, as class indices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.errors import InvalidInputError, listed

#: Index of an answer that is missing.
MISSING = -1


@dataclass(frozen=True)
class ExpertAnswers:
    """What p experts answered about n rows, as indices of classes."""

    indices: IntArray  # (n, p), MISSING where an expert has no answer
    names: list[str] | None  # from the columns of a frame

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.indices.shape[1]

    @property
    def asked(self) -> BoolArray:
        """Whether there is an answer, (n, p)."""
        return self.indices != MISSING

    def correct(self, y: IntArray) -> BoolArray:
        """Return whether each answer (n, p) is the class y (n,); False where it is missing."""
        return self.indices == y[:, None]

    def take(self, rows: IntArray) -> ExpertAnswers:
        """Return the answers about some of the rows."""
        return ExpertAnswers(self.indices[rows], self.names)


def read_answers(experts: Any, classes: Any, n_rows: int) -> ExpertAnswers:
    """Check answers (n, p) or (n,), and convert them to indices of the classes.

    NaN, None and masked entries are missing answers. An answer that is not one of the classes is refused.
    """
    if experts is None:
        raise InvalidInputError(
            "experts must be given: the answers of the experts, shape (n_samples, n_experts), NaN or "
            "None where an expert has none.",
            parameter="experts",
        )
    names = None
    if getattr(experts, "columns", None) is not None:
        names = [str(name) for name in experts.columns]
    if isinstance(experts, np.ma.MaskedArray):
        answers = np.ma.getdata(experts)
        missing = np.ma.getmaskarray(experts) | _missing(answers)
    else:
        answers = np.asarray(experts)
        missing = _missing(answers)
    if answers.ndim == 1:
        answers = answers.reshape(-1, 1)
        missing = missing.reshape(-1, 1)
    if answers.ndim != 2 or answers.shape[0] != n_rows or answers.shape[1] == 0:
        raise invalid(
            "experts",
            f"must have shape (n_samples, n_experts) with n_samples = {n_rows}; got {answers.shape}.",
        )
    indices = np.full(answers.shape, MISSING)
    indices[~missing] = class_indices(answers[~missing], classes, "experts")
    return ExpertAnswers(indices, names)


def check_every_expert_answers(answers: ExpertAnswers) -> None:
    """Refuse an expert without any answer: nothing can be learned about it."""
    silent = np.flatnonzero(~answers.asked.any(axis=0))
    if len(silent):
        raise InvalidInputError(
            f"experts must have at least one answer of every expert; {_expert_names(answers, silent)} "
            "has none. Leave out such columns.",
            parameter="experts",
            code="expert_without_answers",
        )


def class_indices(labels: Any, classes: Any, name: str) -> IntArray:
    """Return the index (m,) of each label among the classes; other labels are refused.

    ``name`` is the parameter that holds the labels.
    """
    index_of_class = {label: index for index, label in enumerate(classes.tolist())}
    # Each distinct label is looked up once.
    distinct_labels, label_numbers = _distinct(labels)
    indices = np.empty(len(distinct_labels), np.intp)
    unknown = []
    for number, label in enumerate(distinct_labels):
        index = index_of_class.get(label)
        if index is None:
            unknown.append(repr(label))
        else:
            indices[number] = index
    if unknown:
        class_list = listed([repr(label) for label in classes.tolist()])
        raise InvalidInputError(
            f"{name} must hold classes only ({class_list}); got {listed(unknown, most=3)}.",
            parameter=name,
            code="unknown_class",
        )
    return indices[label_numbers]


def expert_cost_vector(expert_costs: Any, n_experts: int) -> FloatArray:
    """Return the checked cost (p,) of asking each expert; None is 0, and one number is for all."""
    if expert_costs is None:
        return np.zeros(n_experts)
    try:
        costs = np.asarray(expert_costs, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid("expert_costs", f"must be numbers; got {expert_costs!r}.") from error
    if costs.ndim == 0:
        costs = np.full(n_experts, float(costs))
    if costs.shape != (n_experts,):
        raise invalid(
            "expert_costs",
            f"must be a number, or one for each of the {n_experts} experts; got shape {costs.shape}.",
        )
    if not (np.isfinite(costs) & (costs >= 0)).all():
        raise invalid("expert_costs", f"must be finite and non-negative; got {expert_costs!r}.")
    return costs


def _expert_names(answers: ExpertAnswers, experts: IntArray) -> str:
    """Name experts in an error message: by their columns, or by number."""
    if answers.names is None:
        return listed([f"expert {expert}" for expert in experts])
    return listed([repr(answers.names[expert]) for expert in experts])


def _missing(answers: Any) -> BoolArray:
    """Return whether each entry of an array is NaN, None or a missing value of pandas."""
    if answers.dtype.kind == "f":
        return np.isnan(answers)
    if answers.dtype.kind != "O":
        return np.zeros(answers.shape, dtype=bool)
    flags = [_is_missing(answer) for answer in answers.ravel()]
    return np.array(flags, dtype=bool).reshape(answers.shape)


def _is_missing(answer: Any) -> bool:
    """Whether a value is None, NaN or a missing value of pandas."""
    if answer is None or type(answer).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(answer, (float, np.floating)) and math.isnan(answer)


def _distinct(labels: Any) -> tuple[list[Any], IntArray]:
    """Return the distinct labels, as Python objects, and the number (m,) of each row's label."""
    if labels.dtype.kind != "O":
        distinct_labels, label_numbers = np.unique(labels, return_inverse=True)
        return distinct_labels.tolist(), label_numbers
    number_of: dict[Any, int] = {}
    label_numbers = np.empty(len(labels), np.intp)
    for row, label in enumerate(labels.tolist()):
        label_numbers[row] = number_of.setdefault(label, len(number_of))
    return list(number_of), label_numbers
