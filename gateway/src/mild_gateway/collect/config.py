"""The experts of ``mild collect``, read from a TOML file.

::

    [experts.small]
    base_url = "http://127.0.0.1:8080/v1"
    model = "small-model"
    api_key_env = "SMALL_KEY"      # the name of a variable; the key itself is never in the file
    price_in = 0.15                # dollars per million tokens
    price_out = 0.60

    [experts.rules]
    command = "python rules.py"    # reads the query on stdin, answers on stdout
    price_per_query = 0.0001

    [prompts]                      # optional
    numeric = "{query} End with the number."
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

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
    "connect_seconds": 10.0,
    "total_seconds": 120.0,
    "retries": 5,
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
    found = config.validate(_Content, config.content)
    experts = []
    for name in tables:
        given = environment if need_secrets else None
        expert = read_expert(config, ("experts", name), name, given, defaults=COLLECT)
        if expert is not None:
            experts.append(expert)
    for name, twin in _twins(experts):
        rule = f"must differ from {twin!r} in what it asks; remove one, or set extra.seed"
        config.add(("experts", name), rule)
    config.check()
    return ExpertFile(experts, asdict(found.prompts if found else Prompts()))


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
        if not all(isinstance(expert, Expert) for expert in file.experts) or not file.experts:
            raise OptionError(
                parameter="experts", rule="must be a TOML file, or a list with at least one Expert."
            )
        for name, twin in _twins(file.experts):
            raise OptionError(
                parameter="experts",
                rule=f"must differ in what they ask; {twin!r} and {name!r} do not. Remove one of them.",
            )
    if names is None:
        return file
    known = {expert.name: expert for expert in file.experts}
    given = names.split(",") if isinstance(names, str) else list(names)
    wanted = [name.strip() for name in given if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        got = unknown[0] if unknown else names
        raise OptionError(f"experts must be among {', '.join(known)}; got {got!r}.")
    return replace(file, experts=[known[name] for name in dict.fromkeys(wanted)])


def _twins(experts: Iterable[Expert]) -> Iterator[tuple[str, str]]:
    """Experts that ask what one before them asks: they would share its answers, or pay for them twice."""
    seen: dict[str, str] = {}
    for expert in experts:
        twin = seen.setdefault(json.dumps(expert.request(""), sort_keys=True), expert.name)
        if twin != expert.name:
            yield expert.name, twin
