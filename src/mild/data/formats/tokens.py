"""Token counts with prices per token: dollars per query, from a file of prices or from LiteLLM's table."""

from __future__ import annotations

import csv
import difflib
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
from mild.data.formats.base import (
    TOKENS_IN,
    TOKENS_OUT,
    Layout,
    Named,
    ReadArguments,
    read_with,
)
from mild.data.tables import choose_columns, numbers
from mild.errors import DataFileError, listed

#: ``--prices litellm`` takes the table that comes with LiteLLM.
LITELLM = "litellm"
LITELLM_FILE = "model_prices_and_context_window_backup.json"
SUFFIXES = (".json", ".toml", ".csv")
DOLLARS = "dollars__"
MODEL_KEYS = ("model", "model_name", "name", "expert")
#: Units of a price in a key or in the field ``unit`` of a file -> dollars per token.
UNITS = {
    "per_token": 1.0,
    **dict.fromkeys(("per_1k_tokens", "per_1k", "per_thousand_tokens"), 1e-3),
    **dict.fromkeys(("per_million_tokens", "per_million", "per_1m_tokens", "per_1m"), 1e-6),
}
#: Without a unit, a price is in dollars per million tokens.
USUAL_UNIT = "per_million_tokens"
#: Prices per token outside this range are a mistake of the unit; a price of 0 is one.
PLAUSIBLE = (1e-10, 1e-2)


def _keys(*sides: str) -> dict[str, str | None]:
    """Keys of a price of tokens in or out -> its unit; None for the unit of the file."""
    keys: dict[str, str | None] = {
        f"{side}{what}_{unit}": unit
        for unit in UNITS
        for side in sides
        for what in ("_cost", "_price", "")
    }
    keys |= {f"per_million_{side}": USUAL_UNIT for side in sides}
    plain = [name for side in sides for name in (f"price_{side}", f"{side}_price", f"{side}_cost")]
    return keys | dict.fromkeys([*plain, *sides])


KEYS_IN = _keys("in", "input", "prompt")
KEYS_OUT = _keys("out", "output", "completion")
KEYS_QUERY = ("price_per_query", "cost_per_query", "per_query", "input_cost_per_request")


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
            close = difflib.get_close_matches(unknown[0], list(prices), 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise DataFileError(
                parameter="prices",
                rule=f"must have a price for every expert; {options.prices} has none for "
                f"{listed(unknown, 4)}, only for {listed(list(prices), 4)}.{hint}",
            )
        source = "LiteLLM's table" if options.prices == LITELLM else str(options.prices)
    else:
        if not counts:
            return table, layout
        prices = _installed_prices() or {}
        try:
            known, unknown = _match_all(experts, prices)
        except DataFileError as error:
            return table, replace(layout, notes=(*layout.notes, f"no prices are taken: {error}"))
        if unknown:
            why = f"no prices are known for {listed(unknown, 3)}: give them with "
            why += read_with("prices=PRICES")
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
    for name, price in known.items():
        for value in (price.tokens_in, price.tokens_out):
            if value and not PLAUSIBLE[0] <= value <= PLAUSIBLE[1]:
                raise DataFileError(
                    parameter="prices",
                    rule=f"must be in the right unit; {name!r} has {value * 1e6:g} dollars per million "
                    f"tokens. Write dollars per token as input_cost_per_token and output_cost_per_token, "
                    f"dollars per million tokens as input and output.",
                )
    return known, [name for name in experts if name not in known]


def _dollars(
    name: str, table: Any, columns: tuple[str, str] | None, price: TokenPrice
) -> FloatArray:
    total = np.full(table.num_rows, price.query or 0.0)
    if price.tokens_in is None and price.tokens_out is None:
        return total
    if columns is None:
        named = read_with("tokens='IN,OUT'")
        raise DataFileError(
            parameter="prices",
            rule=f"per token need token counts: columns {TOKENS_IN}<model> and {TOKENS_OUT}<model>, or "
            f"those of {named}; {name!r} has none.",
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
    a model; a .csv file has a row per model. A price has

    - ``input_cost_per_token`` and ``output_cost_per_token``,
    - ``input`` and ``output`` (``in`` and ``out``, ``price_in`` and ``price_out``, ``input_price`` and
      ``output_price``) in dollars per million tokens, or in the ``unit`` that the file states,
    - or ``price_per_query``.
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
    unit = _unit(found, file)
    entries = _entries(found)
    if isinstance(found, Mapping) and not any(_price(*entry, unit) for entry in entries):
        # One level below, as in {"models": {model: price}}.
        below = [value for value in found.values() if isinstance(value, Mapping)]
        entries = [entry for value in below for entry in _entries(value)]
    found_prices = {name: _price(name, entry, unit) for name, entry in entries}
    known = {name: price for name, price in found_prices.items() if price is not None}
    if not known:
        keys = (
            "input_cost_per_token and output_cost_per_token, or input and output in dollars per million "
            "tokens, or price_per_query"
        )
        raise DataFileError(
            parameter="prices", rule=f"must hold prices per model ({keys}); {file} has none."
        )
    return known


def _unit(found: Any, file: Path) -> str:
    """The unit of prices whose keys name none: that of the file, or dollars per million tokens."""
    text = found.get("unit") if isinstance(found, Mapping) else None
    if not isinstance(text, str):
        return USUAL_UNIT
    plain = text.lower().replace("1,000,000", "million").replace("1,000", "1k").replace(" ", "_")
    unit = next((unit for unit in UNITS if plain.endswith(unit)), None)
    if unit is None or not plain.startswith(("dollar", "usd", "$", "per_")):
        rule = "must be in dollars per token, per 1k tokens or per million tokens"
        raise DataFileError(parameter="prices", rule=f"{rule}; the unit of {file} is {text!r}.")
    return unit


def _entries(found: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """(model, its fields) of a mapping, of a list of objects, or of a mapping with such lists."""
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


def _price(name: str, entry: Mapping[str, Any], unit: str) -> TokenPrice | None:
    values: list[float | None] = []
    for keys in (KEYS_IN, KEYS_OUT, dict.fromkeys(KEYS_QUERY, "per_token")):
        key = next((key for key in keys if entry.get(key) not in (None, "")), None)
        value = None
        if key is not None:
            try:
                value = float(entry[key]) * UNITS[keys[key] or unit]
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
        found = [model for model in prices if form(model) == form(name)]
        if len({prices[model] for model in found}) > 1:
            raise DataFileError(
                parameter="prices",
                rule=f"must have one price for {name!r}; {listed(found, 6)} differ. Name it in full.",
            )
        if found:
            return prices[found[0]]
    return None
