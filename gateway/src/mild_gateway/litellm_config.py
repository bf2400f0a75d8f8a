"""LiteLLM's ``config.yaml``, read as it is: endpoints, keys, prices and limits.

What mild does not use is told in notes, never refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mild.errors import DataFileError
from mild_gateway.experts.config_file import ConfigFile, Location, read_file
from mild_gateway.experts.expert import Expert, is_name, is_secret_header
from mild_gateway.experts.prices import MILLION
from mild_gateway.experts.secrets import (
    ENVIRONMENT,
    Secret,
    SecretError,
    check_safe_file,
    secret_from_environment,
)

# More nodes than any configuration has; aliases of YAML multiply them.
MOST_NODES = 100_000
PRICES = {
    "input_cost_per_token": "price_in",
    "output_cost_per_token": "price_out",
    "cache_read_input_token_cost": "price_cached_in",
}
#: Keys of model_info and the fields of an expert that they set.
CAPABILITIES = {
    "supports_vision": "vision",
    "supports_function_calling": "tools",
    "supports_response_schema": "json_schema",
    "supports_reasoning": "reasoning",
    "max_input_tokens": "context",
    "max_output_tokens": "max_output",
}
#: Keys of litellm_params and the fields of an expert that they set.
FIELDS = {
    "max_tokens": "max_tokens",
    "max_parallel_requests": "max_in_flight",
    "max_retries": "retries",
    "rpm": "requests_per_minute",
    "timeout": "first_byte_seconds",
}
_NUMBERS = (*PRICES, *FIELDS, "max_input_tokens", "max_output_tokens")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What people write where a server asks for no key.
_PLACEHOLDERS = ("", "none", "null", "empty", "dummy", "fake", "fake-key", "sk-1234", "not-needed")
_USED = (*PRICES, *FIELDS, "max_output_tokens", "model", "api_base", "base_url", "api_key")
_USED += ("organization", "extra_headers")
_INFO_USED = (*PRICES, *CAPABILITIES, "max_tokens", "mode")
# Of model_info: words about a model that nobody expects to have an effect.
_INFO_QUIET = ("id", "base_model", "description", "metadata", "db_model", "created_at")
_MODES = ("chat", "completion", "responses")

# Address and variable of the key, by LiteLLM's names of providers.
_PUBLIC = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "text-completion-openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": ("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": ("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "together_ai": ("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "openrouter": ("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "xai": ("https://api.x.ai/v1", "XAI_API_KEY"),
    "fireworks_ai": ("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "perplexity": ("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY"),
    "cerebras": ("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    # At its own address it speaks OpenAI's protocol too; at another one LiteLLM means Gemini's.
    "gemini": ("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
}
_ANTHROPIC = ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY")
# Servers that people run themselves.
_PRIVATE = (
    "hosted_vllm", "vllm", "custom_openai", "openai_like", "lm_studio", "llamafile", "litellm_proxy",
)  # fmt: skip
_OLLAMA = ("ollama", "ollama_chat")
_FOREIGN = (
    "azure", "azure_ai", "azure_text", "bedrock", "cloudflare", "cohere", "cohere_chat", "databricks",
    "huggingface", "oobabooga", "predibase", "replicate", "sagemaker", "sagemaker_chat", "snowflake",
    "triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text",
)  # fmt: skip
_BARE = (("openai", ("gpt-", "o1", "o3", "o4", "chatgpt-")), ("anthropic", ("claude-",)))


@dataclass(frozen=True)
class Endpoint:
    """Where a model is asked: address, its name there, the usual variable of the key, and the API."""

    base_url: str
    model: str
    variable: str | None = None
    api: str = "openai"


def endpoint_of(model: str, base: str | None) -> Endpoint | str:
    """The endpoint of LiteLLM's ``model`` and ``api_base``, or why there is none.

    >>> endpoint_of("openai/gpt-4o", None)
    Endpoint(base_url='https://api.openai.com/v1', model='gpt-4o', variable='OPENAI_API_KEY', api='openai')
    >>> endpoint_of("openai/facebook/opt-125m", "http://127.0.0.1:8000/v1/").base_url
    'http://127.0.0.1:8000/v1'
    >>> endpoint_of("anthropic/claude-sonnet-4-5", "http://127.0.0.1:8000").base_url
    'http://127.0.0.1:8000/v1'
    >>> endpoint_of("bedrock/titan", None)
    'bedrock has a protocol of its own: give the address of a LiteLLM proxy as api_base'
    """
    provider, slash, name = model.partition("/")
    address = None if base is None else base.rstrip("/")
    if not slash:
        provider = next((name for name, starts in _BARE if model.startswith(starts)), "")
        name = model
    if provider in _FOREIGN or (provider == "gemini" and address is not None):
        return (
            f"{provider} has a protocol of its own: give the address of a LiteLLM proxy as api_base"
        )
    if provider == "anthropic" and (slash or address is None):
        if address is None:
            return Endpoint(_ANTHROPIC[0], name, _ANTHROPIC[1], "anthropic")
        address = address.removesuffix("/messages")
        address = address if address.endswith("/v1") else f"{address}/v1"
        return Endpoint(address, name, api="anthropic")
    if provider in _OLLAMA:
        address = address or "http://127.0.0.1:11434"
        return Endpoint(address if address.endswith("/v1") else f"{address}/v1", name)
    if address is not None:
        # A provider's key is sent only to that provider.
        return Endpoint(address, name if provider in (*_PUBLIC, *_PRIVATE) else model)
    if provider in _PUBLIC:
        url, variable = _PUBLIC[provider]
        return Endpoint(url, name, variable)
    known = "" if provider in _PRIVATE else "its provider is not known, and "
    return f"{known}it has no api_base"


def read_litellm(
    file: Path, environment: Mapping[str, str]
) -> tuple[tuple[Expert, ...], tuple[str, ...]]:
    """Experts of the file, in its order, and notes on what was left out."""
    config, status = _read_yaml(file)
    reader = _Reader(config, status, environment)
    experts = reader.experts()
    config.check()
    return experts, tuple(reader.notes)


class _Reader:
    """The models of one file."""

    def __init__(
        self, config: ConfigFile, status: os.stat_result, environment: Mapping[str, str]
    ) -> None:
        self.config, self.status, self.environment = config, status, environment
        self.notes: list[str] = []
        self.unused: dict[str, list[str]] = {}

    def experts(self) -> tuple[Expert, ...]:
        found: dict[str, Expert] = {}
        for number, model in self.config.content["model_list"].items():
            location = ("model_list", number)
            expert = self._expert(location, model)
            if expert is None:
                continue
            if expert.name in found:
                self._note(location, f"{expert.name} appears twice; its first endpoint is used")
                continue
            found[expert.name] = expert
        for key, value in self.config.content.items():
            if key == "general_settings" and isinstance(value, dict) and "master_key" in value:
                self._note((key,), "master_key is not read; create keys with: mild keys add NAME")
            if key != "model_list":
                self._note((key,), f"{key} is not used")
        for key, places in self.unused.items():
            self.notes.append(f"{self.config.path}: {key} is not used ({', '.join(places)}).")
        if not found and not self.config.problems:
            self.config.add(("model_list",), "must name at least one model that can be asked")
        return tuple(found.values())

    def _expert(self, location: Location, entry: dict[str, Any]) -> Expert | None:
        params, info = entry.get("litellm_params") or {}, entry.get("model_info") or {}
        if not isinstance(params, dict) or not isinstance(info, dict):
            self.config.add(location, "litellm_params and model_info must be tables")
            return None
        inner = (*location, "litellm_params")
        name = self._text((*location, "model_name"), entry.get("model_name"))
        model = self._text((*inner, "model"), params.get("model"))
        if not name or not model:
            self.config.add(location, "must have model_name, and litellm_params with a model")
            return None
        if "*" in name or "*" in model:
            self._note(location, f"{name} is a pattern for many models and is left out")
            return None
        mode = info.get("mode")
        if mode is not None and mode not in _MODES:
            self._note(location, f"{name} does not answer with text ({mode}) and is left out")
            return None
        base = self._text((*inner, "api_base"), params.get("api_base") or params.get("base_url"))
        endpoint = endpoint_of(model, base)
        if isinstance(endpoint, str):
            self._note(location, f"{name} is left out: {endpoint}")
            return None
        if not is_name(name):
            rule = "must have a name of letters, digits and . : / @ + - (up to 100)"
            self.config.add(location, rule)
        self._mark_unused(location, params, info)
        data, names = self._numbers(params, info)
        data |= {
            "name": name,
            "base_url": endpoint.base_url,
            "model": endpoint.model,
            "api": endpoint.api,
            "secret": self._secret((*inner, "api_key"), params.get("api_key"), endpoint),
            "headers": self._headers(inner, params),
            "place": self.config.place(location),
        }
        names |= {
            "base_url": ("litellm_params", "api_base"),
            "headers": ("litellm_params", "extra_headers"),
        }
        return self.config.validate(Expert, data, location, names)

    def _numbers(
        self, params: dict[str, Any], info: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Location]]:
        """Prices, limits, times and capabilities, and their keys; the endpoint's win over the model's."""
        limits = {"max_tokens": "max_tokens", "max_output_tokens": "max_tokens"}
        data: dict[str, Any] = {}
        names: dict[str, Location] = {}
        for table, values, fields in (
            ("model_info", info, limits),
            ("model_info", info, CAPABILITIES | PRICES),
            ("litellm_params", params, PRICES | FIELDS),
        ):
            for key, field in fields.items():
                if key in values:
                    value = values[key]
                    if key in PRICES and type(value) in (int, float):
                        # Rounded: a millionth has no exact float.
                        value = round(value * MILLION, 9)
                    data[field], names[field] = value, (table, key)
        return data, names

    def _secret(self, location: Location, value: Any, endpoint: Endpoint) -> Secret | None:
        try:
            if value is None:
                usual = endpoint.variable
                return secret_from_environment(usual, self.environment) if usual else None
            if not isinstance(value, str):
                raise SecretError("must be text in quotes")
            if value.startswith(ENVIRONMENT):
                name = self._variable(location, value)
                return secret_from_environment(name, self.environment) if name else None
            if value.strip().lower() in _PLACEHOLDERS:
                return None
            check_safe_file(self.status, "is written in this file")
            return Secret(value.strip(), f"the file {self.config.path}")
        except SecretError as error:
            if value is None:
                rule = f"must have an api_key, or the variable {endpoint.variable} must be set"
                self.config.add(location[:-1], rule)
            elif isinstance(value, str) and not value.startswith(ENVIRONMENT):
                self.config.add(location, f"{error}, or write os.environ/NAME instead")
            else:
                self.config.add(location, str(error))
        return None

    def _headers(self, location: Location, params: dict[str, Any]) -> dict[str, Any]:
        headers: dict[str, Any] = {}
        if organization := self._text((*location, "organization"), params.get("organization")):
            headers["OpenAI-Organization"] = organization
        extra = params.get("extra_headers") or {}
        for name, value in extra.items() if isinstance(extra, dict) else ():
            inner = (*location, "extra_headers", str(name))
            headers[str(name)] = self._text(inner, value)
            if is_secret_header(str(name)) and headers[str(name)] == value:
                try:
                    check_safe_file(self.status, "is written in this file")
                except SecretError as error:
                    self.config.add(inner, f"{error}, or write os.environ/NAME instead")
        return headers

    def _text(self, location: Location, value: Any) -> str | None:
        """Text, or the variable that it names."""
        if value is not None and not isinstance(value, str):
            self.config.add(location, "must be text in quotes")
            return None
        if value is None or not value.startswith(ENVIRONMENT):
            return value
        name = self._variable(location, value)
        found = self.environment.get(name) if name else None
        if name and not found:
            self.config.add(location, "names an environment variable that is not set")
        return found

    def _variable(self, location: Location, value: str) -> str | None:
        name = value.removeprefix(ENVIRONMENT)
        if _VARIABLE.fullmatch(name):
            return name
        self.config.add(location, "must name an environment variable: os.environ/NAME")
        return None

    def _mark_unused(
        self, location: Location, params: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        line = self.config.place(location).rpartition(", ")[2]
        for table, values, used in (
            ("litellm_params", params, _USED),
            ("model_info", info, (*_INFO_USED, *_INFO_QUIET)),
        ):
            for key in values:
                if key not in used and not key.startswith("supports_"):
                    self.unused.setdefault(f"{table}.{key}", []).append(line)

    def _note(self, location: Location, text: str) -> None:
        self.notes.append(f"{self.config.place(location)}: {text}.")


def _read_yaml(file: Path) -> tuple[ConfigFile, os.stat_result]:
    """Content with ``model_list`` as a table by number, with the lines of what can be refused."""
    text, status = read_file(file)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        is_small = node is None or _size(node, {}) <= MOST_NODES
        content = loader.construct_document(node) if node is not None and is_small else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        raise DataFileError(f"{file}{where}: it is not YAML: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DataFileError(f"{file}: it is not YAML in UTF-8, or nested too deeply.") from None
    if not is_small:
        raise DataFileError(f"{file}: it must have at most {MOST_NODES:,} values.")
    content = content if isinstance(content, dict) else {}
    models = content.get("model_list")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise DataFileError(
            f"{file}: it must have model_list, a list of models; is it a config.yaml of LiteLLM?"
        )
    # Keys such as 4 or true are words to us.
    plain = {str(key): value for key, value in content.items()}
    plain["model_list"] = {
        str(number): _model_fields(model) for number, model in enumerate(models, 1)
    }
    return ConfigFile(file, plain, _lines(node)), status


def _size(node: Any, known: dict[int, float]) -> float:
    """Number of nodes with every alias written out; infinite where one contains itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")
        inner = [] if node.id == "scalar" else node.value
        if node.id == "mapping":
            inner = [child for pair in inner for child in pair]
        known[id(node)] = 1 + sum(_size(child, known) for child in inner)
    return known[id(node)]


def _model_fields(model: dict[Any, Any]) -> dict[str, Any]:
    """A model with text keys, and with numbers where YAML 1.1 reads 1e-6 as text."""
    plain: dict[str, Any] = {str(key): value for key, value in model.items()}
    for table in ("litellm_params", "model_info"):
        found = plain.get(table)
        if not isinstance(found, dict):
            continue
        plain[table] = {str(key): value for key, value in found.items() if value is not None}
        for key in _NUMBERS:
            value = plain[table].get(key)
            if isinstance(value, str) and not value.startswith(ENVIRONMENT):
                plain[table][key] = _number(value)
    return plain


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() and "." not in text else value


def _lines(node: Any, path: Location = ()) -> dict[Location, int]:
    """Lines, from 1, of sections, models, and what stands in a model, three tables deep."""
    children = []
    if node.id == "mapping":
        children = [(str(key.value), key, value) for key, value in node.value]
    elif node.id == "sequence":
        children = [(str(number), value, value) for number, value in enumerate(node.value, 1)]
    lines: dict[Location, int] = {}
    for name, start, value in children:
        lines[*path, name] = start.start_mark.line + 1
        if len(path) < 4:
            lines |= _lines(value, (*path, name))
    return lines
