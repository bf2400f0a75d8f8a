"""Token counts with prices per token: dollars per query, by a file of prices or LiteLLM's table."""

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
    """Return the keys under which a price may stand, and their units; None is the unit of the file."""
    keys: dict[str, str | None] = {}
    for unit in UNITS:
        for side in sides:
            keys[f"{side}_cost_{unit}"] = unit
            keys[f"{side}_price_{unit}"] = unit
            keys[f"{side}_{unit}"] = unit
    for side in sides:
        keys[f"per_million_{side}"] = USUAL_UNIT
    for side in sides:
        keys[f"price_{side}"] = None
        keys[f"{side}_price"] = None
        keys[f"{side}_cost"] = None
    for side in sides:
        keys[side] = None
    return keys


KEYS_IN = _keys("in", "input", "prompt")
KEYS_OUT = _keys("out", "output", "completion")
# Dollars per query have one unit, which leaves the number as it is.
KEYS_QUERY: dict[str, str | None] = {
    "price_per_query": "per_token",
    "cost_per_query": "per_token",
    "per_query": "per_token",
    "input_cost_per_request": "per_token",
}


@dataclass(frozen=True)
class TokenPrice:
    """Dollars per token in and out, and per query; None where nothing is said about them."""

    tokens_in: float | None
    tokens_out: float | None
    query: float | None = None


def is_price_file(prices: Named, columns: Any) -> bool:
    """Return whether ``prices`` names a file of prices, or LiteLLM's table, and not columns."""
    if not isinstance(prices, (str, os.PathLike)) or prices in columns:
        return False
    path = Path(prices)
    return prices == LITELLM or (path.suffix.lower() in SUFFIXES and "*" not in str(prices))


def add_prices(table: Any, layout: Layout, options: ReadArguments) -> tuple[Any, Layout]:
    """Add dollars computed from token counts, by the prices that ``options.prices`` names."""
    experts = list(layout.scores)
    token_columns = _token_columns(table, experts, options.tokens)
    if is_price_file(options.prices, table.column_names):
        return _add_prices_of_file(table, layout, str(options.prices), token_columns)
    if token_columns and not layout.prices:
        remedy = f"give them with {read_with('prices=PRICES')}"
        layout = layout.with_notes(f"no prices are known for {listed(experts, 3)}: {remedy}")
    return table, layout


def _add_prices_of_file(
    table: Any, layout: Layout, source: str, token_columns: Mapping[str, tuple[str, str]]
) -> tuple[Any, Layout]:
    """Add dollars by the prices of a file, which must have one for every expert."""
    experts = list(layout.scores)
    prices = read_prices(source)
    by_expert, unknown = _match_all(experts, prices)
    if unknown:
        hint = ""
        similar = difflib.get_close_matches(unknown[0], list(prices), 1)
        if similar:
            hint = f" Did you mean {similar[0]!r}?"
        raise DataFileError(
            parameter="prices",
            rule=f"must have a price for every expert; {source} has none for {listed(unknown, 4)}, only "
            f"for {listed(list(prices), 4)}.{hint}",
        )
    if source == LITELLM:
        source = "LiteLLM's table"
    return _with_dollars(table, layout, by_expert, token_columns, source)


def _with_dollars(
    table: Any,
    layout: Layout,
    prices: Mapping[str, TokenPrice],
    token_columns: Mapping[str, tuple[str, str]],
    source: str,
) -> tuple[Any, Layout]:
    """Add a column of dollars for each expert to a table and its layout."""
    price_columns = {}
    for expert in layout.scores:
        dollars = _dollars(expert, table, token_columns.get(expert), prices[expert])
        price_columns[expert] = DOLLARS + expert
        table = table.append_column(DOLLARS + expert, pa.array(dollars, from_pandas=True))
    note = f"prices are token counts times {source}"
    if not token_columns:
        note = f"prices per query are from {source}"
    return table, replace(layout, prices=price_columns).with_notes(note)


def _match_all(
    experts: list[str], prices: Mapping[str, TokenPrice]
) -> tuple[dict[str, TokenPrice], list[str]]:
    """Return the price of each expert that has one, and the names of the experts without."""
    by_expert = {}
    unknown = []
    for expert in experts:
        price = match_price(expert, prices)
        if price is None:
            unknown.append(expert)
        else:
            by_expert[expert] = price
    for expert, price in by_expert.items():
        _check_unit(expert, price)
    return by_expert, unknown


