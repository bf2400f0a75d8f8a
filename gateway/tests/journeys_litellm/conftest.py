"""A model server, and routers of ``mild tune`` with what ``mild route`` says of some questions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import journeys.adapter
from journeys.processes import mild
from journeys.world import PRICE_WEIGHT, outcomes, questions
from journeys_litellm import adapter
from journeys_litellm.asking import FOLLOW_UP
from model_server import ModelServer

# LiteLLM reads this when it is imported: it takes the lists that it brings along instead of asking for new
# ones, and no settings from a file .env in a folder above.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS"] = "True"
os.environ["LITELLM_MODE"] = "PRODUCTION"

TABLE = "log.parquet"
QUESTIONS = "questions.txt"
# A router is tuned to rows of these kinds, and then asked as many new questions of each as the others say.
ROWS = {"plus": 60, "river": 60, "primes": 60}
ASKED = {"plus": 4, "river": 4, "primes": 4}


@dataclass
class Tuned:
    """A folder with a router, and new questions with its experts, the best first, by ``mild route``."""

    folder: Path
    orders: dict[str, list[str]]
    of_follow_up: str

    @property
    def choices(self) -> dict[str, str]:
        """The expert of each question."""
        return {text: order[0] for text, order in self.orders.items()}

    @property
    def one_for_each(self) -> dict[str, str]:
        """A question for each expert that is chosen at all, by its name."""
        return {name: text for text, name in self.choices.items()}


@pytest.fixture(scope="session")
def anyio_backend():
    """What runs tests that are coroutine functions."""
    return "asyncio"


@pytest.fixture(scope="session")
def models():
    """The models of all experts."""
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """A router that chooses each of three experts for some of the questions."""
    folder = tmp_path_factory.mktemp("tuned")
    found = tune(folder, price_weight=PRICE_WEIGHT)
    assert len(found.one_for_each) == 3
    return found


@pytest.fixture(scope="session")
def tuned_cascade(tmp_path_factory):
    """A router that asks one expert after the other."""
    return tune(tmp_path_factory.mktemp("cascade"), price_weight=2, cascade=True)


def tune(folder: Path, price_weight: float, cascade: bool = False) -> Tuned:
    """Tune a router to a small table, and let it route questions that it has not seen."""
    rng = np.random.default_rng(7)
    pq.write_table(outcomes(rng, questions(rng, ROWS)), folder / TABLE)
    router = journeys.adapter.ROUTER
    mild(
        folder,
        journeys.adapter.tune(TABLE, router, price_weight=price_weight, cascade=cascade),
    )
    texts = [*questions(rng, ASKED), FOLLOW_UP]
    (folder / QUESTIONS).write_text("\n".join(texts), encoding="utf-8")
    routed = mild(folder, journeys.adapter.route(router, QUESTIONS)).out
    orders = dict(zip(texts, adapter.read_orders(routed), strict=True))
    of_follow_up = orders.pop(FOLLOW_UP)[0]
    if not cascade:
        experts = journeys.adapter.read_routes(routed)
        assert [*(order[0] for order in orders.values()), of_follow_up] == experts
    return Tuned(folder, orders, of_follow_up)
