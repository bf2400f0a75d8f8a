"""LiteLLM's ``config.yaml`` as a ``mild.toml``: endpoints, names of keys, prices and limits.

What cannot be carried over is named in comments. Keys are never written: they stay in the environment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mild.errors import DataFileError
from mild_gateway.experts.config_file import ConfigFile, Location, read_file
from mild_gateway.experts.expert import Expert, is_name
from mild_gateway.experts.prices import MILLION
from mild_gateway.experts.secrets import ENVIRONMENT

# More nodes than any configuration has; aliases of YAML multiply them.
MOST_NODES = 100_000
PRICES = {
    "input_cost_per_token": "price_in",
    "output_cost_per_token": "price_out",
    "cache_read_input_token_cost": "price_cached_in",
    "cache_creation_input_token_cost": "price_cache_write",
}
#: Keys of model_info and what is unsupported by an expert where they are false.
CAPABILITIES = {
    "supports_vision": "images",
    "supports_function_calling": "tools",
    "supports_response_schema": "json_schema",
    "supports_reasoning": "reasoning",
}
#: Keys of model_info and the fields of an expert that they set.
LENGTHS = {
    "max_input_tokens": "context",
    "max_output_tokens": "max_output",
}
#: Keys of litellm_params and the fields of an expert that they set.
FIELDS = {
    "max_tokens": "max_tokens",
    "max_parallel_requests": "max_in_flight",
    "rpm": "requests_per_minute",
    "timeout": "total_seconds",
}
_NUMBERS = (*PRICES, *FIELDS, "max_input_tokens", "max_output_tokens")
# Headers whose values are secrets.
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What people write where a server asks for no key.
_PLACEHOLDERS = ("", "none", "null", "empty", "dummy", "fake", "fake-key", "sk-1234", "not-needed")
_USED = (*PRICES, *FIELDS, "max_output_tokens", "model", "api_base", "base_url", "api_key")
_USED += ("organization", "extra_headers")
_INFO_USED = (*PRICES, *CAPABILITIES, *LENGTHS, "max_tokens", "mode")
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


# Which settings of an expert are read from which table, the later ones over the earlier ones.
_TABLES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("model_info", {"max_tokens": "max_tokens", "max_output_tokens": "max_tokens"}),
    ("model_info", LENGTHS | PRICES),
    ("litellm_params", PRICES | FIELDS),
)


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
    if not slash:
        provider = _provider_of_bare_name(model)
        name = model
    address = None
    if base is not None:
        address = base.rstrip("/")
    if provider in _FOREIGN or (provider == "gemini" and address is not None):
        return (
            f"{provider} has a protocol of its own: give the address of a LiteLLM proxy as api_base"
        )
    if provider == "anthropic" and address is None:
        return Endpoint(_ANTHROPIC[0], name, _ANTHROPIC[1], "anthropic")
    if provider == "anthropic" and slash and address is not None:
        return Endpoint(_with_version(address.removesuffix("/messages")), name, api="anthropic")
    if provider in _OLLAMA:
        return Endpoint(_with_version(address or "http://127.0.0.1:11434"), name)
    if address is not None:
        # A provider's key is sent only to that provider.
        if provider in (*_PUBLIC, *_PRIVATE):
            return Endpoint(address, name)
        return Endpoint(address, model)
    if provider in _PUBLIC:
        url, variable = _PUBLIC[provider]
        return Endpoint(url, name, variable)
    if provider in _PRIVATE:
        return "it has no api_base"
    return "its provider is not known, and it has no api_base"


def _provider_of_bare_name(model: str) -> str:
    """The provider of a model that is named without one; empty if it is not known."""
    for provider, beginnings in _BARE:
        if model.startswith(beginnings):
            return provider
    return ""


def _with_version(address: str) -> str:
    if address.endswith("/v1"):
        return address
    return f"{address}/v1"


def import_litellm(file: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The text of a ``mild.toml`` with the models of LiteLLM's file as experts.

    ``os.environ/NAME`` stands for a variable. Keys stay in their variables, which need not be set; an
    address or another text is written as it is now. DataFileError names every problem with its line.
    """
    config = _read_yaml(file)
    importer = _Importer(config, environment)
    importer.read_models()
    config.check()
    return importer.toml()


