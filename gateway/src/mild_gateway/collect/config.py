"""The experts of ``mild collect``, read from a TOML file.

::

    [experts.small]
    base_url = "http://127.0.0.1:8080/v1"
    model = "small-model"
    api_key_env = "SMALL_KEY"      # the name of a variable; the key itself is never in the file
    price_in = 0.15                # dollars per million tokens
    price_out = 0.60

    [prompts]                      # optional
    numeric = "{query} End with the number."
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pydantic.dataclasses import dataclass as pydantic_dataclass

from mild.errors import OptionError
from mild_gateway.collect.prompts import PROMPTS, Prompts
from mild_gateway.experts.config import read_expert
from mild_gateway.experts.config_file import CONFIG, read_toml
from mild_gateway.experts.expert import Expert

#: What mild collect uses where the file is silent.
COLLECT = {
    "max_tokens": 512,
    "max_in_flight": 4,
    "total_seconds": 120.0,
}


@pydantic_dataclass(config=CONFIG)
class _Content:
    experts: dict[str, Any]
    prompts: Prompts = field(default_factory=Prompts)


@dataclass(frozen=True)
class ExpertFile:
    """Experts in the order of the file, and the prompts they share."""

    experts: list[Expert]
    prompts: Mapping[str, str]


def read_experts(
    path: str | os.PathLike[str],
    environment: Mapping[str, str] = os.environ,
    need_secrets: bool = True,
) -> ExpertFile:
    """Read the experts of ``mild collect`` from a TOML file, their secrets from the environment.

    Without ``need_secrets`` no secret is looked up: enough to plan, not to ask. DataFileError has a
    sentence for every problem, with the line; it never shows a secret.
    """
    config = read_toml(Path(path))
    tables = config.content.get("experts")
    if not isinstance(tables, dict) or not tables:
        config.fail(("experts",), "must name at least one expert: [experts.NAME]; got none")
    content = config.validate(_Content, config.content)
    secrets_from = None
    if need_secrets:
        secrets_from = environment
    experts = []
    for name in tables:
        location = ("experts", name)
        expert = read_expert(config, location, name, secrets_from, defaults=COLLECT)
        if expert is not None:
            experts.append(expert)
    for name, twin in _twins(experts):
        rule = f"must differ from {twin!r} in what it asks; remove one, or set extra.seed"
        config.add(("experts", name), rule)
    config.check()
    prompts = Prompts()
    if content is not None:
        prompts = content.prompts
    return ExpertFile(experts, asdict(prompts))


def find_experts(
    experts: str | os.PathLike[str] | Iterable[Expert],
    names: str | Iterable[str] | None = None,
    need_secrets: bool = True,
) -> ExpertFile:
    """Experts of a file or a list, in the order of ``names``, with the prompts that they share.

    ``names`` is a list, or text with commas; all experts for None.
    """
    if isinstance(experts, str | os.PathLike):
        file = read_experts(experts, need_secrets=need_secrets)
    else:
        file = ExpertFile(list(experts), PROMPTS)
        _check_experts(file.experts)
    if names is None:
        return file
    return replace(file, experts=_experts_by_name(file.experts, names))


def _check_experts(experts: Sequence[object]) -> None:
    """Refuse a list of experts that is empty, holds something else, or asks the same twice."""
    for expert in experts:
        if not isinstance(expert, Expert):
            raise _no_experts()
    if not experts:
        raise _no_experts()
    for name, twin in _twins(cast("Sequence[Expert]", experts)):
        raise OptionError(
            parameter="experts",
            rule=f"must differ in what they ask; {twin!r} and {name!r} do not. Remove one of them.",
        )


def _no_experts() -> OptionError:
    rule = "must be a TOML file, or a list with at least one Expert."
    return OptionError(parameter="experts", rule=rule)


def _experts_by_name(experts: Sequence[Expert], names: str | Iterable[str]) -> list[Expert]:
    """The experts of these names, each once, in the order of the names."""
    by_name = {expert.name: expert for expert in experts}
    if isinstance(names, str):
        names = names.split(",")
    chosen: dict[str, Expert] = {}
    for given_name in names:
        name = given_name.strip()
        if not name:
            continue
        if name not in by_name:
            raise OptionError(f"experts must be among {', '.join(by_name)}; got {name!r}.")
        chosen[name] = by_name[name]
    if not chosen:
        raise OptionError(f"experts must be among {', '.join(by_name)}; got none.")
    return list(chosen.values())


def _twins(experts: Iterable[Expert]) -> Iterator[tuple[str, str]]:
    """Experts that ask what one before them asks: they would share its answers, or pay for them twice."""
    seen: dict[str, str] = {}
    for expert in experts:
        twin = seen.setdefault(json.dumps(expert.request(""), sort_keys=True), expert.name)
        if twin != expert.name:
            yield expert.name, twin
