"""A router that mixes two settings decides the same queries alike wherever it decides."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

import mild
from answer_table_cases import NAMES, answer_table
from mild.batch.routing import route_dataset
from mild.batch.streaming import route_stream
from mild.cli.app import build_app
from mild.errors import UnsupportedError
from mild.tuning.fitting import usual_shares
from mild_gateway.config import RoutingSettings
from mild_gateway.litellm_plugin import MildPlugin
from mild_gateway.selection.models import ModelRequest
from mild_gateway.selection.selector import ExpertSelector
from mix_cases import QUERIES, mixed_cascades, mixed_router


@pytest.fixture(scope="module")
def router():
    return mixed_router()


@pytest.fixture(scope="module")
def cascades():
    return mixed_cascades()


def drawn_choices(router):
    """What the setting that is drawn for each query decides, one query at a time."""
    choices = []
    for text in QUERIES:
        part = replace(router, policy=router.policy.policy_for(text))
        choices.append(router.experts[part.decide_text(text)])
    return choices


def select(router, text, model=None, **routing):
    selector = ExpertSelector(router, RoutingSettings(**routing), seed=0)
    wanted = ModelRequest() if model is None else model
    return asyncio.run(selector.select(wanted, text, None, b"0123456789ab", {}, 0))


def of_lines(router):
    lines = io.BytesIO("".join(f"{query}\n" for query in QUERIES).encode())
    output = io.BytesIO()
    route_stream(router, lines, output, lines="text")
    return [json.loads(line) for line in output.getvalue().splitlines()]


def of_dataset(router, folder):
    parquet.write_table(pa.table({"prompt": QUERIES}), folder / "queries.parquet", row_group_size=7)
    out = folder / "out"
    route_dataset(router, str(folder / "queries.parquet"), str(out), probabilities=True)
    return parquet.read_table(out)


def test_every_way_to_decide_gives_the_same_experts(router, tmp_path):
    expected = drawn_choices(router)
    parts = [replace(router, policy=part) for part in (router.policy.first, router.policy.second)]
    # The test would say little if the mix, or one of its settings, decided nothing.
    assert all(part.route(QUERIES) != expected for part in parts)
    names = router.experts
    X = router.features(QUERIES)
    assert router.route(QUERIES) == expected
    assert router.route(query for query in QUERIES) == expected
    assert [names[k] for k in router.predict(X)] == expected
    assert [names[k] for k in router.decide(X).chosen] == expected
    assert [names[router.decide_text(query)] for query in QUERIES] == expected
    assert [names[router.decide_one(x)] for x in X] == expected
    assert router.route_table(QUERIES)["expert"] == expected
    assert [router.explain(query).expert for query in QUERIES] == expected
    loaded = mild.load(router.save(tmp_path / "router"))
    assert loaded.route(QUERIES) == expected
    assert [line["expert"] for line in of_lines(loaded)] == expected
    assert of_dataset(loaded, tmp_path)["expert"].to_pylist() == expected
    assert [select(loaded, query).chosen for query in QUERIES] == expected
    together = ExpertSelector(loaded, RoutingSettings()).score_all(QUERIES, [None] * len(QUERIES))
    assert [names[scores.best] for scores in together] == expected
    plugin = MildPlugin(loaded)
    messages = [[{"role": "user", "content": query}] for query in QUERIES]
    assert [plugin.order("mild", given)[0] for given in messages] == expected


def test_the_same_costs_are_shown_everywhere(router, tmp_path):
    expected = router.expected_costs(router.features(QUERIES))
    names = router.experts
    lines = [[line["expected_cost"][name] for name in names] for line in of_lines(router)]
    np.testing.assert_allclose(lines, expected, rtol=1e-5, atol=1e-6)
    table = of_dataset(router, tmp_path)
    columns = np.column_stack([table[f"expected_cost__{name}"].to_numpy() for name in names])
    np.testing.assert_allclose(columns, expected, rtol=1e-5, atol=1e-6)
    shown = [router.explain(query).expected_costs for query in QUERIES]
    explained = [[costs[name] for name in names] for costs in shown]
    np.testing.assert_allclose(explained, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(router.estimate(QUERIES).costs, expected, rtol=1e-5, atol=1e-6)


def test_mild_route_decides_as_the_router(router, tmp_path):
    router.save(tmp_path / "router")
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES))
    words = ["route", str(tmp_path / "router"), str(tmp_path / "queries.txt")]
    found = CliRunner().invoke(build_app(), words)
    chosen = [json.loads(line)["expert"] for line in found.stdout.splitlines()]
    assert chosen == drawn_choices(router)
    priced = CliRunner().invoke(build_app(), [*words, "--price-weight", "0"])
    assert "other prices drop the mix" in " ".join(priced.stderr.split())
    chosen = [json.loads(line)["expert"] for line in priced.stdout.splitlines()]
    assert chosen == router.with_prices(price_weight=0.0).route(QUERIES)


def test_evaluate_judges_the_choices_of_the_mix(router):
    table = answer_table(200, seed=5)
    judged = mild.evaluate(router, table).judged
    expected = [table.experts.index(name) for name in router.route(table.queries)]
    assert judged.chosen.tolist() == expected
    document = mild.evaluate(router, table).document()
    assert document["rows"] == 200
    repriced = mild.evaluate(router, table, price_weight=3.0)
    assert any("other prices drop the mix" in note for note in repriced.notes)


def test_the_usual_shares_are_those_of_the_mix(router):
    table = answer_table(300)
    shares = usual_shares(router.policy, router.text.vectorize(table.queries), table)
    chosen = router.route(table.queries)
    assert shares.experts == {name: chosen.count(name) / 300 for name in table.experts}


def test_propensities_count_exploration_only(router):
    for query in QUERIES[:10]:
        assert select(router, query).propensity == 1.0
        selection = select(router, query, explore=0.3)
        assert selection.preferred == router.route([query])[0]
        assert max(selection.draws) == pytest.approx(0.8)


def test_explicit_trade_offs_drop_the_mix(router):
    unmixed = router.with_prices(price_weight=3.0)
    assert unmixed.mix is None
    assert unmixed.info.dropped_mix == router.facts["mix"]
    assert unmixed.facts["mix"].startswith("none; new prices replaced")
    expected = unmixed.route(QUERIES)
    weighed = ModelRequest(price_weight=3.0)
    assert [select(router, query, weighed).chosen for query in QUERIES] == expected
    assert [select(router, query, price_weight=3.0).chosen for query in QUERIES] == expected
    texts = QUERIES[:4]
    scores = ExpertSelector(router, RoutingSettings()).score_all(texts, [None, 3.0, None, 3.0])
    chosen = [router.experts[one.best] for one in scores]
    mixed = router.route(texts)
    assert chosen == [mixed[0], expected[1], mixed[2], expected[3]]


def test_a_mix_of_cascades_asks_as_the_cascade_that_is_drawn(cascades, tmp_path):
    policy, names = cascades.policy, cascades.experts
    expected = []
    for query in QUERIES:
        (step,) = policy.policy_for(query).first_asked(cascades.features([query])[:, :-1])
        expected.append([names[k] for k in step])
    assert {len(step) for step in expected} == {1, 2}
    X = cascades.features(QUERIES)
    assert cascades.first_steps(X) == expected
    assert [list(cascades.next(query, {}).ask) for query in QUERIES] == expected
    assert [list(cascades.explain(query).first_step) for query in QUERIES] == expected
    loaded = mild.load(cascades.save(tmp_path / "router"))
    assert loaded.cascade.direct is loaded.cascade.cascades[0].direct
    assert [line["first_step"] for line in of_lines(loaded)] == expected
    assert of_dataset(loaded, tmp_path)["first_step"].to_pylist() == expected
    plans = [select(loaded, query).cascade_plan for query in QUERIES]
    assert [[names[k] for k in plan.first_step()] for plan in plans] == expected
    plugin = MildPlugin(loaded)
    first = [plugin.order("mild", query)[0] for query in QUERIES]
    assert first == [step[0] for step in expected]


def test_the_next_step_is_that_of_the_cascade_that_is_drawn(cascades):
    for query in QUERIES:
        part = replace(cascades, policy=cascades.policy.policy_for(query))
        for answers in ({}, {"little": "4", "other": "4"}, {"little": "4", "other": "5"}):
            assert cascades.next(query, answers) == part.next(query, answers)


def test_evaluate_runs_the_cascade_that_is_drawn(cascades):
    table = answer_table(200, seed=5)
    run = mild.evaluate(cascades, table).judged.run
    answers = table.answers
    features = cascades.text.vectorize(table.queries)
    for row, query in enumerate(table.queries):
        part = cascades.policy.policy_for(query)
        alone = part.run(features[row : row + 1], answers.take([row]))
        assert run.expert[row] == alone.expert[0]
        assert run.asked[row].tolist() == alone.asked[0].tolist()
    judged = mild.evaluate(cascades, table)
    steps = judged.figures.cascade["steps"]
    assert sum(step["rows"] for step in steps) == 200
    assert steps[-1]["experts"] == ["strong"]
    assert judged.document()["cascade"]["steps"] == steps


def test_without_answers_a_mix_of_cascades_is_its_router_beside_them(cascades):
    direct = cascades.direct
    assert direct.mix is None
    named = ModelRequest(direct=True)
    chosen = [select(cascades, query, named).chosen for query in QUERIES]
    assert chosen == direct.route(QUERIES)


def test_a_mix_is_described_in_words(router, cascades, tmp_path):
    assert router.facts["mix"] == (
        "40 % of the queries: a router with price weight 15; 60 %: a router with price weight 0"
    )
    words = cascades.facts["mix"]
    assert words.startswith("40 % of the queries: always strong; 60 %: a cascade that asks ")
    assert "cascade" not in cascades.facts
    explained = router.explain(QUERIES[0])
    draw = router.mix.draws(QUERIES[:1])[0]
    assert explained.mix.draw == draw
    assert f"the draw of this query is {draw:.4f}" in explained.sentences[1]
    assert "40 % of the queries" in repr(explained) or "60 % of the queries" in repr(explained)
    described = router.as_dict()["mix"]
    assert described["share"] == 0.4
    assert cascades.as_dict()["mix"]["steps"][1] == [["strong"]]
    json.dumps([router.as_dict(), cascades.as_dict(), explained.as_dict()])
    cascades.save(tmp_path / "router")
    found = CliRunner().invoke(build_app(), ["explain", str(tmp_path / "router")])
    assert "40 % of the queries: always strong" in " ".join(found.stdout.split())


def test_features_alone_are_refused(router):
    X = router.text.vectorize(QUERIES)
    for decide in (router.predict, router.decide, router.expected_costs, router.predict_table):
        with pytest.raises(UnsupportedError, match="use route or predict_texts"):
            decide(X)


def test_a_router_of_vectors_has_no_mix(router):
    from mild.features.vectors import VectorFeatures

    vectors = VectorFeatures().fit(np.zeros((2, router.n_features)))
    with pytest.raises(UnsupportedError, match="this router reads vectors"):
        replace(router, text=vectors)


def test_the_order_of_experts_and_their_number_change_no_draw(router):
    texts = QUERIES[:30]
    left = router.without(NAMES[0])
    for text, chosen in zip(texts, left.route(texts), strict=True):
        assert chosen == router.for_text(text).without(NAMES[0]).route([text])[0]
