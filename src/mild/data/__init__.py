"""Tables for routing are read: queries and outcomes, or features and costs. Choices are written."""

from mild.artifact.expert_names import match_expert, match_experts
from mild.artifact.frames import as_frame, frame_library, html_table
from mild.data.cost_terms import CostTerms
from mild.data.data_quality import Finding, duplicate_groups
from mild.data.formats import FORMS
from mild.data.outcome_table import Outcomes
from mild.data.outcomes import read_outcomes
from mild.data.queries import CHOICE_NAMES, QUERY_NAMES
from mild.data.tables import infer_array, read_columns, read_table
from mild.data.writing import (
    check_output,
    write_batches,
    write_columns,
    write_csv,
    write_outcomes,
)

__all__ = [
    "CHOICE_NAMES",
    "FORMS",
    "QUERY_NAMES",
    "CostTerms",
    "Finding",
    "Outcomes",
    "as_frame",
    "check_output",
    "duplicate_groups",
    "frame_library",
    "html_table",
    "infer_array",
    "match_expert",
    "match_experts",
    "read_columns",
    "read_outcomes",
    "read_table",
    "write_batches",
    "write_columns",
    "write_csv",
    "write_outcomes",
]
