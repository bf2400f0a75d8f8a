"""An operator reads metrics, page and ledger after a while: they tell what clients and models have seen."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from journeys import adapter
from journeys.processes import mild, post_all
from journeys.service import DOLLARS, PRICES, TOKENS, experts_of, fit_router, one_question, serving
from journeys.world import questions
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

N_WORKERS = 2


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    fit_router(folder)
    with ModelServer() as models:
        adapter.write_config(folder, experts_of(models))
        adapter.set_workers(folder, N_WORKERS)
        with serving(folder, models) as service:
            yield service


def ask_in_many_ways(service):
    """Ask for whole answers and streams, of the router and of experts, some of which fail; and ask wrongly.

    The answers that experts gave, the failures that clients were told of, and the refusals.
    """
    url = service.gateway.address + adapter.CHAT
    asked = questions(np.random.default_rng(3), {"plus": 10, "river": 8, "primes": 6})
    answers = post_all(url, [adapter.chat(question) for question in asked])
    for kind in ("plus", "river", "primes"):
        answers.append(service.stream(adapter.CHAT, adapter.chat(one_question(kind))))
    answers += post_all(url, [adapter.chat(one_question("plus"), name) for name in PRICES])

    primes = one_question("primes")
    service.set_rules({"large": {"status": 500}})
    answers.append(service.post(adapter.CHAT, adapter.chat(primes)))
    service.set_rules({name: {"status": 500} for name in PRICES})
    failures = [service.post(adapter.CHAT, adapter.chat(primes))]
    service.set_rules({"small": {"status": 400}})
    failures.append(service.post(adapter.CHAT, adapter.chat(primes, "small")))
    service.set_rules({})
    refusals = [
        service.post(adapter.CHAT, adapter.chat(primes, "nobody")),
        service.post(adapter.CHAT, b"{"),
        service.post(adapter.CHAT, []),
        service.post("/v1/nothing", adapter.chat(primes)),
    ]
    assert {answer.status for answer in answers} == {200}
    assert [answer.status for answer in failures] == [502, 400]
    assert [answer.status for answer in refusals] == [404, 400, 400, 404]
    return answers, failures, refusals


def test_metrics_page_and_ledger_agree_with_what_was_asked(service):
    wait_until(lambda: adapter.n_workers(service.get(adapter.STATUS).document) == N_WORKERS)
    answers, failures, refusals = ask_in_many_ways(service)
    received = service.received()
    rows = service.rows([*answers, *failures])
    n_rows = len(rows)
    assert len(service.all_rows()) == n_rows

    # The sums by what the clients were told, and by what the models were sent.
    answered = Counter(answer.headers[adapter.EXPERT] for answer in answers)
    dollars = {name: DOLLARS[name] * count for name, count in answered.items()}
    spent = sum(dollars.values())
    sent = Counter(entry["model"].removesuffix("-model") for entry in received)
    outcomes = {"ok": len(answers), "failed": len(failures)}
    assert sum(row.attempts for row in rows) == len(received) > n_rows
    assert sum(row.dollars for row in rows) == pytest.approx(spent)

    def when_all_are_counted():
        counted = adapter.read_metrics(service.get(adapter.METRICS).document)
        n_counted = sum(counted.requests.values())
        return counted if n_counted >= n_rows and not counted.in_flight else None

    counted = wait_until(when_all_are_counted)
    assert counted.requests == {
        **{(name, "ok"): count for name, count in answered.items()},
        ("small", "failed"): 1,
        ("none", "failed"): 1,
    }
    assert counted.attempts == sent
    assert counted.answered == answered
    assert counted.refused == len(refusals)
    assert counted.tokens == {
        (name, direction): count * tokens
        for name, count in answered.items()
        for direction, tokens in zip(("in", "out"), TOKENS[name], strict=True)
    }
    assert counted.dollars == pytest.approx(dollars)
    assert sum(counted.durations.values()) == n_rows
    assert counted.cascades == {}

    shown = adapter.read_shown(mild(service.folder, adapter.show_ledger()).figures)
    assert shown.requests == n_rows
    assert shown.outcomes == outcomes
    assert shown.dollars == pytest.approx(spent)
    assert shown.answered == answered + Counter(small=1)

    page = service.get(adapter.PAGE)
    assert (page.status, page.headers["content-type"].split(";")[0]) == (200, "text/html")
    # It brings no figures with it, and fetches them.
    assert adapter.STATUS.strip("/") in page.document

    def when_all_are_shown():
        found = adapter.read_page(service.get(adapter.STATUS).document)
        return found if found.requests >= n_rows else None

    on_page = wait_until(when_all_are_shown)
    assert on_page.requests == n_rows
    assert on_page.outcomes == outcomes
    assert on_page.dollars == pytest.approx(spent)
    assert on_page.answered == answered + Counter(small=1)
    assert on_page.spent == pytest.approx(dollars)
    newest = sorted(service.all_rows().values(), key=lambda row: row.time)[-10:]
    assert {row.request_id: row.expert for row in newest}.items() <= on_page.newest.items()
