"""Token counts with prices per token: dollars per query, from a file of prices or from LiteLLM's table."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mild.core.arrays import FloatArray
from mild.data.formats.base import TOKENS_IN, TOKENS_OUT, Layout, Named, ReadArguments
from mild.data.tables import choose_columns, numbers
from mild.errors import DataFileError, listed

#: ``--prices litellm`` takes the table that comes with LiteLLM.
LITELLM = "litellm"
LITELLM_FILE = "model_prices_and_context_window_backup.json"
SUFFIXES = (".json", ".toml", ".csv")
DOLLARS = "dollars__"
MODEL_KEYS = ("model", "model_name", "name", "expert")
#: Keys of a price -> dollars per unit of it.
KEYS_IN = {
    "input_cost_per_token": 1.0,
    "price_in": 1e-6,
    "input_price": 1e-6,
    "per_million_in": 1e-6,
}
KEYS_OUT = {
    "output_cost_per_token": 1.0,
    "price_out": 1e-6,
    "output_price": 1e-6,
    "per_million_out": 1e-6,
}
KEYS_QUERY = {"price_per_query": 1.0, "per_query": 1.0, "input_cost_per_request": 1.0}


@dataclass(frozen=True)
class TokenPrice:
    """Dollars per token in and out, and per query; None where nothing is said about them."""

    tokens_in: float | None
    tokens_out: float | None
    query: float | None = None


def is_price_file(prices: Named, columns: Any) -> bool:
    """Whether ``prices`` names a file of prices, or LiteLLM's table, and not columns."""
    if not isinstance(prices, (str, os.PathLike)) or prices in columns:
        return False
    path = Path(prices)
    return prices == LITELLM or (path.suffix.lower() in SUFFIXES and "*" not in str(prices))


def add_prices(table: Any, layout: Layout, options: ReadArguments) -> tuple[Any, Layout]:
    """The table with dollars computed from token counts, where it has no dollars of its own.

    Prices are those of the file that ``options.prices`` names; without it those of LiteLLM where it is
    installed and knows every expert.
    """
    from_file = is_price_file(options.prices, table.column_names)
    if layout.prices and not from_file:
        return table, layout
    experts = list(layout.scores)
    counts = _token_columns(table, experts, options.tokens)
    if from_file:
        prices = read_prices(str(options.prices))
        known, unknown = _match_all(experts, prices)
        if unknown:
            raise DataFileError(
                parameter="prices",
                rule=f"must have a price for every expert; {options.prices} has none for "
                f"{listed(unknown, 4)}, only for {listed(list(prices), 4)}.",
            )
        source = "LiteLLM's table" if options.prices == LITELLM else str(options.prices)
    else:
        if not counts:
            return table, layout
        prices = _installed_prices() or {}
        known, unknown = _match_all(experts, prices)
        if unknown:
            why = f"no prices are known for {listed(unknown, 3)}: give them with --prices FILE"
            return table, replace(layout, notes=(*layout.notes, why))
        source = "LiteLLM's table"
    columns = {}
    for name in experts:
        columns[name] = DOLLARS + name
        dollars = _dollars(name, table, counts.get(name), known[name])
        table = table.append_column(columns[name], pa.array(dollars, from_pandas=True))
    note = f"prices are token counts times {source}"
    if not counts:
        note = f"prices per query are from {source}"
    return table, replace(layout, prices=columns, notes=(*layout.notes, note))


def _match_all(
    experts: list[str], prices: Mapping[str, TokenPrice]
) -> tuple[dict[str, TokenPrice], list[str]]:
    """Expert -> price, and the experts that have none."""
    found = {name: match_price(name, prices) for name in experts}
    known = {name: price for name, price in found.items() if price is not None}
    return known, [name for name in experts if name not in known]


def _dollars(
    name: str, table: Any, columns: tuple[str, str] | None, price: TokenPrice
) -> FloatArray:
    total = np.full(table.num_rows, price.query or 0.0)
    if price.tokens_in is None and price.tokens_out is None:
        return total
    if columns is None:
        raise DataFileError(
            parameter="prices",
            rule=f"per token need token counts: columns {TOKENS_IN}<model> and {TOKENS_OUT}<model>, or "
            f"--tokens IN,OUT; {name!r} has none.",
        )
    for column, per_token in zip(columns, (price.tokens_in, price.tokens_out), strict=True):
        total += (per_token or 0.0) * numbers(column, table[column])
    return total


