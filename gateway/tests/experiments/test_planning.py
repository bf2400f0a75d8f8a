"""Calls for a sum of dollars, what is refused, and a collection that follows the plan."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mild_gateway
from experiments.planning import collect_planned, make_plan
from fake_endpoint import FakeEndpoint
from mild.errors import DataFileError, InvalidInputError, OptionError
from mild_gateway.experts.expert import Expert

NAMES = ["small", "large", "poor"]
PRICES = dict(zip(NAMES, (0.001, 0.01, 0.002), strict=True))


def questions(count=120):
    """Sums, mostly yes, and capitals, mostly no: what the programs of ``experts`` say."""
    texts = ["Which city is the capital of country {0}?", "Add {0} and {0}."]
    rows = [
        {"query": texts[i % 2].format(i), "answer": ["no", "yes"][(i % 2) ^ (i % 5 == 0)]}
        for i in range(count)
    ]
    return pd.DataFrame(rows)


# Its models answer with their names.
ENDPOINT = FakeEndpoint(answer=None)


@pytest.fixture(scope="module", autouse=True)
def endpoint():
    with ENDPOINT:
        yield


def experts(**prices):
    models = {"small": "yes", "large": "no", "poor": "perhaps"}
    asked = []
    for name, price in (prices or PRICES).items():
        asked.append(Expert(name, ENDPOINT.base_url, models[name], price_per_query=price))
    return asked


def outcomes(count=12, silent=0):
    """A table of the first questions; the last ``silent`` rows know nothing of ``large``."""
    frame = questions(count)
    frame["correct__small"] = (frame["answer"] == "yes").astype(float)
    frame["correct__large"] = (frame["answer"] == "no").astype(float)
    frame.loc[count - silent :, "correct__large"] = np.nan
    frame["correct__poor"] = 0.0
    return frame.drop(columns="answer")


@pytest.fixture(scope="module")
def found():
    return make_plan(outcomes(), experts(), 0.05, queries=questions())


def test_a_plan_holds_new_calls_within_the_sum(found):
    calls = found.to_frame()
    assert isinstance(calls, pd.DataFrame)
    assert list(calls.columns) == ["query", "expert", "dollars"]
    assert not calls.duplicated().any()
    assert set(calls["query"]).isdisjoint(outcomes()["query"])
    assert 0.03 < calls["dollars"].sum() <= 0.05 + 1e-9
    assert (calls["dollars"] == calls["expert"].map(PRICES)).all()


def test_the_result_says_what_the_plan_and_the_baselines_remove(found):
    result = found.as_dict()
    assert (
        result["calls"]
        == len(found.columns["query"])
        == sum(e["calls"] for e in result["experts"].values())
    )
    assert 0 <= result["removed"] <= result["regret"]
    for name in ("random", "all_experts"):
        assert 0 <= result[name]["removed"] <= result["regret"]
        assert 0 < result[name]["dollars"] <= 0.05 + 1e-9
    assert found.sentence.startswith(f"{result['calls']} calls for $")
    assert found.sentence in repr(found)
    assert "small" in found._repr_html_()


def test_a_seed_decides_the_plan(found):
    again = make_plan(outcomes(), experts(), 0.05, queries=questions())
    other = make_plan(outcomes(), experts(), 0.05, queries=questions(), random_state=1)
    assert again.columns == found.columns != other.columns


def test_dollars_are_left_where_the_heads_agree():
    rich = make_plan(outcomes(), experts(), 100, queries=questions())
    assert sum(rich.columns["dollars"]) < 1


def test_missing_outcomes_of_the_table_are_bought_too():
    calls = make_plan(outcomes(60, silent=30), experts(), 1.0).to_frame()
    assert set(calls["expert"]) == {"large"}
    assert set(calls["query"]) <= set(outcomes(60)["query"][30:])


def test_rows_of_one_query_count_together():
    old, new = outcomes(60, silent=30), outcomes(60)[["query", "correct__large"]][30:]
    with pytest.raises(InvalidInputError) as error:
        make_plan(pd.concat([old, new]), experts(), 1.0)
    assert error.value.code == "nothing_to_ask"


def test_an_expert_that_was_never_asked_is_asked(found):
    table = outcomes().drop(columns="correct__large")
    calls = make_plan(table, experts(), 0.2, queries=questions()).to_frame()
    assert "large" in set(calls["expert"])


def test_an_expert_that_is_not_asked_stays_a_rival():
    alone = make_plan(outcomes(), experts(large=0.01), 0.2, queries=questions())
    assert set(alone.columns["expert"]) == {"large"}


def test_tokens_in_and_past_costs_make_the_expected_dollars():
    frame = outcomes()
    frame["cost__small"] = 0.004
    endpoint = Expert("small", "http://127.0.0.1:1/v1", "m", price_in=1000.0, price_out=1000.0)
    longest = Expert("large", "http://127.0.0.1:1/v1", "n", price_out=1000.0, max_tokens=100)
    pool = pa.table({"query": ["x" * 400 for _ in range(1)] + [f"y{i}" for i in range(60)]})
    calls = make_plan(frame, [endpoint, longest], 1e4, queries=pool).to_frame()
    of = calls.groupby("expert")["dollars"]
    assert of.max()["large"] == of.min()["large"] == pytest.approx(0.1)
    small = calls[calls["expert"] == "small"].set_index("query")["dollars"]
    # 100 tokens in are $0.1 here, and the answers so far cost less than their questions.
    assert small.get("x" * 400, 0.1) == pytest.approx(0.1)
    assert (small.drop("x" * 400, errors="ignore") < 0.01).all()


@pytest.mark.parametrize("spend", [0, -1, math.nan, math.inf, "5"])
def test_a_sum_must_be_dollars(spend):
    with pytest.raises(OptionError) as error:
        make_plan(outcomes(), experts(), spend, queries=questions())
    assert error.value.code == "invalid_spend"


def test_a_sum_must_pay_for_one_call():
    with pytest.raises(OptionError, match=r"0\.0010") as error:
        make_plan(outcomes(), experts(), 0.0005, queries=questions())
    assert error.value.code == "invalid_spend"


def test_every_expert_needs_a_price():
    free = Expert("large", ENDPOINT.base_url, "no")
    with pytest.raises(OptionError, match="'large' has none") as error:
        make_plan(outcomes(), [*experts(small=0.1), free], 1, queries=questions())
    assert error.value.code == "invalid_experts"


def test_a_table_of_which_all_is_known_needs_more_queries():
    with pytest.raises(InvalidInputError, match="--queries") as error:
        make_plan(outcomes(), experts(), 1)
    assert error.value.code == "nothing_to_ask"


def test_queries_need_a_column_of_queries():
    with pytest.raises(DataFileError, match="query"):
        make_plan(outcomes(), experts(), 1, queries=pa.table({"n": [1, 2]}))


def test_a_plan_needs_texts():
    vectors = pa.table({"embedding": [[0.0, 1.0], [1.0, 0.0]], "correct__small": [1, 0]})
    with pytest.raises(InvalidInputError) as error:
        make_plan(vectors, experts(), 1)
    assert error.value.code == "invalid_text"


@pytest.mark.parametrize("weights", [{"latency_weight": 1.0}, {"beta": {"nobody": 1.0}}])
def test_the_terms_of_the_cost_must_fit_the_table(weights):
    with pytest.raises(InvalidInputError) as error:
        make_plan(outcomes(), experts(), 1, queries=questions(), **weights)
    assert error.value.code == f"invalid_{next(iter(weights))}"


def test_an_expert_that_costs_too_much_to_choose_is_not_asked():
    calls = make_plan(
        outcomes(), experts(), 0.2, queries=questions(), beta={"large": 5.0, "small": 0.5}
    )
    assert "large" not in calls.columns["expert"]


@pytest.mark.parametrize("form", ["plan", "frame", "plan.csv", "plan.parquet", "plan.jsonl"])
def test_collect_asks_what_the_plan_says_and_keeps_what_it_knows(tmp_path, form):
    ledger = tmp_path / "answers.sqlite"
    first = mild_gateway.collect_outcomes(questions(), experts(), ledger=ledger, limit=16)
    found = make_plan(first.table, experts(), 0.1, queries=questions())
    given = found if form == "plan" else found.to_frame()
    if "." in form:
        given = found.write(tmp_path / form)
    second = collect_planned(given, questions(), experts(), ledger=ledger)
    spent = second.summary["spent_by_ledger"] - first.summary["spent_by_ledger"]
    assert spent == pytest.approx(sum(found.columns["dollars"]))
    assert second.spent == 0
    names = second.table.experts
    known = {
        (second.table.queries[i], names[k]) for i, k in np.argwhere(~np.isnan(second.table.scores))
    }
    before = {(query, name) for query in first.table.queries for name in NAMES}
    assert known == before | set(zip(found.columns["query"], found.columns["expert"], strict=True))


def test_a_plan_with_choices_finds_its_questions(tmp_path):
    asked = pd.DataFrame(
        {"question": ["Which?", "What?"], "A": ["x", "u"], "B": ["y", "v"], "answer": "A"}
    )
    plan = pd.DataFrame({"query": ["Which?\nA. x\nB. y"], "expert": ["small"]})
    small = Expert("small", ENDPOINT.base_url, "A", price_per_query=0.001)
    made = collect_planned(plan, asked, [small], ledger=tmp_path / "l")
    assert made.summary["experts"]["small"]["answered"] == 1


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"query": ["Add 1 and 1."], "expert": ["nobody"]}, OptionError),
        ({"query": ["Add 1 and 2."], "expert": ["small"]}, DataFileError),
        ({"query": ["Add 1 and 1."]}, DataFileError),
    ],
)
def test_a_plan_must_fit_questions_and_experts(tmp_path, columns, error):
    with pytest.raises(error) as raised:
        collect_planned(pd.DataFrame(columns), questions(), experts(), ledger=tmp_path / "l")
    assert raised.value.code == "invalid_plan"


def test_an_empty_query_is_never_asked():
    table = outcomes(60, silent=30)
    table.loc[40:50, "query"] = ""
    assert "" not in make_plan(table, experts(), 1.0).columns["query"]
