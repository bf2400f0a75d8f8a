"""A verdict by what was asked for: quality kept and dollars saved against a reference."""

import json
from dataclasses import replace

import numpy as np
import pytest

from mild.metrics import Verdict, judge_target
from mild.report import target_lines

NAMES = ["small", "large"]


def case(n=400, seed=0):
    """Scores and prices of two experts, and choices that send half of the rows to the small one."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((n, 2)) < [0.6, 0.9]).astype(float)
    prices = rng.gamma(4.0, [0.0005, 0.01], size=(n, 2))
    return scores, prices, rng.integers(0, 2, n)


def judge(asked, scores, prices, chosen, **options):
    return judge_target(scores, prices, chosen, 1, NAMES, asked, **options)


def verdict(target, rows=400):
    return Verdict(
        estimate=0.1,
        low=0.05,
        high=0.2,
        constant="large",
        n_rows=rows,
        n_groups=rows,
        target=target,
    )


def test_the_figures_by_hand():
    scores, prices, chosen = case()
    found = judge({"keep_quality": 0.5}, scores, prices, chosen)
    every = np.arange(len(chosen))
    own, paid = scores[every, chosen].mean(), prices[every, chosen].mean()
    assert found.quality == pytest.approx(own)
    assert found.quality_kept.estimate == pytest.approx(own / scores[:, 1].mean())
    assert found.quality_loss.estimate == pytest.approx(scores[:, 1].mean() - own)
    assert found.dollars_saved.estimate == pytest.approx(1 - paid / prices[:, 1].mean())
    assert found.dollars_per_1000.estimate == pytest.approx(1000 * paid)
    assert found.reference_share.estimate == pytest.approx(chosen.mean())
    fields = json.loads(json.dumps(verdict(found).as_dict()))["target"]
    assert fields["quality_kept"]["estimate"] == found.quality_kept.estimate
    assert fields["reference"] == "large"


def test_an_interval_does_not_go_beyond_what_is_possible():
    scores, prices, chosen = case()
    found = judge({"max_dollars": 1.0}, scores, prices, chosen)
    wide = replace(found.dollars_saved, low=-0.262, estimate=0.399, high=1.06)
    below = replace(found.dollars_per_1000, low=-0.5, estimate=3.0, high=6.5)
    found = replace(found, dollars_saved=wide, dollars_per_1000=below)
    assert "saves 39.9 % (-26.2 to 100.0) of its dollars" in found.words
    assert "at $3.00 (0.00 to 6.50) per 1,000 queries" in found.words
    fields = found.as_dict()
    assert fields["dollars_saved"] == {"estimate": 0.399, "low": -0.262, "high": 1.0}
    assert fields["dollars_per_1000"]["low"] == 0


def test_the_ends_of_a_price_have_the_digits_of_its_estimate():
    found = judge({"max_dollars": 1.0}, *case())
    around = replace(found.dollars_per_1000, estimate=0.1, low=0.09996, high=0.104)
    assert "at $0.10 (0.10 to 0.10) per" in replace(found, dollars_per_1000=around).words
    lines = target_lines(replace(found, dollars_per_1000=around).as_dict())
    (line,) = [line for line in lines if line["name"].startswith("dollars per")]
    assert [line[end] for end in ("estimate", "low", "high")] == ["$0.10", "$0.10", "$0.10"]


@pytest.mark.parametrize(
    ("name", "figure", "sign"),
    [
        ("keep_quality", "quality_kept", 1),
        ("max_quality_loss", "quality_loss", -1),
        ("max_dollars", "dollars_per_1000", -1),
    ],
)
def test_whole_interval_part_of_it_or_none_of_it_meets_a_limit(name, figure, sign):
    known = case()
    interval = getattr(judge({name: 0.5}, *known), figure)
    wide = interval.high - interval.low
    worst, best = (interval.low, interval.high)[::sign]
    places = {
        worst - sign * wide: (True, True),
        (worst + interval.estimate) / 2: (True, None),
        (best + interval.estimate) / 2: (False, None),
        best + sign * wide: (False, False),
    }
    for limit, (met, pays) in places.items():
        found = verdict(judge({name: limit}, *known))
        assert (found.target.met, found.pays) == (met, pays)
        assert found.headline.startswith("Target met" if met else "Target missed")
        assert ("not for certain" in found.sentence) == (pays is None)
        assert "Routing" not in found.sentence
        assert found.rows_needed is None
        assert f"{name} {limit:g}" in found.sentence


def test_of_several_targets_one_that_is_missed_for_certain_decides():
    known = case()
    both = judge({"keep_quality": 0.1, "max_dollars": 1.0}, *known)
    assert (both.met, verdict(both).pays) == (False, False)
    assert verdict(judge({"keep_quality": 0.1, "max_dollars": 39.0}, *known)).pays is True


def test_what_is_not_known_leaves_the_answer_open():
    scores, prices, chosen = case()
    found = judge({"max_dollars": 30.0}, scores, None, chosen)
    assert (found.met, found.dollars_saved, verdict(found).pays) == (None, None, None)
    unpriced = prices.copy()
    unpriced[:, 0] = np.nan
    assert judge({"keep_quality": 0.5}, scores, unpriced, chosen).dollars_saved is None
    assert judge({"keep_quality": 0.5}, np.full_like(scores, np.nan), None, chosen) is None
    assert judge({"keep_quality": 0.5}, 0 * scores, prices, chosen).quality_kept is None


def test_few_groups_decide_nothing_and_one_row_has_no_interval():
    scores, prices, chosen = case()
    found = verdict(judge({"keep_quality": 0.1}, scores, prices, chosen), rows=12)
    assert (found.target.met, found.pays) == (True, None)
    assert "12 rows are too few" in found.sentence
    one = judge({"keep_quality": 0.1}, scores[:1], prices[:1], chosen[:1])
    assert json.dumps(verdict(one, rows=1).as_dict(), allow_nan=False)


def test_a_certificate_decides_whatever_the_interval():
    known = case()
    middle = judge({"max_quality_loss": 0.5}, *known).quality_loss
    limit = (middle.estimate + middle.high) / 2
    open_one = judge({"max_quality_loss": limit}, *known)
    assert verdict(open_one).pays is None
    assert verdict(replace(open_one, certified=True)).pays is True
    assert verdict(replace(open_one, certified=False)).pays is False


def test_other_settings_and_groups_make_intervals_wider():
    scores, prices, chosen = case()
    one = judge({"keep_quality": 0.5}, scores, prices, chosen).quality_kept
    others = np.random.default_rng(1).integers(0, 2, (len(chosen), 30))
    many = judge(
        {"keep_quality": 0.5}, scores, prices, np.column_stack([chosen, others])
    ).quality_kept
    assert many.estimate == pytest.approx(one.estimate)
    assert many.high - many.low > 1.2 * (one.high - one.low)
    twice = [np.repeat(part, 2, axis=0) for part in (scores, prices, chosen)]
    again = judge({"keep_quality": 0.5}, *twice, groups=np.repeat(np.arange(400), 2)).quality_kept
    assert again.high - again.low == pytest.approx(one.high - one.low, rel=0.1)


@pytest.mark.parametrize("hidden", [0.0, 0.3])
def test_intervals_of_ratios_cover_the_truth_about_as_often_as_they_say(hidden):
    rng = np.random.default_rng(3)
    kept, saved = 0, 0
    for seed in range(100):
        scores, prices, chosen = case(150, seed)
        if hidden:
            scores = np.where(rng.random(scores.shape) < hidden, np.nan, scores)
        found = judge({"keep_quality": 0.9}, scores, prices, chosen, confidence=0.9)
        kept += found.quality_kept.low <= 0.75 / 0.9 <= found.quality_kept.high
        saved += (
            found.dollars_saved.low <= 1 - (0.002 + 0.04) / 2 / 0.04 <= found.dollars_saved.high
        )
    # 90 % of 100, and three standard deviations.
    assert 81 <= kept <= 99
    assert 81 <= saved <= 99


def test_few_rows_are_too_few_unless_every_choice_is_the_reference():
    scores, prices = np.ones((3, 2)), np.tile([0.001, 0.01], (3, 1))
    few = judge({"keep_quality": 0.9}, scores, prices, np.zeros(3, int))
    # That the choices are the best constant says nothing about the reference.
    assert few.met
    assert replace(verdict(few, 3), identical=True).pays is None
    same = judge({"keep_quality": 0.9}, scores, prices, np.ones(3, int))
    assert verdict(same, 3).pays is True
    paid = judge({"max_dollars": 20.0}, scores, prices, np.ones(3, int))
    assert verdict(paid, 3).pays is None


def test_of_a_reference_without_quality_every_share_is_kept():
    scores, prices, chosen = case()
    found = judge({"keep_quality": 0.95}, 0 * scores, prices, chosen)
    assert found.quality_kept is None
    assert found.met is True
