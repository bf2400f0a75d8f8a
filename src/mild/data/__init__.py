"""Tables for routing are read: queries and outcomes, or features and costs. Choices are written."""

from typing import NoReturn

from mild.artifact.expert_names import match_expert, match_experts
from mild.artifact.frames import as_frame
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups
from mild.data.formats import FORMS
from mild.data.outcome_table import OutcomeTable
from mild.data.outcomes import read_outcomes
from mild.data.writing import (
    FileSplit,
    check_output,
    split_file,
    write_columns,
    write_csv,
    write_outcomes,
)
from mild.errors import missing_name

__all__ = [
    "FORMS",
    "CostTerms",
    "FileSplit",
    "Finding",
    "OutcomeTable",
    "as_frame",
    "check_output",
    "duplicate_groups",
    "match_expert",
    "match_experts",
    "read_outcomes",
    "split_file",
    "write_columns",
    "write_csv",
    "write_outcomes",
]


def __getattr__(name: str) -> NoReturn:
    raise missing_name("mild.data", name)
