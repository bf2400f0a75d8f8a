"""The ledger as a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from mild.artifact.files import replacing
from mild.data.writing import write_csv, write_json_lines
from mild.errors import DataFileError, OutputExistsError
from mild.evaluation.replay import read_errors
from mild.gateway.database.engine import Location
from mild.gateway.ledger.reading import read_blocks, read_experts
from mild.gateway.ledger.records import COLUMNS, decisions


def export(
    path: Location,
    out: str | os.PathLike[str],
    since: float | None = None,
    until: float | None = None,
    overwrite: bool = False,
    feedback: Any = None,
) -> int:
    """Write the rows with ``since <= time < until``; their number.

    The columns are those of ``Record``, time as a timestamp in UTC; ``experts`` beside ``probabilities``
    names them. With ``feedback``, as ``mild.replay`` takes it, ``score`` follows: that of each judged
    request. ``mild.read_outcomes`` reads the file if the ledger has texts. A file that ends in .csv or
    .jsonl is of that kind, any other is parquet. Rows go through block by block, and the file appears
    under its name when it is whole.
    """
    import pyarrow as pa

    place = Path(out)
    if place.exists() and not overwrite:
        raise OutputExistsError(f"{place} already exists; give --overwrite to replace it.")
    errors = None if feedback is None else read_errors(feedback, "request_id")
    schema = _parquet_schema(pa)
    if errors is not None:
        schema = schema.append(pa.field("score", pa.float64()))
    names = read_experts(path)
    count = 0
    try:
        with replacing(place) as file, _writer(pa, place, file, schema) as write:
            for block in read_blocks(path, since, until):
                columns = dict(zip(COLUMNS, zip(*block, strict=True), strict=True))
                if errors is not None:
                    found = [errors.get(request) for request in columns["request_id"]]
                    columns["score"] = tuple(None if e is None else 1 - e for e in found)
                write(_batch(pa, schema, columns, names))
                count += len(block)
    except OSError as error:
        raise DataFileError(f"cannot write {place}: {error.strerror or error}.") from error
    return count


@contextmanager
def _writer(pa: Any, place: Path, file: IO[bytes], schema: Any) -> Iterator[Callable[[Any], None]]:
    """What writes batches of rows to an open file."""
    suffix = place.suffix.lower()
    if suffix == ".csv":

        def write(batch: Any, header: bool = False) -> None:
            write_csv(dict(zip(schema.names, batch.columns, strict=True)), file, header)

        write(schema.empty_table(), header=True)
        yield write
    elif suffix == ".jsonl":
        yield lambda batch: write_json_lines(pa.Table.from_batches([batch]), file)
    else:
        from pyarrow import parquet

        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            yield writer.write_batch


def _parquet_schema(pa: Any) -> Any:
    special = {
        "time": pa.timestamp("us", "UTC"),
        "probabilities": pa.list_(pa.float64()),
        "streamed": pa.bool_(),
    }
    kinds = {str: pa.string(), float: pa.float64(), int: pa.int64()}
    fields = [
        (name, special.get(name, kinds[decisions.c[name].type.python_type])) for name in COLUMNS
    ]
    place = COLUMNS.index("probabilities")
    return pa.schema([*fields[:place], ("experts", pa.list_(pa.string())), *fields[place:]])


def _batch(pa: Any, schema: Any, columns: dict[str, Any], names: dict[str, list[str]]) -> Any:
    values = dict(columns)
    values["time"] = [round(time * 1e6) for time in columns["time"]]
    values["streamed"] = [bool(flag) for flag in columns["streamed"]]
    # One text for all rows: a call for each would take longer than everything else.
    values["probabilities"] = json.loads(
        "[" + ",".join(shares or "null" for shares in columns["probabilities"]) + "]"
    )
    values["experts"] = [
        None if shares is None else names.get(router)
        for router, shares in zip(columns["router"], columns["probabilities"], strict=True)
    ]
    arrays = [pa.array(values[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
