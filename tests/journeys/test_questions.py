"""What a user asks about a table and a router: what is in it, does it pay, why this expert, what if.

``describe``, ``compare``, ``explain``, ``is_novel``, ``without`` and ``with_target``.
"""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import EXPERTS, flat, log, matrix, take

pytestmark = pytest.mark.slow

N_TRAIN, N_TEST = 500, 300
PRICE_WEIGHT = 50
SUM = "What is 8,191 plus 1,234?"
CODE = 'Write a function that prints "8191", 1234 times'
STRANGE = "Ein Gedicht über den Herbst am Bodensee, bitte: vier Strophen, ohne Reime!"


class Always:
    """A method of the user's own: one expert for all."""

    def __init__(self, expert=0):
        self.expert = expert

    def get_params(self, deep=True):
        return {"expert": self.expert}

    def set_params(self, **params):
        self.expert = params["expert"]
        return self

    def fit(self, X, y):
        assert len(X) == len(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.expert)


@pytest.fixture(scope="module")
def rows():
    columns = log(31, N_TRAIN + N_TEST)
    return take(columns, range(N_TRAIN)), take(columns, range(N_TRAIN, N_TRAIN + N_TEST))


@pytest.fixture(scope="module")
def table(rows):
    return mild.read_outcomes(pd.DataFrame(rows[0]))


@pytest.fixture(scope="module")
def found(table):
    return mild.tune(table, keep_quality=0.95, target_probability=0.8)


