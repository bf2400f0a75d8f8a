"""Read one expert from a table of a configuration file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mild_gateway.experts.config_file import ConfigFile
from mild_gateway.experts.expert import Expert, is_name, is_secret_header
from mild_gateway.experts.secrets import (
    Secret,
    SecretError,
    secret_from_environment,
    secret_from_file,
)

_PROGRAM = (
    "command", "price_in", "price_out", "price_per_query", "requests_per_minute", "retries",
    "backoff_s", "max_in_flight", "total_seconds", "samples",
)  # fmt: skip


def read_expert(
    config: ConfigFile,
    location: tuple[str, ...],
    name: str,
    environment: Mapping[str, str] | None,
    defaults: Mapping[str, Any] | None = None,
    base: Expert | None = None,
) -> Expert | None:
    """One table as an expert, None where problems were noted.

    ``base`` gives what the table leaves out, else ``defaults``; without an environment no secret is read.
    """
    table = config.content
    for key in location:
        table = table[key]
    if not isinstance(table, dict):
        config.add(location, "must be a table")
        return None
    before = len(config.problems)
    if not is_name(name):
        config.add(location, "must have a name of letters, digits and . : / @ + - (up to 100)")
    data = dict(table)
    if "api_key" in data:
        del data["api_key"]
        config.add(
            (*location, "api_key"),
            "must not be written in this file; name an environment variable, "
            'api_key_env = "NAME", or a file with mode 0600, api_key_file = "PATH"',
        )
    for key in data.keys() & Expert.internal:
        del data[key]
        config.add_unknown((*location, key))
    headers = data.get("headers", {})
    for header in headers if isinstance(headers, dict) else ():
        if is_secret_header(header):
            config.add(
                (*location, "headers", header),
                f'must not be written in this file; use api_key_env with api_key_header = "{header}"',
            )
    _check_kind(config, location, data, base)
    usual = defaults or {}
    if base is not None:
        usual = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
    for key, value in usual.items():
        if key not in data:
            data[key] = value
    data |= {"name": name, "place": config.place(location)}
    if base is not None and isinstance(table.get("breaker"), dict):
        data["breaker"] = dataclasses.asdict(base.breaker) | table["breaker"]
    expert = config.validate(Expert, data, location)
    if expert is not None and expert.embeddings and expert.api == "anthropic":
        config.add((*location, "embeddings"), "must not be true: Anthropic's API has no embeddings")
    if expert is None or len(config.problems) > before or environment is None:
        return expert
    secret = _secret(config, location, expert, environment)
    return expert if secret is None else dataclasses.replace(expert, secret=secret)


def _check_kind(
    config: ConfigFile, location: tuple[str, ...], table: Mapping[str, Any], base: Expert | None
) -> None:
    """Refuse tables that are neither an endpoint nor a program, or both."""
    if base is not None:
        return
    if "command" in table:
        known = {field.name for field in dataclasses.fields(Expert)}
        for key in table.keys() & known - {*_PROGRAM}:
            config.add((*location, key), "must not be given for an expert that is a command")
        return
    if "base_url" not in table and "model" not in table:
        config.add(location, "must have either base_url and model, or command")
        return
    if not table.get("base_url"):
        rule = 'must have an address: base_url = "https://api.example.com/v1", or a command'
        config.add(location, rule)
    if not table.get("model"):
        rule = 'must have a model: the name that the endpoint knows, model = "NAME"'
        config.add(location, rule)


def _secret(
    config: ConfigFile, location: tuple[str, ...], expert: Expert, environment: Mapping[str, str]
) -> Secret | None:
    key = "api_key_env"
    try:
        if expert.api_key_env is not None and expert.api_key_file is not None:
            key = "api_key_file"
            raise SecretError("must not be given together with api_key_env")
        if expert.api_key_env is not None:
            return secret_from_environment(expert.api_key_env, environment)
        if expert.api_key_file is not None:
            key = "api_key_file"
            folder = config.path.resolve().parent
            return secret_from_file(folder / Path(expert.api_key_file).expanduser())
    except SecretError as error:
        config.add((*location, key), str(error))
    return None
