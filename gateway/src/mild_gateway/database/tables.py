"""The tables of store and ledger; each module that uses a table defines it with this ``metadata``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

metadata = sa.MetaData()


def make_table(
    name: str, key: Sequence[str], /, docs: Mapping[str, str] | None = None, **columns: Any
) -> sa.Table:
    """A table with columns of these types, all of them required; ``docs`` says what they hold."""
    if docs is None:
        docs = {}
    table = sa.Table(name, metadata)
    for column_name, column_type in columns.items():
        column = sa.Column(
            column_name,
            column_type,
            primary_key=column_name in key,
            nullable=False,
            autoincrement=False,
            doc=docs.get(column_name),
        )
        table.append_column(column)
    return table