@pytest.fixture(scope="module")
def folder(rows, found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("questions")
    pd.DataFrame(rows[0]).to_csv(folder / "log.csv", index=False)
    found.router.save(folder / "router")
    return folder


def test_what_is_in_the_table(folder, rows, table):
    scores, dollars = matrix(rows[0], "correct__"), matrix(rows[0], "cost__")
    described = adapter.read_described(table.describe().as_dict())
    assert described.rows == N_TRAIN
    assert described.best_quality == pytest.approx(scores.mean(axis=0).max())
    assert described.oracle_quality == pytest.approx(scores.max(axis=1).mean())
    for column, name in enumerate(EXPERTS):
        assert described.quality[name] == pytest.approx(scores[:, column].mean())
        assert described.dollars[name] == pytest.approx(dollars[:, column].mean())
        assert described.asked[name] == N_TRAIN
    frame = table.describe().to_frame()
    assert len(frame) == 3
    done = mild_here(folder, adapter.describe("log.csv", "--json"))
    assert done.code == 0, done.err
    assert flat(adapter.read_described(done.figures)) == pytest.approx(flat(described))


def test_does_it_pay_and_is_a_method_of_ones_own_better(folder, rows, table):
    experts = list(table.experts)
    methods = ["mild", "ridge", ("mine", mild.RidgeRouter())]
    methods += [(f"always {name}", Always(experts.index(name))) for name in EXPERTS]
    settings = {"price_weight": PRICE_WEIGHT, "n_splits": 5, "random_state": 3}
    compared = mild.compare(table, methods=methods, **settings)
    found = adapter.read_methods(compared.as_dict())
    assert set(found) == {
        "constant",
        *[name if isinstance(name, str) else name[0] for name in methods],
    }
    for name in EXPERTS:
        shares = {other: float(other == name) for other in EXPERTS}
        assert found[f"always {name}"].shares == pytest.approx(shares)
    # At this weight of a dollar the best single expert is the middle one, in any half of the rows.
    costs = 1 - matrix(rows[0], "correct__") + PRICE_WEIGHT * matrix(rows[0], "cost__")
    assert EXPERTS[costs.mean(axis=0).argmin()] == "medium"
    constant = found["constant"]
    assert constant.cost == pytest.approx(found["always medium"].cost)
    assert constant.cost == pytest.approx(costs[:, 1].mean(), rel=0.2)
    for name, method in found.items():
        if name not in ("constant", "always medium"):
            estimate, low, high = method.difference
            assert estimate == pytest.approx(method.cost - constant.cost)
            assert low < estimate < high
    for name in ("mild", "ridge", "mine"):
        assert found[name].difference[2] < 0
    for name in ("large", "small"):
        assert found[f"always {name}"].difference[1] > 0
    assert compared.verdict.pays is True

    words = ["--price-weight", str(PRICE_WEIGHT), adapter.N_SPLITS, "5", "--json"]
    words += [adapter.RANDOM_STATE, "3"]
    done = mild_here(folder, adapter.compare("log.csv", ["mild", "ridge"], *words))
    assert done.code == 0, done.err
    by_command = adapter.read_methods(done.figures)
    assert set(by_command) == {"constant", "mild", "ridge"}
    for name, method in by_command.items():
        assert method.cost == pytest.approx(found[name].cost)
        assert method.quality == pytest.approx(found[name].quality)
        assert method.shares == pytest.approx(found[name].shares)


def test_why_this_expert(folder, rows, found):
    router = found.router
    queries = rows[1]["query"][:40]
    decisions = adapter.decide(router, queries)
    np.testing.assert_allclose(decisions.probabilities.sum(axis=1), 1, rtol=1e-5)
    chosen = [router.experts[index] for index in decisions.chosen]
    assert chosen == router.route(queries)
    for row in range(0, 40, 8):
        why = adapter.read_explained(router.explain(queries[row]).as_dict())
        assert why.expert == chosen[row]
        # What is estimated is what decides.
        assert min(why.costs, key=why.costs.get) == why.expert
        assert sorted(why.costs, key=why.costs.get)[1] == why.runner_up
        for index, name in enumerate(router.experts):
            assert why.costs[name] == pytest.approx(float(decisions.costs[row, index]))
            assert why.probabilities[name] == pytest.approx(
                float(decisions.probabilities[row, index])
            )
    why = router.explain(CODE, max_evidence=3)
    assert why.expert == "large"
    evidence = adapter.read_explained(why.as_dict()).evidence
    assert 0 < len(evidence) <= 3
    assert not why.novel
    words = ["--json", adapter.MAX_EVIDENCE, "3"]
    done = mild_here(folder, adapter.explain("router", CODE, *words))
    assert done.code == 0, done.err
    by_command = adapter.read_explained(done.figures)
    assert flat(by_command) == pytest.approx(flat(adapter.read_explained(why.as_dict())))
    # In words for people, too, and about the router itself.
    assert "large" in mild_here(folder, adapter.explain("router", CODE)).out
    done = mild_here(folder, adapter.explain("router", "--json"))
    assert sorted(json.loads(done.out)["experts"]) == sorted(EXPERTS)


def test_is_this_a_question_as_those_it_has_learned_from(rows, found):
    router = found.router
    novel = router.is_novel([*rows[1]["query"], STRANGE])
    assert novel.dtype == bool
    assert novel[-1]
    # One in a hundred known questions is as far off as this.
    assert novel[:-1].mean() < 0.1
    assert router.explain(STRANGE).novel


def test_what_if_an_expert_is_gone(found, rows, tmp_path):
    router = found.router
    queries = rows[1]["query"]
    before = router.route(queries)
    fewer = router.without("medium")
    after = fewer.route(queries)
    assert sorted(fewer.experts) == ["large", "small"]
    assert set(after) == {"large", "small"}
    assert before.count("medium") > 0
    assert fewer.route([SUM, CODE]) == ["small", "large"]
    assert router.route(queries) == before
    # It can be saved, and nothing else is needed.
    assert mild.load(fewer.save(tmp_path / "fewer")).route(queries) == after
    alone = fewer.without("large")
    assert set(alone.route(queries)) == {"small"}
    with pytest.raises(mild.errors.InvalidInputError):
        alone.without("small")
    with pytest.raises(mild.errors.InvalidInputError):
        router.without("nobody")


def test_what_if_there_were_more_or_less_money(found, rows, tmp_path):
    test = pd.DataFrame(rows[1])
    dollars = []
    for most in (1.0, 2.0, 4.0):
        router = found.router.with_target(max_dollars=most, target_probability=0.8)
        target = adapter.read_target(mild.evaluate(router, test).as_dict())
        dollars.append(target.dollars[0])
        assert dollars[-1] <= most + target.dollars[2] - target.dollars[1]
        # The target is saved with the router.
        saved = mild.load(router.save(tmp_path / f"router{most}"))
        assert adapter.read_target(mild.evaluate(saved, test).as_dict()) == target
    assert dollars == sorted(set(dollars))
    best = found.router.with_target(keep_quality=1, target_probability=0.5)
    queries = rows[1]["query"]
    asked = [router.route(queries).count("large") for router in (found.router, best)]
    assert asked[0] <= asked[1]
