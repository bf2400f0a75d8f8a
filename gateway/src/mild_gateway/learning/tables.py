"""The door to the library's tables, for collecting, learning and export."""

from mild.data import (
    QUERY_NAMES,
    Outcomes,
    as_frame,
    check_output,
    frame_library,
    infer_array,
    read_columns,
    read_outcomes,
    read_table,
    write_batches,
    write_columns,
)

__all__ = [
    "QUERY_NAMES",
    "Outcomes",
    "as_frame",
    "check_output",
    "frame_library",
    "infer_array",
    "read_columns",
    "read_outcomes",
    "read_table",
    "write_batches",
    "write_columns",
]
