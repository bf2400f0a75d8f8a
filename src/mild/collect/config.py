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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as pydantic_dataclass

from mild.collect.prompts import Prompts
from mild.endpoints.config import read_expert
from mild.endpoints.config_file import CONFIG, read_toml
from mild.endpoints.expert import Expert
from mild.errors import OptionError

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
    seen: dict[str, str] = {}
    experts = []
    for name in tables:
        location = ("experts", name)
        given = environment if need_secrets else None
        expert = read_expert(config, location, name, given, defaults=COLLECT)
        if expert is None:
            continue
        experts.append(expert)
        # Two names for the same requests would share their answers, or pay for them twice.
        twin = seen.setdefault(json.dumps(expert.request(""), sort_keys=True), name)
        if twin != name:
            config.add(
                location, f"must not ask the same as {twin!r}; remove one, or set extra.seed"
            )
    config.check()
    return ExpertFile(experts, asdict(found.prompts if found else Prompts()))


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