@dataclass
class _Importer:
    """The models of one file: a table of settings for each expert, and what could not be carried over."""

    config: ConfigFile
    environment: Mapping[str, str]
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    # Keys that have no counterpart, and the lines of the models that have them.
    unused: dict[str, list[str]] = field(default_factory=dict)

    def read_models(self) -> None:
        for number, model in self.config.content["model_list"].items():
            location = ("model_list", number)
            self._read_model(location, model)
        for section, value in self.config.content.items():
            if section == "model_list":
                continue
            if section == "general_settings" and isinstance(value, dict) and "master_key" in value:
                self._note(
                    (section,), "master_key is left out; create keys with: mild keys add NAME"
                )
            self._note((section,), f"{section} is left out")
        for key, lines in self.unused.items():
            self.notes.append(f"{self.config.path}: {key} is left out ({', '.join(lines)}).")
        if not self.tables and not self.config.problems:
            self.config.add(("model_list",), "must name at least one model that can be asked")

    def toml(self) -> str:
        """The file: notes as comments, then a table for each expert."""
        lines = [f"# Written by: mild import-litellm {self.config.path}"]
        if self.notes:
            lines += ["#", "# What could not be carried over, or must be done by hand:"]
            lines += [f"# - {note}" for note in self.notes]
        lines += ["", "# The folder of your router, from `mild tune`:", '# router = "router"']
        # A name in a note may hold anything; a comment ends with its line.
        lines = [_printable(line) for line in lines]
        for name, settings in self.tables.items():
            lines += ["", f"[experts.{_toml_key(name)}]"]
            for key, value in settings.items():
                lines.append(f"{key} = {_toml_value(value)}")
        return "\n".join(lines) + "\n"

    def _read_model(self, location: Location, entry: dict[str, Any]) -> None:
        """Add the table of one model, or a note why it has none."""
        params = entry.get("litellm_params") or {}
        info = entry.get("model_info") or {}
        if not isinstance(params, dict) or not isinstance(info, dict):
            self.config.add(location, "litellm_params and model_info must be tables")
            return
        inner = (*location, "litellm_params")
        name = self._text((*location, "model_name"), entry.get("model_name"))
        model = self._text((*inner, "model"), params.get("model"))
        if not name or not model:
            self.config.add(location, "must have model_name, and litellm_params with a model")
            return
        base = self._text((*inner, "api_base"), params.get("api_base") or params.get("base_url"))
        reason = _why_left_out(name, model, info)
        endpoint = endpoint_of(model, base)
        if reason is None and isinstance(endpoint, str):
            reason = f"is left out: {endpoint}"
        if reason is not None:
            self._note(location, f"{name} {reason}")
            return
        assert isinstance(endpoint, Endpoint)
        if name in self.tables:
            self._note(location, f"{name} appears twice; its first endpoint is used")
            return
        self._mark_unused(location, params, info)
        settings: dict[str, Any] = {"base_url": endpoint.base_url, "model": endpoint.model}
        if endpoint.api != "openai":
            settings["api"] = endpoint.api
        settings |= self._key(inner, name, params, endpoint)
        settings |= self._headers(inner, name, params, has_key="api_key_env" in settings)
        settings |= self._numbers(params, info)
        unsupported = self._unsupported((*location, "model_info"), info)
        if unsupported:
            settings["unsupported"] = unsupported
        if self._is_valid(location, name, settings):
            self.tables[name] = settings

    def _is_valid(self, location: Location, name: str, settings: dict[str, Any]) -> bool:
        """Whether the settings are those of an expert; problems are noted by LiteLLM's names."""
        if not is_name(name):
            rule = "must have a name of letters, digits and . : / @ + - (up to 100)"
            self.config.add(location, rule)
        names: dict[str, Location] = {
            "base_url": ("litellm_params", "api_base"),
            "headers": ("litellm_params", "extra_headers"),
        }
        model = self.config.content["model_list"][location[1]]
        for table, fields in _TABLES:
            for key, setting in fields.items():
                if key in (model.get(table) or {}):
                    names[setting] = (table, key)
        return self.config.validate(Expert, {**settings, "name": name}, location, names) is not None

    def _numbers(self, params: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        """Prices, limits, times and capabilities; those of the endpoint win over those of the model."""
        settings: dict[str, Any] = {}
        values_of = {"model_info": info, "litellm_params": params}
        for table, fields in _TABLES:
            values = values_of[table]
            for key, setting in fields.items():
                if key not in values:
                    continue
                value = values[key]
                if key in PRICES and type(value) in (int, float):
                    # Rounded: a millionth has no exact float.
                    value = round(value * MILLION, 9)
                settings[setting] = value
        return settings

    def _key(
        self, location: Location, name: str, params: dict[str, Any], endpoint: Endpoint
    ) -> dict[str, Any]:
        """The setting that names the variable of the key; empty if none is needed."""
        location = (*location, "api_key")
        value = params.get("api_key")
        if value is None:
            if endpoint.variable is None:
                return {}
            return {"api_key_env": endpoint.variable}
        if not isinstance(value, str):
            self.config.add(location, "must be text in quotes")
            return {}
        if value.strip().lower() in _PLACEHOLDERS:
            return {}
        if value.startswith(ENVIRONMENT):
            variable = self._variable(location, value)
            if variable is None:
                return {}
            return {"api_key_env": variable}
        variable = _variable_for(name)
        text = f"the key of {name} is written in that file: put it into the variable {variable}"
        self._note(location, text)
        return {"api_key_env": variable}

    def _unsupported(self, location: Location, info: dict[str, Any]) -> list[str]:
        """What a model's information says that it does not support."""
        unsupported = []
        for key, capability in CAPABILITIES.items():
            is_supported = info.get(key)
            if is_supported is False:
                unsupported.append(capability)
            elif is_supported is not None and is_supported is not True:
                self.config.add((*location, key), "must be true or false")
        return unsupported

    def _headers(
        self, location: Location, name: str, params: dict[str, Any], has_key: bool
    ) -> dict[str, Any]:
        """Headers that are no secrets; one that is becomes the key of an expert that has no other."""
        settings: dict[str, Any] = {}
        headers: dict[str, Any] = {}
        organization = self._text((*location, "organization"), params.get("organization"))
        if organization:
            headers["OpenAI-Organization"] = organization
        extra_headers = params.get("extra_headers") or {}
        if not isinstance(extra_headers, dict):
            self.config.add((*location, "extra_headers"), "must be a table")
            return {}
        for header, value in extra_headers.items():
            header = str(header)
            inner = (*location, "extra_headers", header)
            if not _SECRET_HEADER.search(header):
                headers[header] = self._text(inner, value)
            elif _can_be_key(header, value) and not has_key:
                settings["api_key_env"] = self._variable(inner, value)
                settings["api_key_header"] = header
                has_key = True
            else:
                advice = "name a variable with api_key_env, and the header with api_key_header"
                self._note(
                    inner, f"the header {header} of {name} is a secret and is left out: {advice}"
                )
        if headers:
            settings["headers"] = headers
        return settings

    def _text(self, location: Location, value: Any) -> str | None:
        """Text, or the value of the variable that it names."""
        if value is None:
            return None
        if not isinstance(value, str):
            self.config.add(location, "must be text in quotes")
            return None
        if not value.startswith(ENVIRONMENT):
            return value
        variable = self._variable(location, value)
        if variable is None:
            return None
        if not self.environment.get(variable):
            self.config.add(location, "names an environment variable that is not set")
        return self.environment.get(variable)

    def _variable(self, location: Location, value: str) -> str | None:
        variable = value.removeprefix(ENVIRONMENT)
        if _VARIABLE.fullmatch(variable):
            return variable
        self.config.add(location, "must name an environment variable: os.environ/NAME")
        return None

    def _mark_unused(
        self, location: Location, params: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        line = self.config.file_and_line(location).rpartition(", ")[2]
        for table, values, used in (
            ("litellm_params", params, _USED),
            ("model_info", info, (*_INFO_USED, *_INFO_QUIET)),
        ):
            for key in values:
                if key not in used and not key.startswith("supports_"):
                    self.unused.setdefault(f"{table}.{key}", []).append(line)

    def _note(self, location: Location, text: str) -> None:
        self.notes.append(f"{self.config.file_and_line(location)}: {text}.")


def _why_left_out(name: str, model: str, info: Mapping[str, Any]) -> str | None:
    """Why a model is no expert, as the end of a sentence; None if it may be one."""
    if "*" in name or "*" in model:
        return "is a pattern for many models and is left out"
    mode = info.get("mode")
    if mode is not None and mode not in _MODES:
        return f"does not answer with text ({mode}) and is left out"
    return None


def _can_be_key(header: str, value: Any) -> bool:
    """Whether ``api_key_env`` with ``api_key_header`` says the same; to Authorization mild adds a word."""
    if header.lower() == "authorization" or not isinstance(value, str):
        return False
    return value.startswith(ENVIRONMENT)


def _variable_for(name: str) -> str:
    """A variable for the key of an expert.

    >>> _variable_for("gpt-4o"), _variable_for("4x")
    ('GPT_4O_API_KEY', 'MODEL_4X_API_KEY')
    """
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).upper()
    if not words[:1].isalpha():
        words = f"MODEL_{words}"
    return f"{words}_API_KEY"


def _printable(line: str) -> str:
    """A line with a space for each character that cannot be printed."""
    characters = []
    for character in line:
        if not character.isprintable():
            character = " "
        characters.append(character)
    return "".join(characters)


def _toml_key(key: str) -> str:
    if _BARE_KEY.fullmatch(key):
        return key
    return _toml_value(key)


def _toml_value(value: Any) -> str:
    """A value as TOML writes it.

    >>> _toml_value({"x-team": "blue"}), _toml_value(True), _toml_value(2.5)
    ('{ x-team = "blue" }', 'true', '2.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        pairs = [f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    # A string of JSON is one of TOML, but for this character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def _read_yaml(file: Path) -> ConfigFile:
    """Content with ``model_list`` as a table by number, with the lines of what can be refused."""
    text = read_file(file)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        is_small = node is None or _size(node, {}) <= MOST_NODES
        content = None
        if node is not None and is_small:
            content = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        where = ""
        if error.problem_mark is not None:
            where = f", line {error.problem_mark.line + 1}"
        raise DataFileError(f"{file}{where}: it is not YAML: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DataFileError(f"{file}: it is not YAML in UTF-8, or nested too deeply.") from None
    if not is_small:
        raise DataFileError(f"{file}: it must have at most {MOST_NODES:,} values.")
    if not isinstance(content, dict):
        content = {}
    models = content.get("model_list")
    if not isinstance(models, list):
        raise DataFileError(
            f"{file}: it must have model_list, a list of models; is it a config.yaml of LiteLLM?"
        )
    for number, model in enumerate(models, 1):
        if not isinstance(model, dict):
            raise DataFileError(
                f"{file}: each entry of model_list must be a mapping with model_name and litellm_params; "
                f"entry {number} is none."
            )
    # Keys such as 4 or true are words to us.
    plain = {str(key): value for key, value in content.items()}
    plain["model_list"] = {}
    for number, model in enumerate(models, 1):
        plain["model_list"][str(number)] = _model_fields(model)
    return ConfigFile(file, plain, _lines(node))


def _size(node: Any, known: dict[int, float]) -> float:
    """Number of nodes with every alias written out; infinite where one contains itself."""
    if id(node) not in known:
        known[id(node)] = float("inf")
        children: list[Any] = []
        if node.id == "sequence":
            children = node.value
        elif node.id == "mapping":
            for key, value in node.value:
                children += [key, value]
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]


def _model_fields(model: dict[Any, Any]) -> dict[str, Any]:
    """A model with text keys, and with numbers where YAML 1.1 reads 1e-6 as text."""
    plain: dict[str, Any] = {str(key): value for key, value in model.items()}
    for table in ("litellm_params", "model_info"):
        fields = plain.get(table)
        if not isinstance(fields, dict):
            continue
        plain[table] = {str(key): value for key, value in fields.items() if value is not None}
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
    if value.is_integer() and "." not in text:
        return int(value)
    return value


def _lines(node: Any, path: Location = ()) -> dict[Location, int]:
    """Lines, from 1, of sections, models, and what stands in a model, three tables deep."""
    # Name of a child, the node that it starts with, and the node of its value.
    children: list[tuple[str, Any, Any]] = []
    if node.id == "mapping":
        for key, value in node.value:
            children.append((str(key.value), key, value))
    elif node.id == "sequence":
        for number, value in enumerate(node.value, 1):
            children.append((str(number), value, value))
    lines: dict[Location, int] = {}
    for name, start, value in children:
        lines[*path, name] = start.start_mark.line + 1
        if len(path) < 4:
            lines |= _lines(value, (*path, name))
    return lines
