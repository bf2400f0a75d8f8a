"""Tuning with answers: cascades beside routers, under the same loss, targets and guarantee."""

import json

import numpy as np
import pyarrow as pa
import pytest

import mild
from answer_table_cases import answer_columns, answer_table, fitted_cascade
from mild.artifact import Router
from mild.artifact.targets import Target
from mild.data.cost_terms import CostTerms
from mild.errors import MildError
from mild.metrics.operating_points import Frontier
from mild.policies import CascadePolicy, PricedPolicy
from mild.policies.cascade import AgreementTable
from mild.tuning import lowest_cost, settings
from mild.tuning.cascades import describe_cascade
from mild.tuning.guarantees import HoldLimit
from mild.tuning.request import TuneRequest
from mild.tuning.target_tuning import _calibration_split
from mild.tuning.tasks import make_task
from mix_cases import mixed_cascades

NAMES = ["large", "small", "medium"]
PRICES = {"large": 0.02, "small": 0.001, "medium": 0.002}
SEARCH = mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], cv=3, n_jobs=1)
QUICK = {"search": SEARCH}


def columns_of(n=300, seed=0, biased=False, answers=True):
    """Sums. The cheap experts agree exactly when both are right; if biased, they always agree."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(10, 99, n)
    right = {"large": rng.random(n) < 0.97, "small": rng.random(n) < 0.8}
    right["medium"] = right["small"] if biased else rng.random(n) < 0.8
    columns = {"query": [f"question {i} about {truth[i] % 7}" for i in range(n)]}
    for k, name in enumerate(NAMES):
        # Biased ones look like right ones: two digits.
        wrong = 109 - truth if biased else truth + 100 * (k + 1)
        columns[f"correct__{name}"] = right[name].astype(int).tolist()
        columns[f"cost__{name}"] = [PRICES[name]] * n
        columns[f"latency_ms__{name}"] = [100.0 * (k + 1)] * n
        if answers:
            columns[f"answer__{name}"] = np.where(right[name], truth, wrong).astype(str).tolist()
    return columns


def table_of(**options):
    return mild.read_outcomes(pa.table(columns_of(**options)))


@pytest.fixture(scope="module")
def kept():
    """A cascade for a target of quality."""
    return mild.tune(table_of(), keep_quality=0.97, cascade=True, **QUICK)


@pytest.fixture(scope="module")
def by_loss():
    """A cascade that is chosen by the loss, without a target."""
    return mild.tune(table_of(), price_weight=10, cascade=True, **QUICK)


def frontier_of(result):
    return Frontier.from_dict(result.router.info.frontier, result.router.experts)


def test_a_quality_is_kept_by_a_cascade_at_fewer_dollars(kept):
    assert kept.uses_cascade
    assert kept.target.met
    for steps in kept.cascade["steps"]:
        if len(steps) > 1:
            assert set(steps[0]) <= {"small", "medium"}
            assert steps[-1] == ["large"]
    frontier = frontier_of(kept)
    without = Target(keep_quality=0.97).choose(frontier.without_cascades()).point
    assert kept.target.dollars_per_1000 < 0.5 * without.dollars
    assert "cascade" in kept.decides_as
    assert kept.verdict.router == "the cascade"
    assert not kept.routes_as_constant


@pytest.fixture(scope="module")
def agreeing():
    """A cascade on a table whose wrong answers look like right ones."""
    return mild.tune(answer_table(), keep_quality=0.98, cascade=True, **QUICK)


def test_the_figures_of_a_cascade_are_what_its_runs_paid(agreeing):
    """The saved policy on other rows, near its held-out figures."""
    table = answer_table(2000, seed=7)
    run = agreeing.router.cascade.run(agreeing.router.features(table.queries), table.answers)
    assert run.answer_scores(table.scores).mean() == pytest.approx(
        agreeing.target.quality, abs=0.03
    )
    interval = agreeing.verdict.target.dollars_per_1000
    assert interval.estimate == agreeing.target.dollars_per_1000
    assert interval.low < 1000 * run.total_prices(table.prices).mean() < interval.high
    # The reference is asked in the rows that come to its step.
    share = run.asked[:, table.experts.index("strong")].mean()
    assert agreeing.verdict.target.reference_share.estimate == pytest.approx(share, abs=0.1)
    seconds = run.seconds(table.latencies).mean()
    assert agreeing.cascade["seconds"] == pytest.approx(seconds, rel=0.15)
    assert agreeing.cascade["other_seconds"] == pytest.approx(2.0)
    assert any("An answer takes" in sentence for sentence in agreeing.sentences)


def test_of_two_cascades_the_share_of_each_is_said():
    table = answer_table()
    task = make_task(table, CostTerms())
    (first, second) = describe_cascade(mixed_cascades(share=0.3), task, None, None, "strong")[
        "sentences"
    ]
    assert first.startswith("70 % of the queries: the cascade asks ")
    assert second == "30 % of the queries: always strong."
    alone = fitted_cascade(table)
    (sentence,) = describe_cascade(alone, task, None, None, "strong")["sentences"]
    assert sentence.startswith("The cascade asks ")


def test_the_quality_of_a_cascade_is_not_overstated_where_answers_are_nearly_all_alike(kept):
    """Wrong answers are told by their digits: the probabilities of a gate lie in two narrow bunches.

    A threshold within a bunch divides it otherwise in each fit; without the folds it cuts off too much.
    """
    table = table_of(n=2000, seed=7)
    run = kept.router.cascade.run(kept.router.features(table.queries), table.answers)
    assert run.answer_scores(table.scores).mean() >= kept.target.quality - 0.03


def test_a_cascade_is_saved_with_the_router_without_answers(kept, tmp_path):
    loaded = mild.load(kept.router.save(tmp_path / "router"))
    table = table_of()
    X = loaded.features(table.queries)
    first = kept.router.cascade.run(X, table.answers)
    second = loaded.cascade.run(X, table.answers)
    assert (first.expert == second.expert).all()
    assert (first.asked == second.asked).all()
    # Without answers, the better of the settings that would meet the target decides.
    frontier = frontier_of(kept)
    without = Target(keep_quality=0.97).choose(frontier.without_cascades()).point
    assert without.quality >= 0.97 * frontier.reference.quality - 1e-9
    X = X[:, : loaded.cascade.direct.n_features]
    right = table.scores[np.arange(len(table)), loaded.cascade.direct.predict(X)].mean()
    assert right >= 0.95 * table.scores.max(axis=0).mean() - 0.1
    assert loaded.info.target.t is None


def test_a_cascade_can_be_set_to_other_targets(kept, tmp_path):
    loaded = mild.load(kept.router.save(tmp_path / "router"))
    cheap = loaded.with_target(keep_quality=0.5)
    assert cheap.cascade is None
    assert cheap.info.target.setting in ("always small", "a trade-off")
    # And back, from a router that is no cascade.
    again = cheap.with_target(keep_quality=0.97)
    assert again.info.target == kept.target
    table = table_of()
    X = loaded.features(table.queries)
    one = again.cascade.run(X, table.answers)
    other = kept.router.cascade.run(X, table.answers)
    assert (one.asked == other.asked).all()


def test_the_loss_decides_where_there_is_no_target(by_loss):
    found = by_loss
    assert found.uses_cascade
    assert found.verdict.pays is True
    assert found.verdict.router == "the cascade"
    # It was chosen from two, and its interval holds for both.
    assert (found.verdict.n_candidates, found.verdict.confidence) == (2, 0.95)
    # On other rows, its loss is lower by as much as was said.
    new = table_of(n=2000, seed=7)
    run = found.router.cascade.run(found.router.features(new.queries), new.answers)
    loss = 1 - run.answer_scores(new.scores).mean() + 10 * run.total_prices(new.prices).mean()
    constant = new.experts.index(found.verdict.constant)
    constant_loss = 1 - new.scores[:, constant].mean() + 10 * new.prices[:, constant].mean()
    assert found.verdict.estimate == pytest.approx(loss - constant_loss, abs=0.03)
    document = found.as_dict()
    assert document["cascade"]["steps"]
    assert document["answers_unused"] is None
    json.dumps(document)
    assert any("Compared with the router without answers" in one for one in found.sentences)
    assert "cascade" in found._repr_html_()


def test_betas_and_seconds_of_every_expert_that_is_asked_count():
    """Asking the cheap experts costs as much as large: a cascade cannot pay."""
    beta = {"small": 0.5, "medium": 0.5, "large": 0.5}
    found = mild.tune(table_of(), beta=beta, cascade=True, **QUICK)
    assert found.cascade["sentences"][0].startswith("No cascade was taken")
    assert not found.uses_cascade
    slow = mild.tune(table_of(), latency_weight=5.0, cascade=True, **QUICK)
    assert not slow.uses_cascade


@pytest.mark.parametrize("options", [{"price_weight": 1}, {"keep_quality": 0.99}])
def test_experts_that_share_a_bias_are_not_trusted(options):
    table = table_of(biased=True)
    found = mild.tune(table, cascade=True, **options, **QUICK)
    if found.uses_cascade:
        run = found.router.cascade.run(found.router.features(table.queries), table.answers)
        assert run.asked[:, table.experts.index("large")].mean() > 0.9
    else:
        assert found.cascade["sentences"][-1].startswith("No cascade ")


def test_a_guarantee_fixes_cascades_and_mixes_before_the_calibration_rows(monkeypatch):
    """Whatever the calibration rows hold, the points that are tested on them are the same."""
    tested = []
    losses_of = HoldLimit._losses

    def spied(self, held_out, points, task):
        if task is self.calibration.task:
            cascades = [(one.steps, one.threshold) for one in self.tuned.cascades]
            tested.append((task.table.queries, points, cascades))
        return losses_of(self, held_out, points, task)

    monkeypatch.setattr(HoldLimit, "_losses", spied)
    options = {"max_quality_loss": 0.05, "guarantee": 0.9, "cascade": True, **QUICK}
    columns = columns_of(n=1200)
    found = mild.tune(mild.read_outcomes(pa.table(columns)), **options)
    assert found.target.certified
    assert found.uses_cascade
    calibration = tested[0][0]
    assert found.verdict.n_groups == len(calibration) == 600
    # In the calibration rows, agreement means nothing now.
    for i in map(columns["query"].index, calibration):
        columns["correct__small"][i] = columns["correct__medium"][i] = 0
    spoiled = mild.tune(mild.read_outcomes(pa.table(columns)), **options)
    assert spoiled.target.certified is False
    assert spoiled.decides_as == "always large"
    first, second = tested
    assert list(first[0]) == list(second[0])
    assert first[1] == second[1]
    assert any(point.is_mix for point in first[1])
    assert first[2] == second[2]


def test_without_the_option_it_is_said_what_answers_would_save():
    found = mild.tune(table_of(), keep_quality=0.97, **QUICK)
    assert found.cascade is None
    assert not found.uses_cascade
    about = found.answers_unused
    assert about["kept"] > 0.95
    assert about["saved"] > 0.5
    assert "cascade=True" in found.sentences[-1]
    assert mild.tune(table_of(answers=False), **QUICK).answers_unused is None


@pytest.mark.parametrize(
    ("columns", "cascade"),
    [
        ({"answers": False}, True),
        ({}, 0),
        ({}, 1),
        ({}, 2.5),
        ({}, "yes"),
        ({}, None),
    ],
)
def test_bad_input_is_refused_with_a_code(columns, cascade):
    with pytest.raises(MildError) as caught:
        mild.tune(table_of(**columns), cascade=cascade, **QUICK)
    assert caught.value.code == "invalid_cascade"


def test_a_number_is_the_most_calls_of_a_cascade():
    table = mild.read_outcomes(pa.table(answer_columns()))
    for cascade in (True, 3):
        found = mild.tune(table, keep_quality=0.95, cascade=cascade, **QUICK)
        assert max(len(one.order) for one in found.router.cascades) == 3
    # Whether two of these experts agree says too little.
    assert not mild.tune(table, keep_quality=0.95, cascade=2, **QUICK).uses_cascade


def test_one_expert_and_answers_that_never_agree_are_refused():
    columns = columns_of(60)
    one = {k: v for k, v in columns.items() if "medium" not in k and "small" not in k}
    with pytest.raises(MildError) as caught:
        mild.tune(mild.read_outcomes(pa.table(one)), cascade=True, **QUICK)
    assert caught.value.code == "one_expert"
    for k, name in enumerate(NAMES):
        columns[f"answer__{name}"] = [str(1000 * k + i) for i in range(60)]
    with pytest.raises(MildError) as caught:
        mild.tune(mild.read_outcomes(pa.table(columns)), cascade=True, **QUICK)
    assert caught.value.code == "invalid_cascade"
    assert "answer_kind" in str(caught.value)


def test_prices_are_needed_for_a_target_of_dollars():
    columns = {k: v for k, v in columns_of(60).items() if not k.startswith("cost__")}
    with pytest.raises(MildError) as caught:
        mild.tune(mild.read_outcomes(pa.table(columns)), max_dollars=2, cascade=True, **QUICK)
    assert caught.value.code == "invalid_max_dollars"


def test_a_cascade_does_not_depend_on_the_order_of_columns(by_loss):
    columns = columns_of()
    first = by_loss
    turned = pa.table(dict(reversed(columns.items())))
    second = mild.tune(mild.read_outcomes(turned), price_weight=10, cascade=True, **QUICK)
    assert first.cascade["steps"] == second.cascade["steps"]
    assert first.verdict.estimate == pytest.approx(second.verdict.estimate)
    # With a target as well.
    first = mild.tune(mild.read_outcomes(pa.table(columns)), keep_quality=0.97, cascade=2, **QUICK)
    second = mild.tune(mild.read_outcomes(turned), keep_quality=0.97, cascade=2, **QUICK)
    assert first.target.quality == pytest.approx(second.target.quality)
    assert first.target.dollars_per_1000 == pytest.approx(second.target.dollars_per_1000)


def test_a_cascade_in_another_order_of_experts_does_the_same(tmp_path):
    """Saved and loaded."""
    table, rng = table_of(), np.random.default_rng(0)
    order, places = np.array([1, 2, 0]), np.array([2, 0, 1])
    errors = rng.normal(scale=0.05, size=(3, 2)), np.array([0.1, 0.1, 0.02])
    heads = PricedPolicy(*errors, np.zeros((3, 2)), np.zeros(3), np.zeros(3), 1.0, "ridge")
    codes = table.answers.codes[:, order]
    scores = table.scores[:, order]
    fitted = CascadePolicy(
        "number",
        [[0, 1], [2]],
        0.8,
        AgreementTable.of_rows(codes, scores, np.ones(300)),
        heads,
    )
    X = rng.normal(size=(300, 2))
    first = fitted.run(X, table.answers.of_experts(order))
    Router(fitted.with_experts(places), NAMES).save(tmp_path / "r")
    second = mild.load(tmp_path / "r").policy.run(X, table.answers)
    assert 0 < (first.accepted_step == 0).mean() < 1
    assert (order[first.expert] == second.expert).all()
    assert (first.asked[:, places] == second.asked).all()


def test_cascades_are_settings_beside_single_experts(kept):
    frontier = frontier_of(kept)
    kinds = {setting.kind for setting in frontier.settings}
    # The questions say nothing about who is right, so that no trade-off beats a mix of two experts.
    assert kinds == {"expert", "cascade"}
    settings_shown = {row["setting"] for row in kept.rows}
    assert {"always large", "a cascade"} <= settings_shown
    # From the cheapest to the best one, each cascade adds quality.
    number = int(frontier.path[frontier.path >= 0].max())
    path = frontier.path == number
    assert (np.diff(frontier.dollars[path]) > -1e-9).all()


@pytest.mark.parametrize("goal", [{"keep_quality": 0.97}, {"price_weight": 1.0}])
def test_ctrl_c_in_the_search_of_cascades_ends_it(monkeypatch, goal):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(settings, "fit_cascades", interrupted)
    monkeypatch.setattr(lowest_cost, "cheapest_cascade", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mild.tune(table_of(), cascade=True, **goal, **QUICK)


def partial_columns(n, share, seed=1):
    """A share of the scores and answers of each expert is not known."""
    columns, rng = columns_of(n), np.random.default_rng(seed)
    for name in NAMES:
        gone = rng.random(n) < share
        for key in (f"correct__{name}", f"answer__{name}"):
            values = zip(gone, columns[key], strict=True)
            columns[key] = [None if hidden else value for hidden, value in values]
    return columns


def test_figures_are_known_on_a_partial_table():
    """The cascades of all rows may ask an expert whose score is unknown where those of a fold do not."""
    table = mild.read_outcomes(pa.table(partial_columns(300, 0.3)))
    found = mild.tune(table, keep_quality=0.95, cascade=True, **QUICK)
    frontier = frontier_of(found)
    assert np.isfinite(frontier.quality).all()
    assert 60 < frontier.n_queries < 150, "rows in which everything is known"
    assert "rows are left out" in found.verdict.left_out


def test_a_constant_table_says_what_a_cascade_would_save():
    """One expert is right in every row, and others are cheaper."""
    columns = {**columns_of(), "correct__large": [1] * 300}
    columns["answer__large"] = [str(i) for i in range(1000, 1300)]
    for name, wrong in (("small", 4000), ("medium", 6000)):
        right = zip(columns[f"correct__{name}"], range(1000, 1300), strict=True)
        columns[f"answer__{name}"] = [str(i if ok else i + wrong) for ok, i in right]
    found = mild.tune(mild.read_outcomes(pa.table(columns)), price_weight=0, **QUICK)
    assert found.routes_as_constant
    assert found.answers_unused["saved"] > 0.5


def test_answers_of_one_expert_only_are_refused_with_the_reason():
    columns = columns_of(60)
    del columns["answer__small"], columns["answer__medium"]
    with pytest.raises(MildError, match="at least two experts") as caught:
        mild.tune(mild.read_outcomes(pa.table(columns)), cascade=True, **QUICK)
    assert caught.value.code == "invalid_cascade"


def test_the_kind_of_answers_is_found_without_the_calibration_rows():
    """In these only, answers are sentences, so that the whole table looks otherwise."""
    columns = columns_of(400)

    def split(**options):
        table = mild.read_outcomes(pa.table(columns), **options)
        task = make_task(table, CostTerms(), needs_prices=True)
        target = Target(max_quality_loss=0.1, guarantee=0.9)
        request = TuneRequest(task, target, SEARCH, 4, None, None, 0, None)
        return _calibration_split(request)

    for i in split()[1].table.row_numbers:
        for name in NAMES:
            columns[f"answer__{name}"][i] += " or some other words that come after it, who knows"
    assert mild.read_outcomes(pa.table(columns)).answer_kind != "number"
    assert [part.table.answers.kind for part in split()] == ["number", "number"]
    # What is set stays.
    assert {part.table.answers.kind for part in split(answer_kind="free_text")} == {"free_text"}
