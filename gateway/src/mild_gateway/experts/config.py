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


def read_expert(
    config: ConfigFile,
    location: tuple[str, ...],
    name: str,
    environment: Mapping[str, str] | None,
    defaults: Mapping[str, Any] | None = None,
) -> Expert | None:
    """One table as an expert, None where problems were noted.

    ``defaults`` give what the table leaves out; without an environment no secret is read.
    """
    table = config.content
    for key in location:
        table = table[key]
    if not isinstance(table, dict):
        config.add(location, "must be a table")
        return None
    n_problems_before = len(config.problems)
    if not is_name(name):
        config.add(location, "must have a name of letters, digits and . : / @ + - (up to 100)")
    _check_endpoint(config, location, table)
    settings = _without_refused_keys(config, location, table)
    for key, value in (defaults or {}).items():
        settings.setdefault(key, value)
    settings["name"] = name
    settings["defined_at"] = config.file_and_line(location)
    expert = config.validate(Expert, settings, location)
    if expert is not None and expert.embeddings and expert.api == "anthropic":
        config.add((*location, "embeddings"), "must not be true: Anthropic's API has no embeddings")
    if expert is None or len(config.problems) > n_problems_before or environment is None:
        return expert
    secret = _secret(config, location, expert, environment)
    if secret is None:
        return expert
    return dataclasses.replace(expert, secret=secret)


def _without_refused_keys(
    config: ConfigFile, location: tuple[str, ...], table: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a table; secrets in it and keys that only mild sets are noted as problems."""
    settings = dict(table)
    if "api_key" in settings:
        del settings["api_key"]
        config.add(
            (*location, "api_key"),
            "must not be written in this file; name an environment variable, "
            'api_key_env = "NAME", or a file with mode 0600, api_key_file = "PATH"',
        )
    for key in settings.keys() & Expert.internal:
        del settings[key]
        config.add((*location, key), "is unknown")
    headers = settings.get("headers")
    if isinstance(headers, dict):
        for header in filter(is_secret_header, headers):
            config.add(
                (*location, "headers", header),
                f'must not be written in this file; use api_key_env with api_key_header = "{header}"',
            )
    return settings


def _check_endpoint(config: ConfigFile, location: tuple[str, ...], table: dict[str, Any]) -> None:
    """Refuse a table that does not say where its expert is asked."""
    if not table.get("base_url"):
        rule = 'must have an address: base_url = "https://api.example.com/v1"'
        config.add(location, rule)
    if not table.get("model"):
        rule = 'must have a model: the name that the endpoint knows, model = "NAME"'
        config.add(location, rule)


def _secret(
    config: ConfigFile, location: tuple[str, ...], expert: Expert, environment: Mapping[str, str]
) -> Secret | None:
    key = "api_key_env"
    if expert.api_key_file is not None:
        key = "api_key_file"
    try:
        if expert.api_key_env is not None and expert.api_key_file is not None:
            raise SecretError("must not be given together with api_key_env")
        if expert.api_key_env is not None:
            return secret_from_environment(expert.api_key_env, environment)
        if expert.api_key_file is not None:
            folder = config.path.resolve().parent
            return secret_from_file(folder / Path(expert.api_key_file).expanduser())
    except SecretError as error:
        config.add((*location, key), str(error))
    return None
