"""How far expected costs of a saved router can be trusted: their range, and novelty."""

import json
from dataclasses import replace
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest

from mild.artifact import load, save
from mild.batch.streaming import route_stream
from mild.core.decisions import argmax_last
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.datasets import outcomes_file
from mild.errors import RouterFileError, UnsupportedError
from mild.features import HashingFeatures
from mild.routers.cost_models import KNNRouter, PricedRouter, RidgeRouter
from mild.routers.linear import LinearRouter
from mild.routers.stack import BlendRouter
from mild.tuning.fitting import fit_task, make_text_features
from mild.tuning.tasks import make_task
from outcome_cases import EXPERTS, make_columns
from text_router_cases import save_task

FAR = ["Zwölf Boxkämpfer jagen Viktor quer", "SELECT id FROM users WHERE age > 30;"]
ROUTERS = {
    "ridge": RidgeRouter,
    "knn": KNNRouter,
    "priced": PricedRouter,
    "stack": BlendRouter,
    "linear": LinearRouter,
}


def task_of(seed=0, n=200, terms=None):
    return make_task(
        read_outcomes(pa.table(make_columns(n, seed, prices=terms is not None))),
        terms or CostTerms(),
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Name of a router to the task, the fitted router and its folder, made when first asked for."""
    made = {}

    def get(name, weight=None):
        if (name, weight) not in made:
            task = task_of(terms=weight and CostTerms(price_weight=weight))
            done = fit_task(
                task,
                ROUTERS[name](),
                make_text_features(task.table, HashingFeatures(n_components=8)),
            )
            folder = save_task(done, task, str(tmp_path_factory.mktemp("trust") / "r"))
            made[name, weight] = task, done, folder
        return made[name, weight]

    return get


@pytest.mark.parametrize(
    ("name", "weight"),
    [("ridge", None), ("knn", None), ("stack", None), ("priced", None), ("priced", 20.0)],
)
def test_a_query_has_one_estimate_wherever_it_is_shown(fitted, name, weight):
    task, _, folder = fitted(name, weight)
    router = load(folder)
    texts = list(task.table.queries[:20])
    if name in ("ridge", "priced"):
        texts += (
            FAR  # as far from many neighbours, up to rounding, which are then not always the same
        )
    shown = router.expected_costs(router.features(texts))
    assert shown.min() >= 0
    if weight is None:
        assert shown.max() <= 1
    best = argmax_last(-router.policy.expected_costs(router.features(texts)))
    sink = BytesIO()
    route_stream(router, BytesIO("\n".join(map(json.dumps, texts)).encode()), sink)
    lines = [json.loads(line) for line in sink.getvalue().splitlines()]
    table = router.route_table(texts)
    for i, text in enumerate(texts):
        assert lines[i]["expert"] == table["expert"][i] == EXPERTS[best[i]]
        wanted = dict(zip(EXPERTS, shown[i].tolist(), strict=True))
        assert wanted[lines[i]["expert"]] == min(wanted.values())
        found = [
            lines[i]["expected_cost"],
            {name: table[f"expected_cost__{name}"][i] for name in EXPERTS},
            router.explain(text).expected_costs,
            router.explain(text).values,
        ]
        for one in found:
            assert one == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_what_is_right_is_not_known_of_a_novel_query(fitted):
    router = load(fitted("ridge")[2])
    for text in FAR:
        found = router.explain(text)
        assert found.novelty > 0.99
        assert (found.novel, found.right) == (True, None)
        assert "extrapolated" in found.sentences[1]


def test_a_poem_is_novel_to_the_included_table(tmp_path):
    # Sums, dates and facts.
    task = make_task(read_outcomes(outcomes_file()), CostTerms())
    done = fit_task(task, RidgeRouter(), make_text_features(task.table))
    router = load(save_task(done, task, str(tmp_path / "r")))
    poems = ["Write a poem", "Write a poem about autumn leaves falling in the rain"]
    assert router.is_novel([*poems, "Write a haiku", "Why is the sky blue?"]).all()
    assert router.explain(poems[0]).right is None
    sums = router.explain("What is 17 * 23?")
    assert sums.novel is False
    assert sums.right["rules"] > 0.8


def test_new_queries_of_the_same_kind_are_rarely_novel(fitted):
    router = load(fitted("ridge")[2])
    new = task_of(1).table.queries
    assert router.is_novel(new).mean() < 0.05
    assert router.is_novel(FAR).all()
    near = router.estimate(new)
    assert np.quantile(near.novelty, [0.25, 0.75]) == pytest.approx([0.25, 0.75], abs=0.2)


def test_a_router_without_expected_costs_knows_what_is_novel(fitted):
    router = load(fitted("linear")[2])
    found = router.explain(FAR[0])
    assert (found.novel, found.right, found.expected_costs) == (True, None, None)


def test_novelty_survives_saving_removal_and_pickling(fitted, tmp_path):
    import pickle

    router = load(fitted("ridge")[2])
    again = load(save(router, tmp_path / "again"))
    for other in (again, pickle.loads(pickle.dumps(router))):
        assert other.explain(FAR[0]).as_dict() == router.explain(FAR[0]).as_dict()
    assert set(router.without("poet").explain(FAR[0]).expected_costs) == {"adder", "cook"}


def test_a_router_without_records_of_novelty_says_nothing_of_it(fitted, tmp_path):
    plain = replace(load(fitted("ridge")[2]), novelty=None)
    router = load(save(plain, tmp_path / "plain"))
    found = router.explain(FAR[0])
    assert (found.novelty, found.novel) == (None, None)
    costs = router.expected_costs(router.features(FAR[:1]))[0]
    assert list(found.expected_costs.values()) == pytest.approx(costs, abs=1e-6)
    with pytest.raises(UnsupportedError) as caught:
        router.is_novel(FAR)
    assert caught.value.parameter == "on_novel"


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("centres", np.zeros((0, 17), np.float32)),
        ("scales", np.array([1.0, 0.0], np.float32)),
        ("score_quantiles", np.zeros(7, np.float32)),
        ("means", np.zeros((1, 2), np.float32)),
    ],
)
def test_damaged_tensors_of_novelty_are_refused(fitted, tmp_path, name, array):
    router = load(fitted("ridge")[2])
    damaged = replace(router, novelty=replace(router.novelty, **{name: array}))
    with pytest.raises(RouterFileError, match=f"novelty.{name}"):
        load(save(damaged, tmp_path / "bad"))


def test_vectors_are_novel_by_their_distance(tmp_path):
    columns = make_columns(120)
    columns["embedding"] = [[float(len(p)), float(p.count("o"))] for p in columns["prompt"]]
    task = make_task(read_outcomes(pa.table(columns)), CostTerms())
    done = fit_task(task, RidgeRouter(), make_text_features(task.table, "vectors"))
    router = load(save_task(done, task, str(tmp_path / "r")))
    assert router.explain([1e3, 50.0]).novel is True
    assert router.explain(columns["embedding"][0]).novel is False


def test_names_are_routed_to(fitted):
    task, _, folder = fitted("ridge")
    router = load(folder)
    texts = list(task.table.queries[:5])
    assert router.route(texts) == [EXPERTS[k] for k in router.predict_texts(texts)]
