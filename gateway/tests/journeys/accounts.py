"""Two experts with prices, clients that use them up, and an accounting of it by hand.

Every answer of an expert takes the same tokens, and so the same dollars. The question is longer than any
count of its tokens, so that no answer costs more than could be known before.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest

from journeys import adapter
from journeys.processes import LONGEST, Answer, mild
from waiting import wait_until

# Dollars per million tokens, in and out.
PRICES = {"small": (2.0, 8.0), "large": (10.0, 30.0)}
TOKENS = {"small": (25, 40), "large": (30, 40)}
MAX_OUTPUT = 40
DOLLARS = {
    name: (TOKENS[name][0] * price_in + TOKENS[name][1] * price_out) / 1e6
    for name, (price_in, price_out) in PRICES.items()
}
# A client that is refused is not to ask again at once.
PAUSE = 0.02


def experts_of(models):
    """The experts as a gateway's settings name them."""
    return {
        name: adapter.limited_expert(models.url, f"{name}-model", prices, MAX_OUTPUT)
        for name, prices in PRICES.items()
    }


def set_tokens(models, **rule):
    """Let every answer take its tokens."""
    for name, tokens in TOKENS.items():
        models.set_rules(f"{name}-model", {"tokens": tokens, **rule})


def outcomes(best):
    """Columns of a table in which one expert knows everything, and the others nothing."""
    questions = [f"What is {n} plus {n}?" for n in range(60)]
    columns = {adapter.QUERY: questions}
    for name, dollars in DOLLARS.items():
        scores = [float(name == best)] * len(questions)
        columns |= adapter.outcome_columns(
            name, scores, [dollars] * len(questions), ["2"] * len(questions)
        )
    return columns


def question(number, model=adapter.ROUTER_MODEL, **fields):
    """The body of a chat request that no other one equals."""
    text = (
        f"What is {number} plus {number}? Give only the number, and please say nothing else. " * 2
    )
    return {**adapter.chat(text, model), "max_tokens": MAX_OUTPUT, **fields}


def most_dollars(name):
    """More than a question can cost: as if every byte were a token, and with room for a template."""
    price_in, price_out = PRICES[name]
    n_bytes = len(json.dumps(question(10**6))) + 100
    return (n_bytes * price_in + MAX_OUTPUT * price_out) / 1e6


# Clients.


def send(gateway, path, body=None, key=None, header="authorization"):
    """One request, a GET if there is no body; the answer as JSON, or as text if it is none."""
    address = urlsplit(gateway.address)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=LONGEST)
    try:
        return _exchange(connection, path, body, key, header)
    finally:
        connection.close()


def _exchange(connection, path, body, key, header="authorization"):
    headers = {"content-type": "application/json"}
    if key is not None:
        headers[header] = f"Bearer {key}" if header == "authorization" else key
    if body is None:
        connection.request("GET", path, headers=headers)
    else:
        connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    content = response.read()
    kind = response.getheader("content-type", "")
    document = json.loads(content) if "json" in kind else content.decode()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, document)


def status_of(gateway):
    """What the gateway tells of itself."""
    return send(gateway, adapter.STATUS).document


@dataclass
class Answered(Answer):
    """An answer with the moments, of a monotonic clock, at which its request began and ended."""

    began: float
    ended: float


class Clients:
    """Eight clients that each ask one question after the other; a context manager.

    A client ends when it gets the ``last`` status, when its connection breaks, or when it is stopped at
    the end of the context. ``answers`` are those that came whole, in the order in which they ended.
    """

    _numbers = itertools.count()

    def __init__(self, gateway, model=adapter.ROUTER_MODEL, key=None, last=None, count=8):
        self.answers = []
        self.n_broken = 0
        self._address = urlsplit(gateway.address)
        self._model = model
        self._key = key
        self._last = last
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self.wait()

    def wait(self):
        """Wait until every client has ended."""
        for thread in self._threads:
            thread.join(LONGEST)
            assert not thread.is_alive()

    def next_answers(self, count):
        """The answers to questions that are asked from now on, once so many have come."""
        now = time.monotonic()

        def found():
            answers = [answer for answer in self.answers if answer.began >= now]
            return answers if len(answers) >= count else None

        return wait_until(found)

    def _ask(self):
        connection = http.client.HTTPConnection(
            self._address.hostname, self._address.port, timeout=LONGEST
        )
        try:
            while not self._stopped.is_set():
                body = question(next(self._numbers), self._model)
                began = time.monotonic()
                answer = _exchange(connection, adapter.CHAT, body, self._key)
                self.answers.append(Answered(**vars(answer), began=began, ended=time.monotonic()))
                if answer.status == self._last:
                    return
                if answer.status != 200:
                    time.sleep(PAUSE)
        except (OSError, http.client.HTTPException):
            self.n_broken += 1
        finally:
            connection.close()


def refusal(answer):
    """Status of an answer, with the code of one that was refused."""
    return answer.status, None if answer.status == 200 else adapter.error_code(answer.document)


def codes(answers):
    """How many answers there are of each status and code."""
    return Counter(map(refusal, answers))


# What was spent, by those who say so.


def spent_by_hand(answers):
    """Dollars of the answers that were given."""
    return sum(
        DOLLARS[answer.headers[adapter.EXPERT]] for answer in answers if answer.status == 200
    )


def spent_by_models(models):
    """Dollars of the answers that the model server gave."""
    seen = [request for request in models.received() if request["ended"] == "whole"]
    return sum(DOLLARS[request["model"].removesuffix("-model")] for request in seen)


def spent_by_keys(folder):
    """Dollars in the account of each key."""
    keys = adapter.read_keys(mild(folder, adapter.list_keys()).figures)
    return {name: key.spent for name, key in keys.items()}


def spent_by_metrics(gateway, key=None):
    """Dollars in the account of each key and of all of them."""
    answer = send(gateway, adapter.METRICS, key=key)
    assert answer.status == 200
    return adapter.spent_dollars(answer.document)


def charges(folder, file="rows.jsonl"):
    """All rows of the ledger."""
    (folder / file).unlink(missing_ok=True)
    mild(folder, adapter.export_ledger(file))
    return adapter.read_charges(folder / file)


def dollars_by_key(rows):
    """Dollars of the rows of each key that has spent something."""
    dollars = defaultdict(float)
    for row in rows:
        if row.dollars:
            dollars[row.key] += row.dollars
    return dict(dollars)


def check_rows(rows):
    """Every request has one row, and every answer costs what its tokens cost."""
    assert len({row.request_id for row in rows}) == len(rows)
    for row in rows:
        if row.outcome == "ok":
            assert row.tokens == TOKENS[row.expert]
            assert row.dollars == pytest.approx(DOLLARS[row.expert])
