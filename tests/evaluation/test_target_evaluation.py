"""Evaluations and reports of a router with a target are about the target."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import mild
from mild.artifact.info import TargetInfo
from mild.report import render

NAMES = ["little", "strong"]
FAST = {"search": mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], cv=3)}


def outcomes(n, seed, right=0.95):
    rng = np.random.default_rng(seed)
    easy = rng.random(n) < 0.6
    little = np.where(easy, rng.random(n) < 0.85, rng.random(n) < 0.1)
    words = np.where(easy, "add the numbers", "prove the theorem")
    return mild.read_outcomes(
        pa.table(
            {
                "prompt": [f"{word} {seed} {i}" for i, word in enumerate(words)],
                "correct__little": little.astype(float),
                "correct__strong": (rng.random(n) < right).astype(float),
                "cost__little": np.full(n, 0.0005),
                "cost__strong": rng.gamma(5.0, 0.002, n),
                "subject": np.where(easy, "sums", "proofs"),
            }
        )
    )


@pytest.fixture(scope="module")
def test_rows():
    return outcomes(400, 1)


@pytest.fixture(scope="module")
def router():
    # The target asks for less than the best expert does, so that by the loss routing does not pay. By a
    # margin it is met for certain.
    target = {"keep_quality": 0.85, "target_probability": 0.99}
    return mild.tune(outcomes(300, 0), **target, **FAST).router


@pytest.fixture(scope="module")
def judged(router, test_rows):
    return mild.evaluate(router, test_rows)


def test_the_target_is_the_headline_where_the_loss_would_say_the_contrary(judged, test_rows):
    verdict, chosen = judged.verdict, judged.judged.chosen
    assert verdict.low > 0, "by its loss, the router does not pay"
    every = np.arange(len(test_rows))
    kept = test_rows.scores[every, chosen].mean() / test_rows.scores[:, 1].mean()
    saved = 1 - test_rows.prices[every, chosen].mean() / test_rows.prices[:, 1].mean()
    assert verdict.target.quality_kept.estimate == pytest.approx(kept)
    assert verdict.target.dollars_saved.estimate == pytest.approx(saved)
    assert (verdict.pays, verdict.target.met) == (True, True)
    assert verdict.headline == "Target met on these rows"
    fields = json.loads(json.dumps(judged.as_dict()))["verdict"]
    assert (fields["pays"], fields["target"]["met"]) == (True, True)
    assert fields["estimate"] == verdict.estimate


def test_the_reference_is_that_of_the_tuning_not_the_best_of_these_rows(router):
    rows = outcomes(400, 2, right=0.3)
    found = mild.evaluate(router, rows)
    assert found.verdict.constant == "little"
    assert found.verdict.target.reference == "strong"
    assert found.verdict.target.quality_kept.estimate > 1
    baselines = {row["key"]: row["expert"] for row in found.figures.baselines}
    assert baselines["fit_constant"] == "strong"
    means = found.document()["figures"]["means"]
    assert means["reference"]["quality"] == pytest.approx(rows.scores[:, 1].mean())


def test_a_target_that_is_missed_is_said_to_be_missed(router, test_rows):
    asked = replace(router.info.target, target={"keep_quality": 0.999})
    strict = replace(router, info=replace(router.info, target=asked))
    found = mild.evaluate(strict, test_rows)
    assert (found.verdict.pays, found.verdict.target.met) == (False, False)
    assert found.verdict.sentence.startswith("Target missed on these rows: ")


def test_other_prices_or_a_lost_reference_end_the_target(router, test_rows):
    assert mild.evaluate(router, test_rows, price_weight=3.0).verdict.target is None
    gone = TargetInfo({"keep_quality": 0.9}, None, 1.0, None, True, None, "huge", "Said.")
    other = replace(router, info=replace(router.info, target=gone))
    assert mild.evaluate(other, test_rows).verdict.target is None


def test_the_report_follows_the_target(judged):
    document = judged.document()
    assert document["frontier"]["target"]["kept"] is judged.verdict.target.met
    assert document["prices_unused"] is None
    page = render(document)
    assert "Target met on these rows</h1>" in page
    assert 'class="verdict pays"' in page
    assert "of the possible gain" not in page
    assert "does not pay" not in page
    assert "quality kept" in page
    assert "dollars saved" in page
    assert "trade-off t" not in page


def test_the_report_says_where_no_setting_meets_the_target(router, test_rows):
    asked = replace(router.info.target, target={"keep_quality": 1.2})
    strict = replace(router, info=replace(router.info, target=asked))
    document = mild.evaluate(strict, test_rows).document()
    assert not any(row["met"] for row in document["certainty"])
    page = render(document)
    assert "not met with 50 %, 80 % or 95 %: nearest is always strong" in page
    assert '<th scope="col">certainty</th>' not in page, "one line in place of equal rows"
    document["certainty"][0]["quality_kept"] = 0.9
    assert render(document).count("not met: nearest is always strong") == 3


def test_the_report_shows_what_the_guarantee_costs(test_rows):
    found = mild.tune(outcomes(300, 0), max_quality_loss=0.2, guarantee=0.8, **FAST)
    calibrated = found.verdict.target
    assert calibrated.certified, "the test would be empty"
    document = mild.evaluate(found.router, test_rows).document()
    *_, row = document["certainty"]
    assert len(document["certainty"]) == 4
    assert (row["certainty"], row["met"]) == ("guarantee 0.8", True)
    assert row["setting"] == found.target.setting
    assert row["quality_kept"] == pytest.approx(calibrated.quality_kept.estimate)
    assert row["dollars_per_1000"] == pytest.approx(calibrated.dollars_per_1000.estimate)
    page = render(document)
    assert '<th scope="row">guarantee 0.8</th>' in page
    assert "those of the calibration rows" in page
    # Another target of the same router has no guarantee.
    other = found.router.with_target(keep_quality=0.9)
    assert len(mild.evaluate(other, test_rows).document()["certainty"]) == 3


def test_a_report_says_which_prices_the_loss_leaves_out(router, test_rows):
    plain = mild.fit(outcomes(300, 0))
    document = mild.evaluate(plain, test_rows).document()
    assert "keep_quality=1.0" in document["prices_unused"]
    assert "Dollars are not part of the loss" in render(document)
    weighed = mild.fit(outcomes(300, 0), price_weight=1.0)
    assert mild.evaluate(weighed, test_rows).document()["prices_unused"] is None
    # The frontier has the strong expert's quality for less: the saving is that of its points.
    always = replace(router, info=replace(router.info, target=None))
    points = mild.evaluate(always, test_rows).document()
    own = next(p for p in points["frontier"]["points"] if p["kind"] == "router")
    good = [
        p["dollars"]
        for p in points["frontier"]["points"]
        if p["kind"] in ("constant", "operating") and p["quality"] >= own["quality"] - 1e-9
    ]
    cheaper = min(good) < own["dollars"]
    assert ("% less" in points["prices_unused"]) == cheaper
