"""Tables of results as frames of the library that the user works with."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from mild.core.arrays import as_python
from mild.money import plain_number

LIBRARIES = ("pandas", "polars", "pyarrow")

Table: TypeAlias = Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]


def library_of(frame: Any) -> str | None:
    """Library of a frame or a column: "pandas", "polars" or "pyarrow"; None for anything else."""
    package = type(frame).__module__.partition(".")[0]
    if package in LIBRARIES:
        return package
    return None


def default_library() -> str:
    """The library of frames for results of a file: pandas if it is installed, otherwise pyarrow."""
    if importlib.util.find_spec("pandas") is None:
        return "pyarrow"
    return "pandas"


def frame_library(*sources: Any) -> str:
    """The library of frames for results about some sources, for ``as_frame``.

    It is that of the first source that is a frame; for files, pandas if it is installed, otherwise pyarrow.

    Examples
    --------
    >>> import pyarrow as pa
    >>> frame_library("questions.csv", pa.table({"score": [1.0]}))
    'pyarrow'
    """
    for source in sources:
        library = library_of(source)
        if library is not None:
            return library
    return default_library()


def as_frame(table: Table, like: Any) -> Any:
    """A table of results as a frame of the kind of ``like``.

    ``table`` has columns, as ``RouterCV.cv_results_``, or rows, as ``Comparison.as_dict()["methods"]``.
    Objects in a column, such as parameters, become JSON text: polars and pyarrow need one type for all.
    ``like`` is a frame or a column of pandas, polars or pyarrow, or the name of one of these libraries; for
    anything else the result is a dict of columns.

    Examples
    --------
    >>> as_frame([{"name": "a", "params": {"alpha": 1}}, {"name": "b", "params": {}}], like=None)
    {'name': ['a', 'b'], 'params': ['{"alpha": 1}', '{}']}
    """
    columns = {}
    for name, values in _columns(table).items():
        columns[name] = as_python(values)
        if any(_has_objects(value) for value in columns[name]):
            columns[name] = [json.dumps(value, default=str) for value in columns[name]]
    library = like
    if not isinstance(like, str):
        library = library_of(like)
    if library is None:
        return columns
    frames = importlib.import_module(library)
    if library == "pandas":
        return frames.DataFrame(columns)
    if library == "polars":
        # Otherwise integers beside floats are refused, and floats in lists beside integers cut off.
        return frames.DataFrame(columns, strict=False)
    return frames.table(columns)


def html_table(title: str, table: Table, notes: Sequence[str] = ()) -> str:
    """A table of results as HTML for notebooks: title, rows, and sentences below it.

    >>> html_table("", [{"is_best": True, "params": {"alpha": 0.5}}])
    '<p></p><table><tr><th>is best</th><th>params</th></tr><tr><td>yes</td><td>alpha 0.5</td></tr></table>'
    """
    columns = _columns(table)
    header = [f"<th>{escape(name.replace('_', ' '))}</th>" for name in columns]
    lines = [f"<p>{escape(title)}</p><table>", *_html_row(header)]
    for values in zip(*columns.values(), strict=True):
        lines += _html_row([f"<td>{_cell(value)}</td>" for value in values])
    lines.append("</table>")
    lines += [f"<p>{escape(note)}</p>" for note in notes]
    return "".join(lines)


def _html_row(cells: Sequence[str]) -> list[str]:
    return ["<tr>", *cells, "</tr>"]


def _cell(value: Any) -> str:
    """A value of a table as HTML."""
    if value is None:
        return "–"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, Mapping):
        entries = [f"{escape(str(name))} {_cell(entry)}" for name, entry in value.items()]
        return ", ".join(entries)
    if isinstance(value, (list, tuple)):
        return " ".join(map(_cell, value))
    if isinstance(value, float) and math.isfinite(value):
        return escape(plain_number(value, 4))
    return escape(str(value))


def _columns(table: Table) -> dict[str, list[Any]]:
    """A table as columns; None where a row lacks an entry."""
    if isinstance(table, Mapping):
        return {name: list(values) for name, values in table.items()}
    names = dict.fromkeys(name for row in table for name in row)
    return {name: [row.get(name) for row in table] for name in names}


def _has_objects(value: Any) -> bool:
    """Whether a value is an object, or a list with one."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_objects, value))
    return isinstance(value, Mapping)