def _check_unit(expert: str, price: TokenPrice) -> None:
    """Raise an error for prices per token so low or so high that their unit must be another one."""
    for dollars in (price.tokens_in, price.tokens_out):
        if dollars and not PLAUSIBLE[0] <= dollars <= PLAUSIBLE[1]:
            raise DataFileError(
                parameter="prices",
                rule=f"must be in the right unit; {expert!r} has {dollars * 1e6:g} dollars per million "
                f"tokens. Write dollars per token as input_cost_per_token and output_cost_per_token, "
                f"dollars per million tokens as input and output.",
            )


def _dollars(
    expert: str, table: Any, columns: tuple[str, str] | None, price: TokenPrice
) -> FloatArray:
    """Return the dollars (n_rows,) of an expert: its price per query plus its tokens times their prices."""
    dollars = np.full(table.num_rows, price.query or 0.0)
    if price.tokens_in is None and price.tokens_out is None:
        return dollars
    if columns is None:
        named = read_with("tokens='IN,OUT'")
        raise DataFileError(
            parameter="prices",
            rule=f"per token need token counts: columns {TOKENS_IN}<model> and {TOKENS_OUT}<model>, or "
            f"those of {named}; {expert!r} has none.",
        )
    column_in, column_out = columns
    dollars += (price.tokens_in or 0.0) * numbers(column_in, table[column_in])
    dollars += (price.tokens_out or 0.0) * numbers(column_out, table[column_out])
    return dollars


def check_token_patterns(tokens: str | None) -> None:
    """Raise an error for columns of tokens without ``*`` for the expert, in a table of a row per query."""
    if tokens is not None and [pattern.count("*") for pattern in tokens.split(",")] != [1, 1]:
        raise _no_token_columns(tokens)


def _no_token_columns(tokens: str | None) -> DataFileError:
    return DataFileError(
        parameter="tokens",
        rule=f"must be two columns, tokens in and out, such as 'in_*,out_*' where * is the expert; got "
        f"{tokens!r}.",
    )


def _token_columns(
    table: Any, experts: list[str], tokens: str | None
) -> dict[str, tuple[str, str]]:
    """Return the columns of tokens in and out of each expert; ``*`` in ``tokens`` stands for the expert."""
    patterns = f"{TOKENS_IN}*,{TOKENS_OUT}*"
    is_named = False
    # Where there is a row per query and model, its format has made the usual columns of those named.
    if tokens is not None and "*" in tokens:
        patterns = tokens
        is_named = True
    by_side = [pattern.strip() for pattern in patterns.split(",")]
    if len(by_side) != 2:
        raise _no_token_columns(tokens)
    by_expert = {}
    for expert in experts:
        column_in = by_side[0].replace("*", expert)
        column_out = by_side[1].replace("*", expert)
        if column_in in table.column_names and column_out in table.column_names:
            by_expert[expert] = (column_in, column_out)
        elif is_named:
            choose_columns("tokens", [column_in, column_out], table.column_names)
    return by_expert


def read_prices(source: str) -> dict[str, TokenPrice]:
    """Read the price of each model from a file of prices, or from the table that LiteLLM brings.

    A .json or .toml file maps models to their prices, as LiteLLM's does, or lists objects with the name of
    a model; both may be one level below the top, as in ``{"models": {model: price}}``. A .csv file has a
    row per model. The price of a model is written as

    - ``input_cost_per_token`` and ``output_cost_per_token``,
    - ``input`` and ``output`` (``in`` and ``out``, ``price_in`` and ``price_out``, ``input_price`` and
      ``output_price``) in dollars per million tokens, or in the ``unit`` that the file states,
    - or ``price_per_query``.

    Parameters
    ----------
    source : str
        Path of a file, or "litellm".

    Returns
    -------
    dict of str to TokenPrice
        Prices by model.
    """
    if source == LITELLM:
        installed = _installed_prices()
        if installed is None:
            raise DataFileError(
                parameter="prices", rule="litellm needs the package litellm: pip install litellm."
            )
        return installed
    file = Path(source)
    content = _read_content(file)
    unit = _unit(content, file)
    prices = _prices_of(_entries(content), unit)
    if not prices:
        prices = _prices_of(_entries_one_level_below(content), unit)
    if not prices:
        keys = (
            "input_cost_per_token and output_cost_per_token, or input and output in dollars per million "
            "tokens, or price_per_query"
        )
        raise DataFileError(
            parameter="prices", rule=f"must hold prices per model ({keys}); {file} has none."
        )
    return prices


