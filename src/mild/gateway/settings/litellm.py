"""LiteLLM's ``config.yaml``, read as it is: endpoints, keys, prices and limits.

What mild has no use for is told in notes, never refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mild.endpoints.toml import Checker
from mild.gateway.settings.experts import (
    check_name,
    header_problem,
    is_secret_header,
    url_problem,
)
from mild.gateway.settings.kinds import MILLION, ExpertSettings
from mild.gateway.settings.providers import Endpoint, endpoint_of
from mild.gateway.settings.secrets import (
    Secret,
    SecretError,
    check_safe_file,
    secret_from_environment,
)
from mild.gateway.settings.yaml_file import ENVIRONMENT, NUMBERS, PRICES, read_models

__all__ = ["read_litellm"]

Place = tuple[str, ...]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What people write where a server asks for no key.
_PLACEHOLDERS = ("", "none", "null", "empty", "dummy", "fake", "fake-key", "sk-1234", "not-needed")
_USED = (*NUMBERS, "model", "api_base", "base_url", "api_key", "organization", "extra_headers")
_INFO_USED = (*PRICES, "max_tokens", "max_output_tokens", "mode")
# Of model_info: words about a model that nobody expects to have an effect.
_INFO_QUIET = ("id", "base_model", "description", "metadata", "db_model", "created_at")
_MODES = ("chat", "completion", "responses")


def read_litellm(
    file: Path, environment: Mapping[str, str]
) -> tuple[tuple[ExpertSettings, ...], tuple[str, ...]]:
    """Experts of the file, in its order, and notes on what was left out."""
    content, lines, status = read_models(file)
    reader = _Reader(file, content, lines, status, environment)
    experts = reader.experts()
    return experts, tuple(reader.notes)


class _Reader:
    """One file, asked model by model."""

    def __init__(
        self,
        file: Path,
        content: dict[str, Any],
        lines: dict[Place, int],
        status: os.stat_result,
        environment: Mapping[str, str],
    ) -> None:
        self.notes: list[str] = []
        self._file = file
        self._content = content
        self._status = status
        self._environment = environment
        self._checker = Checker(str(file), content, lines)
        self._unused: dict[str, list[str]] = {}

    def experts(self) -> tuple[ExpertSettings, ...]:
        models = self._checker.table(("model_list",))
        found: dict[str, ExpertSettings] = {}
        for number in models:
            place = ("model_list", number)
            expert = self._expert(place)
            if expert is None:
                continue
            if expert.name in found:
                self._note(place, f"{expert.name} is named before; the first endpoint is taken")
                continue
            found[expert.name] = expert
        for key in self._content:
            if key == "general_settings" and "master_key" in self._checker.table((key,)):
                self._note((key,), "master_key is not read; make keys with: mild keys add NAME")
            if key != "model_list":
                self._note((key,), f"{key} is not used")
        for key, places in self._unused.items():
            self.notes.append(f"{self._file}: {key} is not used ({', '.join(places)}).")
        if not found:
            self._checker.fail(("model_list",), "must name at least one model that can be asked")
        return tuple(found.values())

    def _expert(self, place: Place) -> ExpertSettings | None:
        name = self._text((*place, "model_name"))
        params = (*place, "litellm_params")
        model = self._text((*params, "model"))
        if not name or not model:
            self._checker.fail(place, "must have model_name, and litellm_params with a model")
        if "*" in name or "*" in model:
            self._note(place, f"{name} stands for many models and is left out")
            return None
        mode = self._checker.value((*place, "model_info", "mode"))
        if mode is not None and mode not in _MODES:
            self._note(place, f"{name} does not answer in words ({mode}) and is left out")
            return None
        base = self._text((*params, "api_base")) or self._text((*params, "base_url"))
        endpoint = endpoint_of(model, base)
        if isinstance(endpoint, str):
            self._note(place, f"{name} is left out: {endpoint}")
            return None
        check_name(self._checker, place, name)
        if problem := url_problem(endpoint.base_url):
            self._checker.fail((*params, "api_base"), problem)
        self._mark_unused(place)
        return ExpertSettings(
            name=name,
            base_url=endpoint.base_url,
            model=endpoint.model,
            secret=self._secret((*params, "api_key"), endpoint),
            headers=MappingProxyType(self._headers(params)),
            place=self._checker.place(place),
            **self._values(place),
        )

    def _values(self, place: Place) -> dict[str, Any]:
        """Prices, limits and times; those of the endpoint come before those of the model."""
        params, info = (*place, "litellm_params"), (*place, "model_info")
        checker = self._checker
        values: dict[str, Any] = {}
        for key, price in zip(PRICES, ("price_in", "price_out"), strict=True):
            dollars = checker.number((*params, key), checker.number((*info, key), None))
            if dollars is not None:
                # Rounded: a millionth has no exact place in a float.
                values[price] = round(dollars * MILLION, 9)
        for key in ("max_output_tokens", "max_tokens"):
            if checker.value((*info, key)) is not None:
                values["max_tokens"] = checker.whole((*info, key), 0, least=1)
                break
        for key, field, least in (
            ("max_tokens", "max_tokens", 1),
            ("max_parallel_requests", "max_in_flight", 1),
            ("max_retries", "retries", 0),
        ):
            if checker.value((*params, key)) is not None:
                values[field] = checker.whole((*params, key), 0, least=least)
        for key, field in (("rpm", "requests_per_minute"), ("timeout", "first_byte_seconds")):
            if checker.value((*params, key)) is not None:
                values[field] = checker.number((*params, key), 0.0, above_zero=True)
        return values

    def _secret(self, place: Place, endpoint: Endpoint) -> Secret | None:
        value = self._checker.text(place, None)
        try:
            if value is None:
                usual = endpoint.variable
                return secret_from_environment(usual, self._environment) if usual else None
            if value.startswith(ENVIRONMENT):
                return secret_from_environment(self._variable(place, value), self._environment)
            if value.strip().lower() in _PLACEHOLDERS:
                return None
        except SecretError as problem:
            if value is None:
                self._checker.fail(
                    place[:-1], f"must have an api_key, or the variable {endpoint.variable} be set"
                )
            self._checker.fail(place, str(problem))
        self._refuse_unsafe(place)
        return Secret(value.strip(), f"the file {self._file}")

    def _refuse_unsafe(self, place: Place) -> None:
        """A secret in plain text needs a file that others cannot read."""
        try:
            check_safe_file(self._status, "stands in this file")
        except SecretError as problem:
            self._checker.fail(place, f"{problem}, or write os.environ/NAME instead")

    def _headers(self, params: Place) -> dict[str, str]:
        headers = {}
        organization = self._text((*params, "organization"))
        if organization:
            headers["OpenAI-Organization"] = organization
        for name, value in self._checker.table((*params, "extra_headers")).items():
            place = (*params, "extra_headers", name)
            text = self._text(place)
            if problem := header_problem(name, text):
                self._checker.fail(place, problem)
            if is_secret_header(name) and text == value:
                self._refuse_unsafe(place)
            headers[name] = text or ""
        return headers

    def _text(self, place: Place) -> str | None:
        """Text, or the variable that it names."""
        value = self._checker.text(place, None)
        if value is None or not value.startswith(ENVIRONMENT):
            return value
        found = self._environment.get(self._variable(place, value))
        if not found:
            self._checker.fail(place, "names an environment variable that is not set")
        return found

    def _variable(self, place: Place, value: str) -> str:
        name = value.removeprefix(ENVIRONMENT)
        if not _VARIABLE.fullmatch(name):
            self._checker.fail(place, "must name an environment variable: os.environ/NAME")
        return name

    def _mark_unused(self, place: Place) -> None:
        line = self._checker.place(place).rpartition(", ")[2]
        for table, used in (
            ("litellm_params", _USED),
            ("model_info", (*_INFO_USED, *_INFO_QUIET)),
        ):
            for key in self._checker.table((*place, table)):
                if key not in used and not key.startswith("supports_"):
                    self._unused.setdefault(f"{table}.{key}", []).append(line)

    def _note(self, place: Place, text: str) -> None:
        self.notes.append(f"{self._checker.place(place)}: {text}.")
