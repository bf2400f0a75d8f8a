"""The ledger as a parquet file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mild.artifact.files import replacing
from mild.errors import DataFileError, OutputExistsError
from mild.gateway.database.engine import Location
from mild.gateway.ledger.reading import read_blocks, read_experts
from mild.gateway.ledger.records import COLUMNS, decisions


def export(
    path: Location,
    out: str | os.PathLike[str],
    since: float | None = None,
    until: float | None = None,
    overwrite: bool = False,
) -> int:
    """Write the rows with ``since <= time < until``; their number.

    The columns are those of ``Record``, time as a timestamp in UTC; ``experts`` beside ``probabilities``
    names them. Rows go through block by block, and the file appears under its name when it is whole.
    """
    import pyarrow as pa
    from pyarrow import parquet

    place = Path(out)
    if place.exists() and not overwrite:
        raise OutputExistsError(f"{place} already exists; give --overwrite to replace it.")
    schema = _parquet_schema(pa)
    names = read_experts(path)
    count = 0
    try:
        with (
            replacing(place) as file,
            parquet.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            for block in read_blocks(path, since, until):
                columns = dict(zip(COLUMNS, zip(*block, strict=True), strict=True))
                writer.write_batch(_batch(pa, schema, columns, names))
                count += len(block)
    except OSError as error:
        raise DataFileError(f"cannot write {place}: {error.strerror or error}.") from error
    return count


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
