"""Table to folder and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from figure_cases import task_figures
from mild.artifact import load, save
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.features import HashingFeatures
from mild.routers.cost_models import PricedRouter
from mild.routers.linear import LinearRouter
from mild.tuning.fitting import asking_prices, fit_task, make_text_features
from mild.tuning.tasks import make_task
from mild.tuning.training_rows import TrainingQueryIndex, terms_of
from outcome_cases import EXPERTS, make_columns
from text_router_cases import save_task


def task_of(seed=0, terms=None, **options):
    return make_task(
        read_outcomes(pa.table(make_columns(150, seed, **options))), terms or CostTerms()
    )


def saved_router(task, model, folder, **options):
    step = make_text_features(task.table, options or HashingFeatures(n_components=8))
    return load(save_task(fit_task(task, model, step), task, str(folder)))


def test_a_saved_router_routes_new_queries_well(tmp_path):
    router = saved_router(task_of(), LinearRouter(), tmp_path / "r")
    new = task_of(1)
    found = task_figures(new, router.predict_texts(new.table.queries))
    assert found.verdict.pays is True
    assert found.summary["headroom_captured"] > 0.5


def test_the_folder_says_what_counted_and_what_was_seen(tmp_path):
    task = task_of(terms=CostTerms({"cook": 0.25}))
    router = saved_router(task, LinearRouter(), tmp_path / "r")
    assert router.experts == EXPERTS
    assert terms_of(router) == task.terms
    notes = router.info.notes
    assert notes["cost"]["words"] == task.formula
    assert notes["table"]["fingerprint"] == task.table.fingerprint()
    assert TrainingQueryIndex.by(router).overlap(task.table)["queries"] == 150
    assert TrainingQueryIndex.by(router).overlap(task_of(1).table)["queries"] == 0


def test_notes_survive_a_second_saving(tmp_path):
    router = saved_router(task_of(), LinearRouter(), tmp_path / "r")
    again = load(save(router, tmp_path / "again"))
    assert again.info.notes == router.info.notes
    np.testing.assert_array_equal(again.query_hashes, router.query_hashes)


def test_a_priced_router_decides_alike_in_a_pipeline(tmp_path):
    task = task_of(terms=CostTerms(price_weight=50.0), prices=True)
    alone = saved_router(task, PricedRouter(), tmp_path / "a")
    behind = saved_router(task, make_pipeline(StandardScaler(), PricedRouter()), tmp_path / "b")
    queries = task.table.queries
    assert (alone.predict_texts(queries) == behind.predict_texts(queries)).mean() > 0.9
    dear = alone.with_prices(price_weight=1e6)
    # At a million wrong answers per dollar only the cheapest is asked.
    assert set(dear.predict_texts(queries)) == {0}


@pytest.mark.parametrize(
    ("terms", "weight"),
    [
        (CostTerms(), 1.0),
        (CostTerms({"cook": 0.5}), 1.0),
        (CostTerms(None, 50.0), 50.0),
        (CostTerms({"cook": 0.5}, 50.0), 1.0),
    ],
)
def test_errors_and_prices_add_up_to_the_costs(terms, weight):
    task = task_of(terms=terms, prices=True)
    errors, prices, found = asking_prices(task)
    assert found == weight
    np.testing.assert_allclose(errors + weight * np.asarray(prices), task.costs)
