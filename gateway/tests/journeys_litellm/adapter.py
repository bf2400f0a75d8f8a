"""What these journeys need to know of the plug-in: names that change, change here.

Commands, tables and what commands print are in ``journeys/adapter.py``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from journeys.adapter import ROUTER

#: Model names that make the router choose; the second passes over the steps of a cascade.
MODEL = "mild"
DIRECT = "mild-direct"
#: A name that asks for something of the router which it cannot do.
REFUSED_MODEL = "router-mild-x"
#: Codes of errors: no router in the folder, and an expert that LiteLLM does not know.
NO_ROUTER = "invalid_router_file"
EXPERT_MISSING = "invalid_model_list"
#: The page of the documentation, and the experts in its files.
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "from-litellm.md"
EXPERTS_OF_THE_PAGE = ("smollm2", "gemma3", "rules")


def attach(folder: Path, llm_router: Any, text: Literal["last", "all"] = "last") -> None:
    """Let the router of a folder choose inside a ``litellm.Router``."""
    # It imports LiteLLM, which looks for news of prices unless conftest.py has told it not to.
    from mild_gateway.litellm_plugin import MildPlugin

    MildPlugin(folder / ROUTER, text=text).attach(llm_router)


def files_of_the_page() -> dict[str, str]:
    """What a user of LiteLLM's proxy writes into its folder, by the names of the files."""
    blocks = re.findall(r"```\w+\n# ([\w.]+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    return dict(blocks)


def read_orders(output: str) -> list[list[str]]:
    """The experts of each line, the best first, by ``mild route``."""
    orders = []
    for line in output.splitlines():
        costs = json.loads(line)["expected_cost"]
        orders.append(sorted(costs, key=costs.get))
    return orders
