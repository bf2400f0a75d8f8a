"""A fit in passes is the fit of one table."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow.parquet as parquet
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.distributed.shards import workers
from mild.errors import (
    ConvergenceWarning,
    DegenerateDataWarning,
    InvalidInputError,
    UnsupportedError,
)
from mild.features import EncoderFeatures
from mild.routers import KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.solver import MANY, SAMPLE
from mild.tuning.tasks import make_task
from mild.tuning.training_rows import TrainingQueryIndex
from shard_cases import EXPERTS, in_memory, make_rows, make_texts, sharded

CLOSE = 1e-6


def distance(ours, theirs):
    return np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)


def assert_same(found, expected):
    ours, theirs = found.model[-1], expected.model[-1]
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=CLOSE)
    assert distance(ours.coef_, theirs.coef_) < CLOSE
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.margins_, theirs.margins_, rtol=1e-12)
    assert ours.n_iter_ == theirs.n_iter_


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rewards": "complement", "counts": "best"},
        {"rewards": "contrast", "norms": "rms", "share_below": 0.3},
        {"norms": "max", "surrogate": 0.5},
        {"loss": "tdef", "cost_scale": 4.0},
        {"loss": "tdef"},
        {"loss": "cwce"},
        {"loss": "ldam"},
        {"loss": "logit_adjusted"},
        {"loss": "temperature"},
        {"margins": [1.0, 2.0, 0.5], "fit_intercept": False},
        {"surrogate": "pairwise_logistic", "margins": "uniform", "alpha": 0.05},
    ],
    ids=str,
)
def test_the_optimum_is_that_of_one_table(shards, options):
    data = shards(make_rows(1500, missing=0.15))
    terms = CostTerms(beta={"cat": 0.3}, price_weight=20.0)
    router = LinearRouter(**options)
    assert_same(sharded(data.folder, router, terms), in_memory(data.whole, router, terms))


def test_with_many_rows_the_sample_is_that_of_one_table_too(shards):
    data = shards(make_rows(2 * SAMPLE + 3000), group=3000)
    found, expected = sharded(data.folder), in_memory(data.whole, LinearRouter())
    assert_same(found, expected)
    assert found.rows == 2 * SAMPLE + 3000
    assert found.task.table.rows == SAMPLE


@pytest.mark.parametrize("rows", [1500, 2 * SAMPLE + 3000])
def test_with_many_experts_the_optimum_is_that_of_one_table(shards, rows):
    columns = make_rows(rows)
    draws = np.random.default_rng(5)
    for k in range(MANY):
        columns[f"score__more{k}"] = np.round(draws.uniform(0, 0.1 * (k + 1), rows), 1)
    data = shards(columns, group=3000)
    router = LinearRouter(counts="best", ties="mean")
    found, expected = sharded(data.folder, router), in_memory(data.whole, router)
    assert len(found.dataset.expert_names) > MANY
    assert_same(found, expected)


def test_the_hinge_begins_at_the_logistic_solution(shards):
    data = shards(make_rows(600))
    router = LinearRouter(surrogate="hinge", alpha=0.1, max_iter=1000)
    with warnings.catch_warnings():
        # At a kink no step may go down; both may stop there.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found, expected = sharded(data.folder, router), in_memory(data.whole, router)
    assert found.model[-1].objective_ == pytest.approx(expected.model[-1].objective_, rel=1e-4)


def test_rows_without_any_price_are_left_out_as_in_one_table(shards):
    columns = make_rows(3000)
    for name in EXPERTS:
        columns[f"cost__{name}"][[7, 1500]] = np.nan
    columns["cost__bee"][::3] = np.nan
    data = shards(columns, group=1100)
    terms = CostTerms(price_weight=20.0)
    found = sharded(data.folder, terms=terms)
    assert found.rows == 2998
    assert_same(found, in_memory(data.whole, LinearRouter(), terms))
    sentences = {finding.kind: finding.sentence for finding in found.findings}
    assert sentences["unknown_losses"] == make_task(read_outcomes(data.whole), terms).left_out
    assert "unasked_rows" not in sentences


def test_an_expert_without_any_price_is_named(shards):
    data = shards(make_rows(300) | {"cost__bee": np.full(300, np.nan)}, group=100)
    with pytest.raises(InvalidInputError, match="'bee' has none") as caught:
        sharded(data.folder, terms=CostTerms(price_weight=20.0))
    assert caught.value.code == "invalid_price_weight"


@pytest.mark.parametrize("standardize", [None, True])
def test_texts_get_the_features_of_one_table(shards, standardize):
    data = shards(make_texts(3000), group=1100)
    found = sharded(data.folder, LinearRouter(), standardize=standardize)
    whole = TrainingQueryIndex.of(read_outcomes(data.whole))
    np.testing.assert_array_equal(found.seen.hashes, whole.hashes)
    assert found.seen.complete
    expected = in_memory(data.whole, LinearRouter(), scaled=bool(standardize))
    np.testing.assert_array_equal(
        found.step.transform(["sum law", "poem"]), expected.step.transform(["sum law", "poem"])
    )
    ours = found.model[-1] if standardize else found.model
    theirs = expected.model[-1] if standardize else expected.model
    assert ours.objective_ == pytest.approx(theirs.objective_, rel=CLOSE)
    # Few words make collinear features: rounding moves weights that the objective hardly sees.
    assert distance(ours.coef_, theirs.coef_) < 10 * CLOSE


def test_combined_features_are_those_of_one_table(shards, monkeypatch):
    def embed(self, texts):
        return np.array(
            [[len(text), text.count("a"), text.count("e")] for text in texts], np.float32
        )

    monkeypatch.setattr(EncoderFeatures, "_embed", embed)
    data = shards(make_texts(3000), group=1100)
    found = sharded(data.folder, LinearRouter(), text="hashing+encoder")
    expected = in_memory(data.whole, LinearRouter(), scaled=False, text="hashing+encoder")
    new = ["sum law", "poem"]
    np.testing.assert_array_equal(found.step.transform(new), expected.step.transform(new))
    assert found.model.objective_ == pytest.approx(expected.model.objective_, rel=CLOSE)


def test_features_on_disk_give_the_same_bits(shards, tmp_path, monkeypatch):
    data = shards(make_rows(1200, missing=0.1))
    kept = sharded(data.folder)
    monkeypatch.setattr(workers, "IN_MEMORY", 0)
    folder = tmp_path / "features"
    folder.mkdir()
    mapped = sharded(data.folder, folder=folder)
    assert list(folder.glob("*.X.npy"))
    np.testing.assert_array_equal(mapped.model[-1].coef_, kept.model[-1].coef_)
    assert mapped.fingerprint == kept.fingerprint


def test_a_disk_without_room_is_refused_before_it_is_full(shards, tmp_path, monkeypatch):
    data = shards(make_rows(300))
    monkeypatch.setattr(workers, "IN_MEMORY", 0)
    monkeypatch.setattr(workers.shutil, "disk_usage", lambda path: type("", (), {"free": 10})())
    with pytest.raises(
        InvalidInputError, match=r"take .* GB of disk .* has 1e-08 GB left.*--scratch"
    ):
        sharded(data.folder, folder=tmp_path)


@pytest.mark.parametrize(
    ("experts", "rows", "names", "count"),
    [
        (["bee"], slice(None), ["ant", "cat"], 600),
        (["bee"], slice(250), ["ant", "bee", "cat"], 600),
        (["ant", "bee", "cat"], slice(190, 320), ["ant", "bee", "cat"], 470),
    ],
    ids=["never", "not in one shard", "nobody in some rows"],
)
def test_cells_that_nobody_asked_for_count_as_in_one_table(shards, experts, rows, names, count):
    columns = make_rows(600)
    for name in experts:
        columns[f"correct__{name}"][rows] = np.nan
    data = shards(columns)
    found, expected = sharded(data.folder), in_memory(data.whole, LinearRouter())
    assert (found.dataset.expert_names, found.rows) == (names, count)
    assert_same(found, expected)


def test_an_expert_that_always_costs_least_settles_it(shards):
    columns = make_rows(300)
    columns["correct__bee"] = np.ones(300)
    found = sharded(shards(columns).folder)
    assert "always asks bee" in found.constant_reason
    assert set(found.model.predict(found.features).tolist()) == {1}
    assert found.model.mean_costs_[1] == 0


def test_data_that_leave_nothing_to_compare_are_warned_about(shards):
    columns = make_rows(300)
    for name in ("ant", "bee", "cat"):
        columns[f"correct__{name}"] = np.full(300, np.nan)
    for row in range(300):
        columns[f"correct__{('ant', 'bee', 'cat')[row % 3]}"][row] = 1.0
    with pytest.warns(DegenerateDataWarning, match="have the same cost in every row"):
        sharded(shards(columns).folder)


def test_what_cannot_be_fitted_is_refused(shards):
    data = shards(make_rows(60))
    with pytest.raises(UnsupportedError, match="fitted by a linear router; got KNNRouter"):
        sharded(data.folder, KNNRouter())
    with pytest.raises(UnsupportedError, match="without sampling"):
        sharded(data.folder, LinearRouter(sampling="over"))
    with pytest.raises(InvalidInputError, match="'hashing' needs queries"):
        sharded(data.folder, text="hashing")
    for file in data.folder.iterdir():
        table = parquet.read_table(file)
        parquet.write_table(table.slice(0, 1 if file.name == "0.parquet" else 0), file)
    with pytest.raises(InvalidInputError, match=r"at least two rows .* this has 1"):
        sharded(data.folder)


def test_what_is_odd_about_the_outcomes_is_that_of_one_table(shards):
    columns = make_rows(600, missing=0.3)
    columns["correct__cat"][~np.isnan(columns["correct__cat"])] = 1.0
    data = shards(columns)
    expected = read_outcomes(data.whole).findings
    assert {finding.kind for finding in expected} == {"unasked_rows", "missing", "constant", "ties"}
    assert sharded(data.folder).findings == expected
