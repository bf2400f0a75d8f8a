"""Routing tables on disk: features and costs in, choices out."""

from mild.tables.matrices import Matrices, read_matrices
from mild.tables.writing import check_output, write_columns, write_csv

__all__ = ["Matrices", "check_output", "read_matrices", "write_columns", "write_csv"]
