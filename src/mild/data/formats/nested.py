"""Nested: the scores of a query in one object, ``scores: {model: score}``, or in two lists.

RouterDC and LLMRouter write such files as lists of JSON objects. In a CSV file the object is a text.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.types as kinds

from mild.data.data_quality import Finding
from mild.data.formats.base import (
    ANSWER,
    LATENCY,
    PRICE,
    SCORE,
    TOKENS_IN,
    TOKENS_OUT,
    Format,
    Layout,
    ReadArguments,
    columns_of,
    prefixed_columns,
)
from mild.data.tables import infer_array, is_list, is_numeric, is_string, unique_keys
from mild.errors import DataFileError

#: Columns that hold an object of models -> the prefix of their columns in the wide format.
OBJECTS = {
    **dict.fromkeys(("scores", "score", "performance", "performances", "correct"), SCORE),
    **dict.fromkeys(("costs", "cost", "prices", "price"), PRICE),
    **dict.fromkeys(("latencies_ms", "latency_ms"), LATENCY),
    **dict.fromkeys(("tokens_in", "input_tokens", "prompt_tokens"), TOKENS_IN),
    **dict.fromkeys(("tokens_out", "output_tokens", "completion_tokens"), TOKENS_OUT),
}
#: Columns that hold an object of models -> answer, where there is one of scores, too.
ANSWER_OBJECTS = ("answers", "responses", "outputs")
#: Columns of two lists of the same length: the models, and their scores.
MODEL_LIST = "llm_name_list"
SCORE_LIST = "perf_list"
#: Columns that hold an object or a list of records as text, in a CSV file.
RECORDS = ("models", "outcomes", "results", "responses", "experts")


def parse_objects(table: Any) -> Any:
    """Return the table with parsed objects: texts become structures, and pairs of lists are joined."""
    for index, name in enumerate(table.column_names):
        is_usual = name in OBJECTS or name in (MODEL_LIST, SCORE_LIST, *RECORDS)
        if is_usual and is_string(table.schema.field(name).type):
            parsed = _parse_column(name, table[name].to_pylist())
            if parsed is not None:
                table = table.set_column(index, name, parsed)
    if _has_paired_lists(table):
        return _join_lists(table)
    return table


def _has_paired_lists(table: Any) -> bool:
    """Return whether there are a list of models and one of scores, and no column of scores."""
    names = table.column_names
    if "scores" in names or MODEL_LIST not in names or SCORE_LIST not in names:
        return False
    schema = table.schema
    return is_list(schema.field(MODEL_LIST).type) and is_list(schema.field(SCORE_LIST).type)


def _join_lists(table: Any) -> Any:
    """Replace the two lists of models and scores by a column ``scores`` of objects."""
    objects = []
    pairs = zip(table[MODEL_LIST].to_pylist(), table[SCORE_LIST].to_pylist(), strict=True)
    for row, (models, scores) in enumerate(pairs, start=1):
        models = models or []
        scores = scores or []
        if len(models) != len(scores):
            raise DataFileError(
                f"{MODEL_LIST!r} and {SCORE_LIST!r} must be equally long; in row {row} they have "
                f"{len(models)} and {len(scores)} entries."
            )
        try:
            objects.append(unique_keys(zip(models, scores, strict=True)))
        except DataFileError as error:
            raise DataFileError(f"row {row} of {MODEL_LIST!r}: {error}") from error
    return table.drop_columns([MODEL_LIST, SCORE_LIST]).append_column("scores", pa.array(objects))


def _parse_column(name: str, texts: list[str | None]) -> Any:
    """Parse texts that are JSON, or Python as pandas writes it; None if one of them is neither."""
    values: list[Any] = []
    for row, text in enumerate(texts, start=1):
        stripped = (text or "").strip()
        if not stripped:
            values.append(None)
            continue
        if stripped[0] not in "{[":
            return None
        try:
            value = _parse(stripped)
        except DataFileError as error:
            raise DataFileError(f"row {row} of {name!r}: {error}") from error
        if not isinstance(value, dict | list):
            return None
        values.append(value)
    parsed = infer_array(values)
    if not any(values) or is_string(parsed.type):
        return None
    return parsed


def _parse(text: str) -> Any:
    """Return the value of a text that is JSON or a literal of Python; None if it is neither."""
    not_parsed = (ValueError, SyntaxError, RecursionError, MemoryError)
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except DataFileError:
        # A key that appears twice; as a literal of Python the last value would count.
        raise
    except not_parsed:
        pass
    try:
        # pandas writes a missing number as nan, which is no Python.
        return ast.literal_eval(re.sub(r": nan(?=[,}])", ": None", text))
    except not_parsed:
        return None


def detect_nested(schema: Any) -> Layout | None:
    """Return the layout of the columns that objects of scores become; None if there are none."""
    by_prefix: dict[str, dict[str, str]] = {SCORE: {}, PRICE: {}, LATENCY: {}}
    for name, prefix in _objects(schema).items():
        # Of several objects for the same outcome, such as scores and correct, the first one counts.
        if prefix in by_prefix and not by_prefix[prefix]:
            models = [field.name for field in schema.field(name).type]
            by_prefix[prefix] = prefixed_columns(prefix, models)
    scores = by_prefix[SCORE]
    if not scores:
        return None
    prices = columns_of(scores, by_prefix[PRICE])
    return Layout("nested", scores, prices, columns_of(scores, by_prefix[LATENCY]))


def _objects(schema: Any) -> dict[str, str]:
    """Return the prefix of each column of objects of numbers or answers; those of scores come first."""
    prefixes = {**OBJECTS, **dict.fromkeys(ANSWER_OBJECTS, ANSWER)}
    columns = {}
    for name, prefix in prefixes.items():
        if name in schema.names and _is_object(schema.field(name).type):
            columns[name] = prefix
    return columns


def _is_object(kind: Any) -> bool:
    """Return whether an Arrow type is an object of numbers or texts."""
    if not kinds.is_struct(kind):
        return False
    for field in kind:
        if not (is_numeric(field.type) or is_string(field.type) or kinds.is_null(field.type)):
            return False
    return True


def widen_nested(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """Return the table with one column per model and outcome, its layout, and no findings."""
    layout = detect_nested(table.schema)
    if layout is None:
        raise DataFileError(f"it cannot be read as {NESTED.rule}.", parameter="form")
    if options.scores is not None:
        raise DataFileError(
            "nested scores are named by the table itself; leave out scores.",
            parameter="scores",
        )
    for name, prefix in _objects(table.schema).items():
        column = table[name].combine_chunks()
        table = table.drop_columns([name])
        for field, values in zip(column.type, column.flatten(), strict=True):
            if prefix + field.name not in table.column_names:
                table = table.append_column(prefix + field.name, values)
    return table, layout, []


NESTED = Format(
    "nested",
    "nested scores",
    "nested (scores: {model: score}, or llm_name_list and perf_list)",
    detect_nested,
    widen_nested,
)