def _read_content(file: Path) -> Any:
    """Return the rows of a .csv file, or what a .json or .toml file holds."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".csv":
            return list(csv.DictReader(text.splitlines()))
        if file.suffix.lower() == ".json":
            return json.loads(text)
        return tomllib.loads(text)
    except OSError as error:
        why = error.strerror or error
        raise DataFileError(
            parameter="prices", rule=f"must be a file of prices; {file} cannot be read: {why}."
        ) from error
    except ValueError as error:
        raise DataFileError(
            parameter="prices", rule=f"must be a readable file of prices; {file}: {error}."
        ) from error


def _unit(content: Any, file: Path) -> str:
    """Return the unit of prices whose keys name none: that of the file, or dollars per million tokens."""
    if not isinstance(content, Mapping) or not isinstance(content.get("unit"), str):
        return USUAL_UNIT
    text = content["unit"]
    plain = text.lower().replace("1,000,000", "million").replace("1,000", "1k").replace(" ", "_")
    if plain.startswith(("dollar", "usd", "$", "per_")):
        for unit in UNITS:
            if plain.endswith(unit):
                return unit
    rule = "must be in dollars per token, per 1k tokens or per million tokens"
    raise DataFileError(parameter="prices", rule=f"{rule}; the unit of {file} is {text!r}.")


def _entries(content: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (model, its fields) of a mapping, of a list of objects, or of a mapping with such lists."""
    entries = []
    if isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, Mapping):
                entries.append((str(name), value))
        for value in content.values():
            if isinstance(value, list):
                entries += _entries(value)
    elif isinstance(content, list):
        for fields in content:
            if not isinstance(fields, Mapping):
                continue
            name_key = next((key for key in MODEL_KEYS if key in fields), None)
            if name_key is not None:
                entries.append((str(fields[name_key]), fields))
    return entries


def _entries_one_level_below(content: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (model, its fields) of the values of a mapping, as in {"models": {model: price}}."""
    if not isinstance(content, Mapping):
        return []
    entries = []
    for value in content.values():
        if isinstance(value, Mapping):
            entries += _entries(value)
    return entries


def _prices_of(entries: list[tuple[str, Mapping[str, Any]]], unit: str) -> dict[str, TokenPrice]:
    """Return the price of each model that has one; the last entry of a model counts."""
    by_model = {}
    for model, fields in entries:
        by_model[model] = _price(model, fields, unit)
    return {model: price for model, price in by_model.items() if price is not None}


def _price(model: str, fields: Mapping[str, Any], unit: str) -> TokenPrice | None:
    """Return the price of a model; None if its fields say nothing about it."""
    price = TokenPrice(
        tokens_in=_amount(model, fields, KEYS_IN, unit),
        tokens_out=_amount(model, fields, KEYS_OUT, unit),
        query=_amount(model, fields, KEYS_QUERY, unit),
    )
    if price == TokenPrice(None, None):
        return None
    return price


def _amount(
    model: str, fields: Mapping[str, Any], units: Mapping[str, str | None], unit: str
) -> float | None:
    """Return the dollars under the first of these keys that has a value; None if none has."""
    key = next((key for key in units if fields.get(key) not in (None, "")), None)
    if key is None:
        return None
    try:
        dollars = float(fields[key]) * UNITS[units[key] or unit]
    except (TypeError, ValueError):
        dollars = np.nan
    if not (np.isfinite(dollars) and dollars >= 0):
        raise DataFileError(
            parameter="prices",
            rule=f"must be finite and not negative; {key} of {model!r} is {fields[key]!r}.",
        )
    return dollars


def _installed_prices() -> dict[str, TokenPrice] | None:
    """Read the prices of LiteLLM's own table without importing it; None if it is not installed."""
    spec = importlib.util.find_spec("litellm")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        file = Path(folder) / LITELLM_FILE
        if file.is_file():
            return read_prices(str(file))
    return None


def match_price(name: str, prices: Mapping[str, TokenPrice]) -> TokenPrice | None:
    """Return the price of a model by its name, ignoring case or the provider if need be.

    Several entries of one name must have the same price.
    """
    if name in prices:
        return prices[name]
    for form in (str.lower, _without_provider):
        models = [model for model in prices if form(model) == form(name)]
        if len({prices[model] for model in models}) > 1:
            raise DataFileError(
                parameter="prices",
                rule=f"must have one price for {name!r}; {listed(models, 6)} differ. Name it in full.",
            )
        if models:
            return prices[models[0]]
    return None


def _without_provider(name: str) -> str:
    """Return the name of a model in lower case, without what precedes the last slash."""
    return name.lower().rpartition("/")[2]
