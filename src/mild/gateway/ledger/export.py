"""The ledger as a parquet file, or as a log for Vowpal Wabbit or obp."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from mild.artifact.files import replacing
from mild.errors import DataFileError, OutputExistsError
from mild.evaluation.replay.bandit_logs import Draw, write_draws
from mild.evaluation.replay.log import read_draws
from mild.evaluation.replay.run import check_price_weight
from mild.gateway.database.engine import Location
from mild.gateway.ledger.reading import ledger_reader, read_blocks, read_experts
from mild.gateway.ledger.records import COLUMNS, decisions


def export(
    path: Location,
    out: str | os.PathLike[str],
    since: float | None = None,
    until: float | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write the rows with ``since <= time < until``; their number.

    The columns are those of ``Record``, time as a timestamp in UTC; ``experts`` beside ``probabilities``
    names them. Rows go through block by block, and the file appears under its name when it is whole.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = _parquet_schema(pa)
    names = read_experts(path)
    count = 0
    with (
        _new_file(out, overwrite) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for block in read_blocks(path, since, until):
            columns = dict(zip(COLUMNS, zip(*block, strict=True), strict=True))
            writer.write_batch(_batch(pa, schema, columns, names))
            count += len(block)
            if progress is not None:
                progress(count)
    return count


def export_draws(
    path: Location,
    out: str | os.PathLike[str],
    form: str,
    since: float | None = None,
    until: float | None = None,
    overwrite: bool = False,
    errors: Mapping[str, float] | None = None,
    price_weight: float | None = None,
) -> tuple[int, dict[str, int]]:
    """Write the decisions that ``replay`` uses, for Vowpal Wabbit ("vw") or obp ("obp").

    A row is a draw, with what it cost in dollars, or with ``errors`` (request -> error in [0, 1]) ``error +
    price_weight * dollars``. Returned are their number, and how many rows were left out, by reason.
    """
    weight = 1.0 if errors is None else check_price_weight(price_weight)
    left_out: Counter[str] = Counter()
    names = read_experts(path)
    every = list(dict.fromkeys(name for experts in names.values() for name in experts))

    def draws() -> Iterator[Draw]:
        extra = ("request_id", "time", "router")
        reader = ledger_reader(path)
        for block in read_draws(reader, left_out, None, errors, since, until, extra):
            for row in block:
                request_id, time, router = row.extra
                experts = names.get(router, ())
                if not row.decides:
                    left_out["later requests of a pinned session"] += 1
                elif row.chosen not in experts:
                    left_out["decided by a router whose experts are not in the ledger"] += 1
                elif errors is not None and math.isnan(row.error):
                    left_out["not judged"] += 1
                else:
                    cost = weight * row.dollars + (0.0 if errors is None else row.error)
                    fields = row.text, experts, row.chosen, row.propensity, cost
                    yield Draw(request_id, time, *fields)

    with _new_file(out, overwrite) as file:
        count = write_draws(file, form, draws(), every)
    return count, dict(left_out)


@contextmanager
def _new_file(out: str | os.PathLike[str], overwrite: bool) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is whole."""
    place = Path(out)
    if place.exists() and not overwrite:
        raise OutputExistsError(f"{place} is there already; give --overwrite to replace it.")
    try:
        with replacing(place) as file:
            yield file
    except OSError as error:
        raise DataFileError(f"cannot write {place}: {error.strerror or error}.") from error


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
