"""What settings did on held-out rows: the figures, their errors, and what is certified."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import mild
from mild.artifact.targets import Target
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError
from mild.metrics.operating_points import TRADE_OFF, Setting
from mild.routers.cost_models import same_features
from mild.tuning.guarantees import CalibrationRows, HoldLimit
from mild.tuning.held_out import cross_fit
from mild.tuning.rows import TuningRows
from mild.tuning.settings import ChoosingSettings
from mild.tuning.tasks import make_task, search_folds

SMALL, LARGE = 1, 0  # in a table, experts are in the order of their names
THRESHOLDS = np.linspace(0, 1, 9)


@dataclass
class Thresholds(ChoosingSettings):
    """The large expert for queries above a difficulty, which is known exactly."""

    def held_out_choices(self, rows):
        return np.where(rows.X > THRESHOLDS, LARGE, SMALL)

    def settings(self):
        return [Setting(TRADE_OFF, float(threshold)) for threshold in THRESHOLDS]


@dataclass
class ThresholdHeads:
    """What a tuned router does at the settings of ``Thresholds``."""

    threshold: float = 0.0

    @property
    def heads(self):
        return self

    def with_prices(self, price_weight):
        return ThresholdHeads(price_weight)

    def predict(self, X):
        return np.where(X[:, 0] > self.threshold, LARGE, SMALL)


def draw_queries(n, rng):
    """Difficulties of queries, and which of them each expert gets right.

    The small expert fails more the harder a query is; the large one seldom fails.
    """
    difficulty = rng.random(n)
    right_small = (rng.random(n) > difficulty).astype(float)
    right_large = (rng.random(n) > 0.1).astype(float)
    return difficulty, right_small, right_large


def draw_task(n, seed, hidden=0, group_size=1):
    """A task of such queries, and their features, which are the difficulties."""
    rng = np.random.default_rng(seed)
    difficulty, right_small, right_large = draw_queries(n, rng)
    right_small[:hidden] = np.nan
    table = mild.read_outcomes(
        pa.table(
            {
                "prompt": [f"question {number // group_size}" for number in range(n)],
                "correct__small": right_small,
                "correct__large": right_large,
                "cost__small": np.full(n, 0.001),
                "cost__large": 0.005 + 0.01 * rng.random(n),
            }
        )
    )
    return make_task(table, CostTerms(), needs_prices=True), difficulty[:, None]


def draw_rows(n, seed, hidden=0, group_size=1):
    """Rows to choose settings on."""
    task, X = draw_task(n, seed, hidden, group_size)
    return TuningRows(task, X, same_features(X, search_folds(task, 5)), None, 1)


def judge(rows, can_mix=True):
    return cross_fit([Thresholds()], rows, can_mix)


def test_every_expert_and_setting_has_the_means_of_its_rows():
    rows = draw_rows(400, 0)
    held_out = judge(rows)
    table = rows.task.table
    assert len(held_out.settings) == 2 + len(THRESHOLDS)
    for index, threshold in enumerate(THRESHOLDS):
        chosen = np.where(rows.X[:, 0] > threshold, LARGE, SMALL)
        assert_allclose(
            held_out.outcomes.scores[:, 2 + index], table.scores[np.arange(400), chosen]
        )
        assert_allclose(
            held_out.outcomes.prices[:, 2 + index], table.prices[np.arange(400), chosen]
        )
    assert held_out.frontier.alone(LARGE).loss_error == 0.0, (
        "the best expert is compared with itself"
    )


def test_errors_are_those_of_a_prediction_for_as_many_new_queries():
    rows = draw_rows(400, 0)
    held_out = judge(rows)
    scores = rows.task.table.scores
    point = held_out.frontier.alone(SMALL)
    assert point.quality_error == pytest.approx(np.sqrt(2 * scores[:, SMALL].var(ddof=1) / 400))
    lost = scores[:, SMALL] - scores[:, LARGE]
    assert point.loss_error == pytest.approx(np.sqrt(2 * lost.var(ddof=1) / 400))
    # New queries of a mix are drawn for one of two settings, which varies as well.
    frontier = held_out.frontier
    for index in range(len(frontier)):
        mix = frontier.point(index)
        if not mix.is_mix:
            continue
        first, second = (held_out.settings.index(setting) for setting in (mix.first, mix.second))
        of_both = held_out.outcomes.scores[:, [first, second]]
        mean = (1 - mix.share) * of_both[:, 0] + mix.share * of_both[:, 1]
        assert mix.quality_error > np.sqrt(2 * mean.var(ddof=1) / 400)


def test_rows_in_which_something_is_unknown_are_left_out():
    assert judge(draw_rows(120, 0, hidden=20)).n_groups == 100
    with pytest.raises(InvalidInputError) as refused:
        judge(draw_rows(60, 0, hidden=59))
    assert refused.value.parameter == "target"


def test_rows_of_one_query_count_once():
    rows = draw_rows(400, 0, group_size=4)
    held_out = judge(rows)
    assert held_out.n_groups == held_out.frontier.n_queries == 100
    means = rows.task.table.scores[:, SMALL].reshape(100, 4).mean(axis=1)
    point = held_out.frontier.alone(SMALL)
    assert point.quality == pytest.approx(means.mean(), abs=0.002)
    assert point.quality_error == pytest.approx(np.sqrt(2 * means.var(ddof=1) / 100))


def test_a_router_of_vectors_divides_no_queries():
    frontier = judge(draw_rows(400, 0), can_mix=False).frontier
    assert not any(frontier.point(index).is_mix for index in range(len(frontier)))
    for share in (0.7, 0.8, 0.9, 0.95):
        assert not Target(keep_quality=share).choose(frontier).point.is_mix
    with_mixes = judge(draw_rows(400, 0)).frontier
    assert Target(keep_quality=0.9).choose(with_mixes).point.is_mix


def expected_loss(point):
    """Loss of quality against the large expert over all queries: difficulty is uniform in [0, 1]."""

    def of_setting(setting):
        if setting.kind != TRADE_OFF:
            return {LARGE: 0.0, SMALL: 0.4}[setting.index]
        # Queries up to the threshold go to the small expert, whose error is the difficulty.
        return setting.number**2 / 2 - 0.1 * setting.number

    return (1 - point.share) * of_setting(point.first) + point.share * of_setting(point.second)


def test_a_target_is_met_as_often_as_stated():
    draws = 80
    n_met = dict.fromkeys((0.5, 0.8, 0.95), 0)
    for seed in range(draws):
        frontier = judge(draw_rows(300, seed)).frontier
        difficulty, right_small, right_large = draw_queries(
            300, np.random.default_rng(10_000 + seed)
        )
        new_X = difficulty[:, None]
        new_scores = np.empty((300, 2))
        new_scores[:, SMALL] = right_small
        new_scores[:, LARGE] = right_large
        is_first = np.random.default_rng(seed).random(300)
        for probability in n_met:
            target = Target(keep_quality=0.9, target_probability=probability)
            point = target.choose(frontier).point
            chosen = []
            for setting in (point.first, point.second):
                if setting.kind == TRADE_OFF:
                    chosen.append(ThresholdHeads(setting.number).predict(new_X))
                else:
                    chosen.append(np.full(300, setting.index))
            final = np.where(is_first < point.share, chosen[1], chosen[0])
            quality = new_scores[np.arange(300), final].mean()
            n_met[probability] += quality >= 0.9 * new_scores[:, LARGE].mean()
    for probability, count in n_met.items():
        error = np.sqrt(probability * (1 - probability) / draws)
        assert probability - 0.1 - error <= count / draws <= probability + 0.15 + error


def certify(held_out, calibration, target, seed=0):
    kept = CalibrationRows(*calibration)
    return HoldLimit(target, kept, ThresholdHeads(), seed).certified(held_out)


def test_a_certified_loss_holds_in_at_least_the_guaranteed_share_of_samples():
    target = Target(max_quality_loss=0.05, guarantee=0.8)
    held_out = judge(draw_rows(300, 1000))
    draws = 60
    n_certified = 0
    n_cheaper = 0
    n_broken = 0
    for seed in range(draws):
        found = certify(held_out, draw_task(300, seed), target, seed)
        assert found.is_certified or found.point.expert == LARGE
        n_certified += found.is_certified
        n_cheaper += found.is_certified and found.point.expert != LARGE
        n_broken += expected_loss(found.point) > 0.05
    assert n_certified > draws / 2, "the test would be empty"
    assert n_cheaper > draws / 3
    assert n_broken <= draws * (0.2 + 3 * np.sqrt(0.2 * 0.8 / draws))


def test_the_best_expert_is_asked_where_nothing_can_be_certified():
    target = Target(max_quality_loss=0.01, guarantee=0.95)
    found = certify(judge(draw_rows(100, 1)), draw_task(60, 2), target)
    assert (found.is_certified, found.point.expert) == (False, LARGE)
    assert found.rows_needed is None or found.rows_needed > 60


def test_calibration_rows_choose_neither_the_reference_nor_the_points():
    target = Target(max_quality_loss=0.2, guarantee=0.8)
    held_out = judge(draw_rows(400, 1))
    calibration_task, X = draw_task(400, 2)
    table = calibration_task.table
    spoiled_scores = table.scores.copy()
    spoiled_scores[:, SMALL] = 0.0
    spoiled = replace(calibration_task, table=replace(table, scores=spoiled_scores))
    points_tested = []
    for task in (calibration_task, spoiled):
        limit = HoldLimit(target, CalibrationRows(task, X), ThresholdHeads())
        points_tested.append(limit._points_to_test(held_out))
    assert points_tested[0] == points_tested[1]
    assert any(point.is_mix for point in points_tested[0])
    assert limit.certified(held_out).point.expert != SMALL
    assert certify(held_out, (calibration_task, X), target).is_certified
