"""Nested: the scores of a query in one object, ``scores: {model: score}``, or in two lists.

RouterDC and LLMRouter write such files as lists of JSON objects. In a CSV file the object is a text.
"""

from __future__ import annotations

import ast
import json
import re
from functools import partial
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
MODEL_LIST, SCORE_LIST = "llm_name_list", "perf_list"
#: Columns that hold an object or a list of records as text, in a CSV file.
RECORDS = ("models", "outcomes", "results", "responses", "experts")


def parse_objects(table: Any) -> Any:
    """The table with its objects as structures: texts are parsed, pairs of lists are joined."""
    for name in table.column_names:
        usual = name in OBJECTS or name in (MODEL_LIST, SCORE_LIST, *RECORDS)
        if usual and is_string(table.schema.field(name).type):
            parsed = _parse(name, table[name].to_pylist())
            if parsed is not None:
                table = table.set_column(table.column_names.index(name), name, parsed)
    if not {MODEL_LIST, SCORE_LIST} <= set(table.column_names) or "scores" in table.column_names:
        return table
    if not all(is_list(table.schema.field(name).type) for name in (MODEL_LIST, SCORE_LIST)):
        return table
    objects = []
    pairs = zip(table[MODEL_LIST].to_pylist(), table[SCORE_LIST].to_pylist(), strict=True)
    for row, (models, scores) in enumerate(pairs, start=1):
        if len(models or ()) != len(scores or ()):
            raise DataFileError(
                f"{MODEL_LIST!r} and {SCORE_LIST!r} must be equally long; in row {row} they have "
                f"{len(models or ())} and {len(scores or ())} entries."
            )
        try:
            objects.append(unique_keys(zip(models or (), scores or (), strict=True)))
        except DataFileError as error:
            raise DataFileError(f"row {row} of {MODEL_LIST!r}: {error}") from error
    return table.drop_columns([MODEL_LIST, SCORE_LIST]).append_column("scores", pa.array(objects))


def _parse(name: str, values: list[str | None]) -> Any:
    """Objects or lists of texts that are JSON, or Python as pandas writes it; None if one is not."""
    found: list[Any] = []
    for row, text in enumerate(values, start=1):
        plain = (text or "").strip()
        if plain and plain[0] not in "{[":
            return None
        try:
            found.append(_value(plain) if plain else None)
        except DataFileError as error:
            raise DataFileError(f"row {row} of {name!r}: {error}") from error
        if plain and not isinstance(found[-1], dict | list):
            return None
    parsed = infer_array(found)
    return parsed if any(found) and not is_string(parsed.type) else None


def _value(text: str) -> Any:
    # pandas writes a missing number as nan, which is no Python.
    for read, written in (
        (partial(json.loads, object_pairs_hook=unique_keys), text),
        (ast.literal_eval, re.sub(r": nan(?=[,}])", ": None", text)),
    ):
        try:
            return read(written)
        except DataFileError:
            raise
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


def detect_nested(schema: Any) -> Layout | None:
    """The columns that the objects become."""
    found: dict[str, dict[str, str]] = {SCORE: {}, PRICE: {}, LATENCY: {}}
    for name, prefix in _objects(schema).items():
        if prefix in found and not found[prefix]:
            kind = schema.field(name).type
            models = [kind.field(i).name for i in range(kind.num_fields)]
            found[prefix] = {model: prefix + model for model in models}
    if not found[SCORE]:
        return None
    prices, latencies = (
        {model: column for model, column in found[prefix].items() if model in found[SCORE]}
        for prefix in (PRICE, LATENCY)
    )
    return Layout("nested", found[SCORE], prices, latencies)


def _objects(schema: Any) -> dict[str, str]:
    """Columns that are objects of numbers or answers -> prefix; those of scores first."""
    prefixes = {**OBJECTS, **dict.fromkeys(ANSWER_OBJECTS, ANSWER)}
    return {
        name: prefix
        for name, prefix in prefixes.items()
        if name in schema.names and _is_object(schema.field(name).type)
    }


def _is_object(kind: Any) -> bool:
    return kinds.is_struct(kind) and all(
        is_numeric(field.type) or is_string(field.type) or kinds.is_null(field.type)
        for field in kind
    )


def widen_nested(table: Any, options: ReadArguments) -> tuple[Any, Layout, list[Finding]]:
    """The table with one column per model and outcome, and its layout."""
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
        place = table.column_names.index(name)
        table = table.remove_column(place)
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