def _token_columns(
    table: Any, experts: list[str], tokens: str | None
) -> dict[str, tuple[str, str]]:
    """Expert -> its columns of tokens in and out; ``*`` in the names of ``tokens`` is the expert."""
    names = table.column_names
    wanted = f"{TOKENS_IN}*,{TOKENS_OUT}*"
    # Where there is a row per query and model, its format has made the usual columns of those named.
    given = tokens is not None and "*" in tokens
    parts = [part.strip() for part in (tokens if given and tokens else wanted).split(",")]
    if len(parts) != 2:
        raise DataFileError(
            parameter="tokens",
            rule=f"must be two columns, tokens in and out, such as 'in_*,out_*' where * is the expert; got "
            f"{tokens!r}.",
        )
    found = {}
    for expert in experts:
        pair = (parts[0].replace("*", expert), parts[1].replace("*", expert))
        if all(name in names for name in pair):
            found[expert] = pair
        elif given:
            choose_columns("tokens", list(pair), names)
    return found


def read_prices(source: str) -> dict[str, TokenPrice]:
    """Prices of a file: model -> price.

    A .json or .toml file maps models to their prices, as LiteLLM's does, or lists objects with the name of
    a model; a .csv file has a row per model. A price has ``input_cost_per_token`` and
    ``output_cost_per_token``, or ``price_in`` and ``price_out`` (LLMRouter: ``input_price`` and
    ``output_price``) in dollars per million tokens, or ``price_per_query``.
    """
    if source == LITELLM:
        prices = _installed_prices()
        if prices is None:
            raise DataFileError(
                parameter="prices", rule="litellm needs the package litellm: pip install litellm."
            )
        return prices
    file = Path(source)
    try:
        content = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".csv":
            found: Any = list(csv.DictReader(content.splitlines()))
        else:
            found = (
                json.loads(content) if file.suffix.lower() == ".json" else tomllib.loads(content)
            )
    except OSError as error:
        why = error.strerror or error
        raise DataFileError(
            parameter="prices", rule=f"must be a file of prices; {file} cannot be read: {why}."
        ) from error
    except ValueError as error:
        raise DataFileError(
            parameter="prices", rule=f"must be a readable file of prices; {file}: {error}."
        ) from error
    prices = {}
    for name, entry in _entries(found):
        price = _price(name, entry)
        if price is not None:
            prices[name] = price
    if not prices:
        keys = ", ".join([*KEYS_IN, *KEYS_OUT, "price_per_query"])
        raise DataFileError(
            parameter="prices", rule=f"must hold prices per model ({keys}); {file} has none."
        )
    return prices


def _entries(found: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """(model, its fields) of a mapping or of a list of objects, at the top or one level below."""
    if isinstance(found, Mapping):
        below = [value for value in found.values() if isinstance(value, list)]
        entries = [
            (str(name), value) for name, value in found.items() if isinstance(value, Mapping)
        ]
        return entries + [entry for value in below for entry in _entries(value)]
    named = []
    for entry in found if isinstance(found, list) else ():
        key = next((key for key in MODEL_KEYS if isinstance(entry, Mapping) and key in entry), None)
        if key is not None:
            named.append((str(entry[key]), entry))
    return named


def _price(name: str, entry: Mapping[str, Any]) -> TokenPrice | None:
    values: list[float | None] = []
    for keys in (KEYS_IN, KEYS_OUT, KEYS_QUERY):
        key = next((key for key in keys if entry.get(key) not in (None, "")), None)
        value = None
        if key is not None:
            try:
                value = float(entry[key]) * keys[key]
            except (TypeError, ValueError):
                value = np.nan
            if not (np.isfinite(value) and value >= 0):
                raise DataFileError(
                    parameter="prices",
                    rule=f"must be finite and not negative; {key} of {name!r} is {entry[key]!r}.",
                )
        values.append(value)
    return None if values == [None] * 3 else TokenPrice(*values)


def _installed_prices() -> dict[str, TokenPrice] | None:
    """Prices of LiteLLM's own table, without importing it; None where it is not installed."""
    spec = importlib.util.find_spec("litellm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(folder) / LITELLM_FILE
        if file.is_file():
            return read_prices(str(file))
    return None


def match_price(name: str, prices: Mapping[str, TokenPrice]) -> TokenPrice | None:
    """The price of a model by its name, its name in lower case, or its name without the provider.

    Several entries of one name must have the same price.
    """
    if name in prices:
        return prices[name]
    for form in (str.lower, lambda text: text.lower().rpartition("/")[2]):
        found = {price for model, price in prices.items() if form(model) == form(name)}
        if len(found) == 1:
            return found.pop()
        if found:
            return None
    return None
