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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mild.collect.prompts import PLACEHOLDERS, PROMPTS
from mild.endpoints.config import read_expert
from mild.endpoints.config_file import ConfigFile, read_toml
from mild.endpoints.expert import Expert
from mild.errors import OptionError

__all__ = ["ExpertFile", "choose_experts", "read_experts"]

#: What mild collect uses where the file is silent.
COLLECT = {
    "max_tokens": 512,
    "max_in_flight": 4,
    "connect_seconds": 10.0,
    "total_seconds": 120.0,
    "retries": 5,
}


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

    Without ``need_secrets`` no secret is looked up: enough to plan, not to ask.

    Raises
    ------
    DataFileError : a sentence for every problem, with the line; it never shows a secret.
    """
    config = read_toml(Path(path))
    for key in config.content:
        if key not in ("experts", "prompts"):
            hint = (
                "; did you mean prompts?" if key.startswith("p") else "; known are experts, prompts"
            )
            config.add((key,), f"is unknown{hint}")
    tables = config.content.get("experts", {})
    if not isinstance(tables, dict) or not tables:
        config.fail(("experts",), "must name at least one expert: [experts.NAME]; got none")
    found = [
        read_expert(
            config, ("experts", name), name, environment if need_secrets else None, defaults=COLLECT
        )
        for name in tables
    ]
    experts = [expert for expert in found if expert is not None]
    _refuse_twins(config, experts)
    prompts = _prompts(config)
    config.check()
    return ExpertFile(experts, prompts)


def choose_experts(file: ExpertFile, names: str | None) -> list[Expert]:
    """Experts with these comma-separated names, in their order; all for None."""
    if names is None:
        return file.experts
    known = {expert.name: expert for expert in file.experts}
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        got = unknown[0] if unknown else names
        raise OptionError(f"experts must be among {', '.join(known)}; got {got!r}.")
    return [known[name] for name in dict.fromkeys(wanted)]


def _refuse_twins(config: ConfigFile, experts: list[Expert]) -> None:
    """Two names for the same requests would share their answers, or pay for them twice."""
    seen: dict[str, str] = {}
    for expert in experts:
        asks = json.dumps(expert.request(""), sort_keys=True)
        if asks in seen:
            config.add(
                ("experts", expert.name),
                f"must not ask the same as {seen[asks]!r}; remove one, or set extra.seed",
            )
        seen[asks] = expert.name


def _prompts(config: ConfigFile) -> dict[str, str]:
    prompts = dict(PROMPTS)
    table = config.content.get("prompts", {})
    if not isinstance(table, dict):
        config.fail(("prompts",), "must be a table")
    for kind, template in table.items():
        location = ("prompts", kind)
        if kind not in PROMPTS:
            config.add(location, f"is unknown; known are {', '.join(PROMPTS)}")
        elif not isinstance(template, str):
            config.add(location, "must be text in quotes")
        else:
            for name in PLACEHOLDERS[kind]:
                if name not in template:
                    config.add(location, f"must hold {name}")
            prompts[kind] = template
    return prompts
