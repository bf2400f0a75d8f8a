"""A gateway in front of the experts of ``world.py``, and a client that sees heads, bodies and events.

The experts are always right. Each has prices and tokens of its own, so that a charge says who was asked.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mild
from journeys import adapter
from journeys.processes import Answer, Gateway, served
from journeys.world import PRICE_WEIGHT, outcomes, questions
from model_server import ModelServer
from waiting import PATIENCE, wait_until

# Dollars per million tokens in and out, and the tokens that an expert reports for any answer.
PRICES = {"small": (0.2, 0.7), "medium": (1.0, 5.0), "large": (3.0, 11.0)}
TOKENS = {"small": (350, 61), "medium": (470, 83), "large": (1200, 503)}
#: Dollars of an answer.
DOLLARS = {name: float(np.dot(TOKENS[name], PRICES[name])) / 1e6 for name in PRICES}
#: What the last line of a stream of OpenAI's says.
DONE = "[DONE]"


def fit_router(folder: Path) -> None:
    """Save a router that asks ``small`` for sums, ``medium`` for rivers and ``large`` for primes."""
    rng = np.random.default_rng(5)
    table = outcomes(rng, questions(rng, {"plus": 60, "river": 60, "primes": 60}))
    mild.fit(table, router="ridge", price_weight=PRICE_WEIGHT).save(folder / adapter.ROUTER)


def experts_of(models: ModelServer, **apis: str) -> dict[str, dict[str, Any]]:
    """Settings of the experts; ``apis`` are those of experts that do not speak OpenAI's."""
    return {
        name: adapter.priced_expert(
            models.url, f"{name}-model", *PRICES[name], api=apis.get(name, "openai")
        )
        for name in PRICES
    }


@dataclass
class Service:
    """A gateway that serves the router in its folder, and the models behind it."""

    folder: Path
    models: ModelServer
    gateway: Gateway
    _n_received: int = field(default=0, init=False)
    _n_rows: int = field(default=0, init=False)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Send JSON, or bytes as they are; the answer, whatever its status."""
        try:
            with self.open(path, body, headers) as response:
                return _answer(response, response.status)
        except urllib.error.HTTPError as error:
            with error:
                return _answer(error, error.code)

    def open(
        self, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """The head of an answer; its body has not been read. Without a body of our own, a GET."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.gateway.address + path,
            data,
            {"content-type": "application/json", **(headers or {})},
        )
        return urllib.request.urlopen(request, timeout=PATIENCE)

    def get(self, path: str) -> Answer:
        """What is at a path; JSON is parsed."""
        return self.post(path, None)

    def stream(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Ask for a stream: an answer whose document is the list of its events, as far as they came."""
        with self.open(path, {**body, "stream": True}, headers) as response:
            assert response.headers.get_content_type() == "text/event-stream"
            try:
                content = response.read()
            except http.client.IncompleteRead as error:
                content = error.partial
            # Other line breaks of Unicode are part of what is said.
            lines = content.decode().split("\n")
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            events = [event if event == DONE else json.loads(event) for event in data]
            return Answer(response.status, _lower(response.headers), events)

    def received(self) -> list[dict[str, Any]]:
        """What the models have received since this was last asked."""
        received = self.models.received()
        new = received[self._n_received :]
        self._n_received = len(received)
        return new

    def new_rows(self, count: int) -> list[adapter.Served]:
        """The rows of the ledger since this was last asked, as soon as there are so many."""

        def new() -> list[adapter.Served] | None:
            rows = list(self.all_rows().values())[self._n_rows :]
            return rows if len(rows) >= count else None

        rows = wait_until(new)
        self._n_rows += len(rows)
        return rows

    def rows(self, answers: list[Answer]) -> list[adapter.Served]:
        """The rows of the ledger of some answers, which may come a little later."""
        ids = [answer.headers[adapter.REQUEST_ID] for answer in answers]

        def rows() -> list[adapter.Served] | None:
            found = self.all_rows()
            return [found[request_id] for request_id in ids] if found.keys() >= set(ids) else None

        return wait_until(rows)

    def all_rows(self) -> dict[str, adapter.Served]:
        """All rows of the ledger so far, by their ids."""
        return {row.request_id: row for row in adapter.read_ledger(self.folder)}

    def set_rules(self, rules: Mapping[str, Mapping[str, Any]]) -> None:
        """What some experts do from now on, beside the tokens that they report; the others answer."""
        for name, tokens in TOKENS.items():
            rule = {"tokens": tokens, **rules.get(name, {})}
            self.models.set_rules(f"{name}-model", rule)


def _answer(response: Any, status: int) -> Answer:
    content = response.read()
    is_json = response.headers.get_content_type() == "application/json"
    document = json.loads(content) if is_json else content.decode()
    return Answer(status, _lower(response.headers), document)


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def serving(folder: Path, models: ModelServer):
    """Serve the settings and the router of a folder."""
    with served(folder) as gateway:
        service = Service(folder, models, gateway)
        service.set_rules({})
        yield service
        assert gateway.stop() == 0


def one_question(kind: str, seed: int = 0) -> str:
    """A question of a kind; ``world.py`` says which expert the router has learned to ask for it."""
    return next(iter(questions(np.random.default_rng(seed), {kind: 1})))


def joined(events: list[Any]) -> str:
    """The text of a streamed chat answer."""
    deltas = [choice["delta"] for event in events if event != DONE for choice in event["choices"]]
    return "".join(delta.get("content") or "" for delta in deltas)
