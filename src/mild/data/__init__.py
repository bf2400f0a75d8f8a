"""Tables for routing are read: queries and outcomes, or features and costs. Choices are written."""

from typing import NoReturn

from mild.artifact.expert_names import match_expert, match_experts
from mild.artifact.files import check_free, replacing
from mild.artifact.frames import as_frame, default_library, html_table, library_of
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups
from mild.data.formats import FORMS
from mild.data.outcome_table import OutcomeTable
from mild.data.outcomes import read_outcomes
from mild.data.queries import CHOICES, QUERY_NAMES
from mild.data.tables import check_file, infer_array, naming, peek_table, read_objects, read_table
from mild.data.writing import (
    FileSplit,
    check_output,
    split_file,
    write_columns,
    write_csv,
    write_json_lines,
    write_outcomes,
)
from mild.errors import missing_name

__all__ = [
    "CHOICES",
    "FORMS",
    "QUERY_NAMES",
    "CostTerms",
    "FileSplit",
    "Finding",
    "OutcomeTable",
    "as_frame",
    "check_file",
    "check_free",
    "check_output",
    "default_library",
    "duplicate_groups",
    "html_table",
    "infer_array",
    "library_of",
    "match_expert",
    "match_experts",
    "naming",
    "peek_table",
    "read_objects",
    "read_outcomes",
    "read_table",
    "replacing",
    "split_file",
    "write_columns",
    "write_csv",
    "write_json_lines",
    "write_outcomes",
]


def __getattr__(name: str) -> NoReturn:
    raise missing_name("mild.data", name)
