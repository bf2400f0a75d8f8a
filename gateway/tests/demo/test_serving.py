"""``mild serve --demo`` on a fresh machine."""

import json
from collections import Counter

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, events, said
from mild.artifact import load
from mild.datasets import load_outcomes
from mild_gateway.demo import demo_router
from mild_gateway.demo.answers import STAND_INS
from process_cases import served

ASKED = {
    "What is 17 * 23?": ("rules", "391"),
    "What is the capital of France?": ("gemma3", "Paris"),
    "What is the chemical symbol of iron?": ("smollm2", "Fe"),
}


def test_the_router_travels_with_the_package():
    router = demo_router()
    assert set(router.experts) == set(STAND_INS)
    chosen = router.predict_texts(list(ASKED))
    assert [router.experts[k] for k in chosen] == [name for name, _ in ASKED.values()]


@pytest.mark.slow
def test_the_router_is_the_one_that_is_fitted(tmp_path):
    script = pytest.importorskip("scripts.fit_demo_router")
    fitted, kept = load(script.fit_demo_router(tmp_path / "router")), demo_router()
    texts = [*ASKED, "What is 8 - 6?", "Hello", "Who wrote this?"]
    assert fitted.predict_texts(texts).tolist() == kept.predict_texts(texts).tolist()
    assert fitted.expected_costs(fitted.features(texts)) == pytest.approx(
        kept.expected_costs(kept.features(texts)), abs=1e-2
    )


async def test_the_first_request_of_the_readme_works(tmp_path):
    async with served(tmp_path, demo=True, port=0) as g:
        found = {text: await ask(g.port, chat(text)) for text in ASKED}
        stream = await ask(g.port, chat("What is 3 + 4?", stream=True))
        cheap = await ask(g.port, chat("What is the capital of France?", "router-mild-10000000"))
        completion = await ask(
            g.port, {"model": "mild", "prompt": "What is 2 + 2?"}, "/v1/completions"
        )
        page = await ask(g.port, None, "/", "GET")
        code = await g.stop()
    for text, (name, answer) in ASKED.items():
        assert found[text].headers["x-mild-expert"] == name
        document = json.loads(found[text].body)
        assert document["model"] == name
        assert answer in document["choices"][0]["message"]["content"]
    assert (said(stream.body), events(stream.body)[-1]) == ("7", "[DONE]")
    assert cheap.headers["x-mild-expert"] == "rules"
    assert json.loads(completion.body)["choices"][0]["text"] == "4"
    assert page.status == 200
    assert code == 0


async def test_an_endpoint_takes_the_place_of_a_stand_in(tmp_path):
    async with FakeUpstream() as up:
        endpoints = {"gemma3": up.base_url}
        async with served(tmp_path, demo=True, port=0, endpoints=endpoints) as g:
            lines = [(await g.process.stdout.readline()).decode() for _ in range(2)]
            fact = await ask(g.port, chat("What is the capital of France?"))
            total = await ask(g.port, chat("What is 17 * 23?"))
        bodies = up.bodies
    assert lines[0].startswith("stand-in experts: smollm2, rules;")
    assert lines[1].startswith("endpoint: gemma3 at http://127.0.0.1:")
    assert json.loads(fact.body)["choices"][0]["message"]["content"] == "one two three"
    assert [json.loads(body)["model"] for body in bodies] == ["gemma3"]
    assert total.headers["x-mild-expert"] == "rules"


def test_the_counts_of_the_cascade_are_those_of_the_table():
    script = pytest.importorskip("scripts.fit_demo_router")
    table = load_outcomes()
    experts = [table.experts.index(name) for step in script.STEPS for name in step]
    counts = Counter(tuple(row) for row in (table.scores[:, experts] == 1).tolist())
    assert dict(counts) == {
        pattern: count for pattern, count in script.RIGHT_ANSWERS.items() if count
    }


async def test_the_demo_has_a_cascade_beside_its_router(tmp_path):
    async with served(tmp_path, demo=True, port=0) as g:
        models = await ask(g.port, None, "/v1/models", "GET")
        fact = await ask(g.port, chat("What is the capital of France?", "mild-cascade"))
        total = await ask(g.port, chat("What is 17 * 23?", "mild-cascade"))
        one = await ask(g.port, chat("What is 17 * 23?"))
        stream = await ask(g.port, chat("What is 3 + 4?", "mild-cascade", stream=True))
        status = json.loads((await ask(g.port, None, "/status.json", "GET")).body)
    names = [model["id"] for model in json.loads(models.body)["data"]]
    assert names[:3] == ["mild", "mild-cascade", "mild-direct"]
    # Both models know the fact; a sum is left to the calculator.
    assert "rules" not in fact.headers["x-mild-path"]
    assert "Paris" in json.loads(fact.body)["choices"][0]["message"]["content"]
    assert total.headers["x-mild-expert"] == "rules"
    assert json.loads(total.body)["choices"][0]["message"]["content"] == "391"
    assert "x-mild-path" not in one.headers
    assert said(stream.body) == "7"
    assert "cascade" not in [line["name"] for line in status["shares"]["experts"]]
