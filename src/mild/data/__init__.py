"""Tables for routing: features and costs, or queries and outcomes, are read; choices are written."""

import warnings
from typing import Any

from mild.artifact.expert_names import match_expert, match_experts
from mild.artifact.frames import as_frame
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups
from mild.data.formats import FORMS
from mild.data.matrices import Matrices, read_matrices
from mild.data.outcome_table import OutcomeTable
from mild.data.outcomes import is_outcome_table, read_outcomes
from mild.data.splitting import FileSplit, split_file
from mild.data.writing import check_output, write_columns, write_csv, write_outcomes

__all__ = [
    "FORMS",
    "CostTerms",
    "FileSplit",
    "Finding",
    "Matrices",
    "OutcomeTable",
    "as_frame",
    "check_output",
    "duplicate_groups",
    "is_outcome_table",
    "match_expert",
    "match_experts",
    "read_matrices",
    "read_outcomes",
    "split_file",
    "write_columns",
    "write_csv",
    "write_outcomes",
]

# Names of the last version, and what they are now.
_FORMER = {
    "outcome_costs": (lambda table, **terms: table.costs(**terms), "OutcomeTable.costs"),
    "cost_formula": (lambda table, **terms: CostTerms(**terms).formula(table), "CostTerms.formula"),
}


def __getattr__(name: str) -> Any:
    if name not in _FORMER:
        raise AttributeError(f"module 'mild.data' has no attribute {name!r}")
    found, now = _FORMER[name]
    warnings.warn(f"mild.data.{name} is now {now}.", FutureWarning, stacklevel=2)
    return found
