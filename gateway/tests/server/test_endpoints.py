"""Models, decisions, health, metrics, the page."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from fake_upstream import FakeUpstream
from gateway_cases import (
    TEXTS,
    ask,
    cascade_router,
    chat,
    expert,
    gateway,
    knowing,
    priced_router,
    rows,
    scored_router,
    solo,
)
from mild.artifact import Router, RouterInfo
from mild.artifact.info import CostInfo
from mild.policies import LinearCostPolicy
from mild_gateway.access import Access
from mild_gateway.config import AccessSettings, Settings


class FakeBoard:
    async def document(self):
        return {"shares": {"one": 1.0}}

    def take(self, router):
        pass


def fetch(*wanted, experts=("one",), board=None, router=None, **more):
    async def run():
        async with (
            FakeUpstream() as up,
            gateway([expert(name, up) for name in experts], router, board=board, **more) as g,
        ):
            return [await ask(g.port, *one) for one in wanted]

    return asyncio.run(run())


def test_models_are_the_router_and_the_experts():
    listed, one, none = fetch(
        (None, "/v1/models", "GET"),
        (None, "/v1/models/one", "GET"),
        (None, "/v1/models/two", "GET"),
    )
    names = [entry["id"] for entry in json.loads(listed.body)["data"]]
    assert names == ["mild", "mild-direct", "one"]
    assert json.loads(one.body)["object"] == "model"
    assert none.status == 404


def test_a_model_is_found_by_its_name_as_clients_write_it():
    names = ("meta/small 2", "größe")
    paths = ("meta/small%202", "meta%2Fsmall%202", "gr%C3%B6%C3%9Fe", "gr%C3")
    found = fetch(*((None, f"/v1/models/{path}", "GET") for path in paths), experts=names)
    assert [answer.status for answer in found] == [200, 200, 200, 404]
    assert json.loads(found[1].body)["id"] == "meta/small 2"


def test_a_wrong_address_is_told_the_right_ones():
    (found,) = fetch((chat(), "/chat/completions"))
    assert found.status == 404
    assert "/v1/chat/completions, " in json.loads(found.body)["error"]["message"]


async def test_a_decision_is_explained_and_nobody_is_asked():
    router = priced_router(("one", "two"), (0.3, 0.1), (0.001, 0.1))
    async with (
        FakeUpstream() as up,
        gateway([expert("one", up), expert("two", up)], router) as g,
    ):
        found = [
            await ask(g.port, chat(TEXTS[1]), "/v1/route"),
            await ask(g.port, {"prompt": "x", "model": "router-mild-9"}, "/v1/route"),
            await ask(g.port, chat(model="one"), "/v1/route"),
            await ask(g.port, chat(model="none"), "/v1/route"),
            await ask(g.port, {}, "/v1/route"),
        ]
        (free, weighed, named, none, empty), asked, records = found, up.asked, g.ledger.records
    decision = json.loads(free.body)
    assert decision["expert"] == "two"
    assert decision["order"] == ["two", "one"]
    assert decision["expected_costs"] == pytest.approx({"one": 0.301, "two": 0.2})
    assert decision["expected_cost"] == pytest.approx(0.2)
    assert "probabilities" not in decision
    assert decision["reason"] == "router"
    assert decision["available"] == {"one": True, "two": True}
    assert decision["why"]["by"] == "expected cost"
    assert decision["why"]["runner_up"] == "one"
    assert decision["why"]["lead"] == pytest.approx(0.101)
    assert json.loads(weighed.body)["expert"] == "one"
    assert json.loads(weighed.body)["why"]["lead"] == pytest.approx(0.691)
    assert json.loads(named.body)["expert"] == "one"
    assert none.status == 404
    assert empty.status == 400
    assert json.loads(empty.body)["error"]["code"] == "missing_required_parameter"
    assert asked == 0
    assert records == []


async def test_of_a_cascade_the_first_step_is_given():
    router = cascade_router(("one", "two", "three"))
    seeing = {"one": {"unsupported": ["images"]}, "two": {"unsupported": ["images"]}}
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    async with FakeUpstream() as up:
        experts = [expert(name, up, **seeing.get(name, {})) for name in router.experts]
        async with gateway(experts, router) as g:
            found = [
                json.loads((await ask(g.port, body, "/v1/route")).body)
                for body in (
                    chat(TEXTS[1]),
                    chat(TEXTS[1], model="mild-direct"),
                    {"messages": [{"role": "user", "content": image}]},
                )
            ]
        assert up.asked == 0
    first, direct, seen = found
    assert (first["expert"], first["first_step"]) == ("one", ["one", "two"])
    assert first["order"][:2] == ["one", "two"]
    assert sorted(first["order"]) == ["one", "three", "two"]
    assert first["expected_cost"] is None
    assert (first["reason"], first["why"]["by"]) == ("router", "first step")
    assert (first["why"]["runner_up"], first["why"]["evidence"]) == (None, [])
    assert "first_step" not in direct
    assert direct["expert"] == router.direct.route([TEXTS[1]])[0]
    assert (seen["expert"], seen["first_step"]) == ("three", ["three"])
    assert seen["reason"] == "cannot_serve"


def test_a_decision_about_half_a_surrogate_pair_is_explained(monkeypatch):
    explain = Router.explain

    def quoting(router, text):
        """Routers that leave out words, one after the other, quote them."""
        found = explain(router, text)
        return replace(found, evidence=(replace(found.evidence[0], part=text),))

    monkeypatch.setattr(Router, "explain", quoting)
    plain = scored_router(("one", "two"))
    weights = np.arange(2 * plain.text.n_features_, dtype=np.float32).reshape(2, -1)
    router = replace(plain, policy=replace(plain.policy, coef=weights))
    body = b'{"messages": [{"role": "user", "content": "x\\ud800"}]}'
    (found,) = fetch((body, "/v1/route"), experts=("one", "two"), router=router)
    assert found.status == 200
    assert json.loads(found.body)["why"]["evidence"][0]["part"] == "x\ud800"


def test_a_decision_says_how_novel_the_request_is():
    router = knowing(priced_router(("one", "two"), (0.3, 0.1), (0.001, 0.1)))

    async def run():
        async with (
            FakeUpstream() as up,
            gateway(
                [expert("one", up), expert("two", up)], router, routing={"on_novel": "one"}
            ) as g,
        ):
            texts = TEXTS[1], "Zwölf Boxkämpfer jagen Viktor"
            return [await ask(g.port, chat(text), "/v1/route") for text in texts]

    near, far = (json.loads(answer.body) for answer in asyncio.run(run()))
    assert (near["expert"], near["novel"]) == ("two", False)
    assert near["right"] == pytest.approx({"one": 0.7, "two": 0.9})
    assert (far["expert"], far["novel"], far["novelty"]) == ("one", True, 1.0)
    assert (far["right"], far["reason"]) == (None, "on_novel")
    # As it is estimated, near and far.
    assert (
        far["expected_costs"] == near["expected_costs"] == pytest.approx({"one": 0.301, "two": 0.2})
    )


async def test_header_ledger_and_decision_have_the_same_estimate_within_its_range():
    plain = priced_router(("one", "two"))
    weights = np.random.default_rng(0).normal(size=(2, plain.n_features)).astype(np.float32)
    cost = CostInfo("error", None, None, None)
    policy = LinearCostPolicy(weights, np.array([0.2, 0.3], np.float32))
    router = knowing(replace(plain, policy=policy, info=RouterInfo(cost=cost)))
    texts = [*TEXTS, "Zwölf Boxkämpfer jagen Viktor", "end" + 30_000 * " prove" + " 2 + 2?"]
    async with (
        FakeUpstream() as up,
        gateway([expert("one", up), expert("two", up)], router) as g,
    ):
        decided = [json.loads((await ask(g.port, chat(t), "/v1/route")).body) for t in texts]
        served = [await ask(g.port, chat(text)) for text in texts]
        records = await rows(g, len(texts))
    raw = policy.expected_costs(router.features(texts))
    assert raw.min() < 0 < 1 < raw.max()
    for text, decision, answer, record in zip(texts, decided, served, records, strict=True):
        explained = router.explain(text)
        assert (
            decision["expert"]
            == answer.headers["x-mild-expert"]
            == record.chosen
            == explained.expert
        )
        costs = decision["expected_costs"]
        assert explained.expected_costs == pytest.approx(costs, abs=1e-5)
        assert decision["expected_cost"] == costs[record.chosen] == min(costs.values())
        assert all(0 <= value <= 1 for value in costs.values())
        assert record.expected_cost == pytest.approx(decision["expected_cost"], abs=1e-5)
        header = float(answer.headers["x-mild-expected-cost"])
        assert header == pytest.approx(decision["expected_cost"], abs=1e-5)


async def test_health_and_readiness():
    async with gateway([expert("one", "http://127.0.0.1:9/v1")]) as g:
        for _ in range(3):
            assert (await ask(g.port, chat())).status == 502
        paths = ("/health", "/health/live", "/health/ready")
        found = [await ask(g.port, None, path, "GET") for path in paths]
        route = await ask(g.port, chat(), "/v1/route")
        g.app.draining = True
        found += [await ask(g.port, None, path, "GET") for path in paths]
        health, alive, ready, *draining = found
    assert json.loads(health.body)["experts"] == {"one": "last"}
    assert json.loads(route.body)["available"] == {"one": False}
    assert json.loads(alive.body) == {"status": "alive"}
    # The only expert cannot be reached, and is asked all the same.
    assert ready.status == 200
    assert [answer.status for answer in draining] == [200, 200, 503]
    assert json.loads(draining[2].body) == {"status": "draining", "reason": "draining"}


async def test_readiness_is_503_while_a_lost_store_closes_the_gateway():
    class Lost(Access):
        refuses_all = True

    access = Lost(Settings())
    async with solo(access=access) as (_, g):
        found = await ask(g.port, None, "/health/ready", "GET")
        alive = await ask(g.port, None, "/health/live", "GET")
    assert (found.status, json.loads(found.body)["reason"]) == (503, "store_unavailable")
    assert alive.status == 200


async def test_metrics_tell_what_happened():
    async with solo(FakeUpstream(script=["500"]), one={"price_in": 1.0}) as (_, g):
        await ask(g.port, chat())
        await ask(g.port, chat(model="none"))
        await ask(g.port, b"{", method="POST")
        page = (await ask(g.port, None, "/metrics", "GET")).body.decode()
    for line in (
        'mild_requests_total{expert="one",outcome="ok"} 1.0',
        'mild_attempts_total{expert="one",result="ok"} 1.0',
        'mild_attempts_total{expert="one",result="server"} 1.0',
        'mild_refused_total{status="404"} 1.0',
        'mild_refused_total{status="400"} 1.0',
        'mild_tokens_total{direction="in",expert="one"} 10.0',
        'mild_dollars_total{expert="one"} 1e-05',
        "mild_in_flight 0.0",
        "mild_workers 1.0",
        'mild_spent_dollars{key="all",period="day"} 1e-05',
        'mild_first_byte_seconds_count{expert="one"} 1.0',
        "mild_overhead_seconds_count 1.0",
    ):
        assert line + "\n" in page, line


def test_the_page_is_one_static_file_that_talks_to_this_server_alone():
    page, status, off = fetch(
        (None, "/", "GET"), (None, "/status.json", "GET"), (None, "/x", "GET"), board=FakeBoard()
    )
    assert page.status == 200
    assert b"<html" in page.body.lower()
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert json.loads(status.body) == {"shares": {"one": 1.0}}
    assert off.status == 404


def test_without_a_page_there_is_none():
    page, status = fetch(
        (None, "/", "GET"), (None, "/status.json", "GET"), board=FakeBoard(), page=False
    )
    assert page.status == status.status == 404


@pytest.mark.parametrize(
    "more",
    [
        {"host": "0.0.0.0"},
        {"host": "0.0.0.0", "access_settings": AccessSettings(require_key=False)},
        {"access_settings": AccessSettings(require_key=True)},
    ],
)
def test_the_figures_of_the_page_need_an_admin_key_where_others_could_see_them(more):
    paths = ("/", "/status.json", "/metrics", "/health")
    wanted = [(None, path, "GET") for path in paths]
    page, status, metrics, health = fetch(*wanted, board=FakeBoard(), **more)
    needs_key = more.get("access_settings") != AccessSettings(require_key=False)
    assert page.status == 200
    assert status.status == (401 if needs_key else 403)
    code = json.loads(status.body)["error"]["code"]
    assert code == ("invalid_api_key" if needs_key else "admin_key_required")
    assert metrics.status == (401 if needs_key else 200)
    assert health.status == 200


def test_a_public_page_is_for_everyone():
    wanted = [(None, path, "GET") for path in ("/", "/status.json", "/metrics", "/v1/models")]
    found = fetch(*wanted, board=FakeBoard(), host="0.0.0.0", page="public")
    assert [answer.status for answer in found] == [200, 200, 200, 401]


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/v1/chat/completions", "GET", "POST"),
        ("/v1/completions", "DELETE", "POST"),
        ("/v1/models", "POST", "GET"),
        ("/metrics", "POST", "GET"),
        ("/v1/route", "GET", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(path, method, allowed):
    (found,) = fetch(({}, path, method))
    assert found.status == 405
    assert found.headers["allow"] == allowed
    assert json.loads(found.body)["error"]["code"] == "method_not_allowed"


@pytest.mark.usefixtures("no_retry")
async def test_workers_tell_the_failed_attempts_of_each_expert():
    failing = FakeUpstream(script=["500", "500", "garbage"])
    async with (
        failing as up,
        FakeUpstream() as other,
        gateway([expert("one", up), expert("two", other)]) as g,
    ):
        for _ in range(4):
            assert (await ask(g.port, chat())).status == 200
        await g.stop()
        found = g.ledger.published["failures"]
    assert found["two"] == {"attempts": 0, "last": None}
    assert found["one"]["attempts"] == 3
    assert found["one"]["last"]["kind"] == "garbled"
