"""A YAML file of LiteLLM's, with the lines on which things stand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from mild.errors import DataFileError, MissingExtraError

__all__ = ["ENVIRONMENT", "NUMBERS", "PRICES", "read_models"]

Place = tuple[str, ...]

ENVIRONMENT = "os.environ/"
PRICES = ("input_cost_per_token", "output_cost_per_token")
NUMBERS = (
    *PRICES,
    "rpm",
    "timeout",
    "max_retries",
    "max_tokens",
    "max_output_tokens",
    "max_parallel_requests",
)


def read_models(file: Path) -> tuple[dict[str, Any], dict[Place, int], os.stat_result]:
    """Content with ``model_list`` as a table by number, and the lines of what can be refused."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(
            "reading YAML needs PyYAML: pip install 'mild-learn[gateway]'."
        ) from error
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            loader = yaml.SafeLoader(opened.read())
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise DataFileError(f"{file}: it cannot be read: {error.strerror or error}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f", line {mark.line + 1}"
        raise DataFileError(f"{file}{where}: it is not YAML: {error.problem}.") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DataFileError(f"{file}: it is not YAML in UTF-8.") from None
    if not isinstance(content, dict):
        _refuse(file, "must be a table with model_list; is it a config.yaml of LiteLLM?")
    models = content.get("model_list")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        _refuse(file, "must have model_list, a list of models")
    # Keys such as 4 or true are words to us.
    content = {str(key): value for key, value in content.items()}
    content["model_list"] = {
        str(number): _plain(model) for number, model in enumerate(models, start=1)
    }
    return content, _lines(node), status


def _plain(model: dict[Any, Any]) -> dict[str, Any]:
    """A model with text keys, and with numbers where YAML 1.1 reads 1e-6 as text."""
    plain: dict[str, Any] = {str(key): value for key, value in model.items()}
    for table in ("litellm_params", "model_info"):
        found = plain.get(table)
        if not isinstance(found, dict):
            continue
        plain[table] = {str(key): value for key, value in found.items() if value is not None}
        for key in NUMBERS:
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


def _lines(node: Any) -> dict[Place, int]:
    """Lines, from 1, of sections, models, and what stands in a model, three tables deep."""
    lines: dict[Place, int] = {}

    def walk(inner: Any, path: Place, depth: int) -> None:
        for key, value in inner.value if inner.id == "mapping" else ():
            place = (*path, str(key.value))
            lines[place] = key.start_mark.line + 1
            if depth:
                walk(value, place, depth - 1)

    walk(node, (), 0)
    # Of a key that stands twice, the last counts.
    models = [value for key, value in node.value if key.value == "model_list"][-1:]
    for number, model in enumerate(models[0].value if models else (), start=1):
        lines["model_list", str(number)] = model.start_mark.line + 1
        walk(model, ("model_list", str(number)), 2)
    return lines


def _refuse(file: Path, rule: str) -> NoReturn:
    raise DataFileError(f"{file}: it {rule}" + ("" if rule.endswith("?") else "."))
