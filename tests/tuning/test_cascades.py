"""Tuning with answers: cascades beside routers, under the same loss, targets and guarantee."""

import json

import numpy as np
import pyarrow as pa
import pytest
from mild.tuning.targets import HeldOut, certify_loss, measure, solve, traded_prices

import mild
from answer_table_cases import answer_columns
from mild.artifact import Router
from mild.artifact.targets import Target
from mild.data.cost_terms import CostTerms
from mild.errors import MildError, UnsupportedError
from mild.policies import CascadePolicy, PricedPolicy
from mild.policies.cascade import AgreementTable
from mild.routers import ConstantRouter
from mild.routers.cascade import CascadeCandidate
from mild.tuning.cascades import (
    CascadeOutcomes,
    FittedCascades,
    fit_cascades,
    price_weights,
)
from mild.tuning.fitting import fit_task, make_step
from mild.tuning.tasks import make_task, search_folds
from mild.tuning.tune import _calibration_split

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


def test_a_quality_is_kept_by_a_cascade_at_fewer_dollars(kept):
    assert (kept.cascade.used, kept.target.cascade, kept.target.met) == (True, True, True)
    first, *_, last = kept.cascade.steps
    assert set(first["experts"]) <= {"small", "medium"}
    assert last["experts"] == ["large"]
    assert sum(step["rows"] for step in kept.cascade.steps) == 300
    assert kept.target.saved > 0.5
    assert kept.cascade.without_answers["dollars_per_1000"]["high"] < 0
    assert kept.decides_as == "a cascade for keep_quality 0.97"
    assert not kept.routes_as_constant


def test_the_figures_of_a_cascade_are_what_its_runs_paid(kept):
    """The saved policy on the rows of the table, near its held-out figures."""
    table = table_of()
    policy = kept.router.policy
    assert isinstance(policy, CascadePolicy)
    assert [[table.expert_names[k] for k in step] for step in policy.steps] == [
        step["experts"] for step in kept.cascade.steps
    ]
    run = policy.run(kept.router.features(table.queries), table.answers)
    figures = kept.as_dict()["cascade"]
    assert run.given(table.scores).mean() == pytest.approx(figures["quality"], abs=0.03)
    assert 1000 * run.paid(table.prices).mean() == pytest.approx(
        figures["dollars_per_1000"], rel=0.2
    )
    assert [step["rows"] for step in figures["steps"]] == np.bincount(run.step).tolist()
    # The reference is asked in the rows that come to its step.
    share = run.asked[:, table.expert_names.index("large")].mean()
    assert kept.target.reference_share.estimate == pytest.approx(share, abs=0.1)
    assert kept.verdict.target.reference_share.estimate == kept.target.reference_share.estimate


def test_a_cascade_is_saved_with_the_router_without_answers(kept, tmp_path):
    kept.router.save(tmp_path / "router")
    loaded = mild.load(tmp_path / "router")
    table = table_of()
    X = loaded.features(table.queries)
    first, second = (one.policy.run(X, table.answers) for one in (kept.router, loaded))
    assert (first.expert == second.expert).all()
    # Without answers the same target is met by one expert, or a trade-off.
    without = mild.tune(table, keep_quality=0.97, **QUICK)
    assert (loaded.policy.direct.predict(X) == without.router.predict(X)).all()
    assert loaded.info.target.t is None
    with pytest.raises(UnsupportedError) as caught:
        loaded.with_target(keep_quality=0.9)
    assert caught.value.parameter == "target"


def test_the_loss_decides_where_there_is_no_target():
    found = mild.tune(table_of(), price_weight=10, cascade=True, **QUICK)
    cascade = found.cascade
    assert (found.cascade.used, found.verdict.pays) == (True, True)
    assert cascade.without_answers["cost"]["high"] < 0
    assert found.verdict.router == "the cascade"
    # It was chosen from two, and its interval holds for both.
    assert (found.verdict.n_candidates, found.verdict.confidence) == (2, 0.95)
    # By hand: the loss of the cascade is its error and ten times its dollars.
    loss = 1 - cascade.quality + 10 * cascade.dollars_per_1000 / 1000
    assert cascade.mean_cost == pytest.approx(loss)
    document = found.as_dict()
    assert document["cascade"]["without_answers"]["cost"]["high"] < 0
    assert document["answers_unused"] is None
    json.dumps(document)
    assert any("Compared with the router without answers" in one for one in found.sentences)
    assert "cascade" in found._repr_html_()


def test_betas_and_seconds_of_every_expert_that_is_asked_count():
    """Asking the cheap experts costs as much as large: a cascade cannot pay."""
    beta = {"small": 0.5, "medium": 0.5, "large": 0.5}
    found = mild.tune(table_of(), beta=beta, cascade=True, **QUICK)
    assert found.cascade is None or not found.cascade.used
    assert not isinstance(found.router.policy, CascadePolicy)
    slow = mild.tune(table_of(), latency_weight=5.0, cascade=True, **QUICK)
    assert slow.cascade is None or not slow.cascade.used


@pytest.mark.parametrize("options", [{"price_weight": 1}, {"keep_quality": 0.99}])
def test_experts_that_share_a_bias_are_not_trusted(options):
    table = table_of(biased=True)
    found = mild.tune(table, cascade=True, **options, **QUICK)
    policy = found.router.policy
    if isinstance(policy, CascadePolicy):
        run = policy.run(found.router.features(table.queries), table.answers)
        assert run.asked[:, table.expert_names.index("large")].mean() > 0.9
    else:
        assert found.notes[-1].startswith("no cascade ")


def test_a_guarantee_fixes_the_cascades_before_the_calibration_rows(monkeypatch):
    """Whatever the calibration rows hold, the cascades that are tested on them are the same."""
    tested = []
    of = FittedCascades.of

    def spied(self, task, X):
        cascades = [(one.steps, one.threshold) for one in self.router.candidates_]
        tested.append((task.table.queries, self.held.weights, cascades))
        return of(self, task, X)

    monkeypatch.setattr(FittedCascades, "of", spied)
    options = {"max_quality_loss": 0.05, "guarantee": 0.9, "cascade": True, **QUICK}
    columns = columns_of(n=1200)
    found = mild.tune(mild.read_outcomes(pa.table(columns)), **options)
    assert (found.target.certified, found.target.cascade, found.cascade.used) == (True, True, True)
    calibration = tested[0][0]
    assert found.target.n_groups == len(calibration) == 600
    # Without answers the reference is asked, which keeps the limit for certain.
    X = found.router.features(columns["query"][:5])
    assert (found.router.policy.direct.predict(X) == NAMES.index("large")).all()
    # In the calibration rows, agreement means nothing now.
    for i in map(columns["query"].index, calibration):
        columns["correct__small"][i] = columns["correct__medium"][i] = 0
    spoiled = mild.tune(mild.read_outcomes(pa.table(columns)), **options)
    assert spoiled.target.certified is False
    assert spoiled.decides_as == "always large"
    for first, second in zip(*tested, strict=True):
        assert list(first) == list(second)


def test_without_the_option_it_is_said_what_answers_would_save():
    found = mild.tune(table_of(), keep_quality=0.97, **QUICK)
    assert found.cascade is None
    assert not isinstance(found.router.policy, CascadePolicy)
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
    n_calls = {}
    for cascade in (True, 3, 2):
        found = mild.tune(table, keep_quality=0.98, cascade=cascade, **QUICK)
        assert found.cascade.used
        n_calls[cascade] = sum(len(step) for step in found.router.policy.steps)
    assert n_calls == {True: 3, 3: 3, 2: 2}


def test_one_expert_and_answers_that_never_agree_are_refused():
    columns = columns_of(60)
    one = {k: v for k, v in columns.items() if "medium" not in k and "small" not in k}
    with pytest.raises(MildError) as caught:
        mild.tune(mild.read_outcomes(pa.table(one)), cascade=True, **QUICK)
    assert caught.value.code == "invalid_cascade"
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


def test_a_cascade_does_not_depend_on_the_order_of_columns():
    columns = columns_of()
    first = mild.tune(mild.read_outcomes(pa.table(columns)), price_weight=10, cascade=True, **QUICK)
    turned = pa.table(dict(reversed(columns.items())))
    second = mild.tune(mild.read_outcomes(turned), price_weight=10, cascade=True, **QUICK)
    assert first.cascade.steps == second.cascade.steps
    assert first.cascade.mean_cost == pytest.approx(second.cascade.mean_cost)


def test_a_cascade_in_another_order_of_experts_does_the_same(tmp_path):
    """With a gate and a first step that depend on the query, saved and loaded."""
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
        rng.normal(scale=0.1, size=7) + np.array([1, 0, 0, 0, 0, -5, 0]),
        heads,
        0.12,
    )
    X = rng.normal(size=(300, 2))
    first = fitted.run(X, table.answers.of_experts(order))
    Router(fitted.with_experts(places), NAMES).save(tmp_path / "r")
    second = mild.load(tmp_path / "r").policy.run(X, table.answers)
    assert 0 < (first.step == 0).mean() < 1
    assert (order[first.expert] == second.expert).all()
    assert (first.asked[:, places] == second.asked).all()


def test_every_cascade_that_is_best_at_some_price_has_a_weight():
    costs = [(0.5, 1.0), (0.3, 2.0), (0.29, 3.0), (0.1, 4.0), (0.09, 9.0)]
    candidates = [CascadeCandidate(((k,),), 0.0, *cost) for k, cost in enumerate(costs)]
    weights = price_weights(candidates)
    best = [min(candidates, key=lambda one: one.cost + t * one.paid).steps[0][0] for t in weights]
    assert best == [4, 3, 1, 0]


def held_rows(n=600, seed=0, quality=(0.95, 0.9)):
    """Two experts without anything to route by, and cascades of given qualities, ever cheaper."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((n, 2)) < [0.6, 0.95]).astype(float)
    dollars = np.tile([0.001, 0.01], (n, 1))
    m = len(quality)
    own = (rng.random((n, m)) < quality).astype(float)
    paid = np.tile(0.004 / (1 + np.arange(m)), (n, 1))
    asked = np.ones((n, m, 2), bool)
    asked[: n // 2, :, 1] = False
    cascades = CascadeOutcomes(1.0 + np.arange(m), own, paid, 1 - own, asked)
    errors = np.tile([0.4, 0.05], (n, 1))
    return HeldOut(errors, dollars, scores, dollars, np.arange(n), None, cascades)


def test_cascades_are_settings_beside_trade_offs_and_experts():
    held = held_rows()
    frontier = measure(held)
    m = int((frontier.curve.experts == -2).sum())
    assert m == 2
    places = np.flatnonzero(frontier.curve.experts == -2)
    assert frontier.curve.quality[places] == pytest.approx(held.cascades.quality.mean(axis=0))
    assert frontier.curve.dollars[places] == pytest.approx([4.0, 2.0])
    assert frontier.reference_shares.mean(axis=0)[places] == pytest.approx([0.5, 0.5])
    found = solve(Target(keep_quality=0.9), held, ["small", "large"])
    assert (found.cascade, found.t, found.expert) == (True, 2.0, None)
    # One that misses the target ends the sequence, whatever comes behind.
    broken = solve(
        Target(keep_quality=0.9), held_rows(quality=(0.95, 0.5, 0.95)), ["small", "large"]
    )
    assert broken.t == 1.0
    bare = solve(Target(keep_quality=0.9), held_rows(quality=(0.5, 0.4)), ["small", "large"])
    assert (bare.cascade, bare.reference_share.estimate) == (False, 1.0)


def test_a_certificate_stops_at_the_first_cascade_that_fails():
    target = Target(max_quality_loss=0.08, guarantee=0.9)
    names = ["small", "large"]
    fitting = held_rows(quality=(0.96, 0.94, 0.93))
    found = certify_loss(target, fitting, held_rows(2000, 1, (0.96, 0.95, 0.7)), names)
    assert (found.certified, found.cascade, found.t) == (True, True, 2.0)
    stopped = certify_loss(target, fitting, held_rows(2000, 1, (0.7, 0.95, 0.95)), names)
    assert (stopped.cascade, stopped.expert) == (False, "large")


def partial_columns(n, share, seed=1):
    """A share of the scores and answers of each expert is not known."""
    columns, rng = columns_of(n), np.random.default_rng(seed)
    for name in NAMES:
        gone = rng.random(n) < share
        for key in (f"correct__{name}", f"answer__{name}"):
            values = zip(gone, columns[key], strict=True)
            columns[key] = [None if hidden else value for hidden, value in values]
    return columns


def test_the_gaps_of_cascades_are_known_on_a_partial_table():
    """The cascades of all rows may ask an expert whose score is unknown where those of a fold do not."""
    task = make_task(mild.read_outcomes(pa.table(partial_columns(300, 0.3))), CostTerms())
    fitted = fit_task(task, ConstantRouter(), make_step(task.table))
    folds = search_folds(task, 3)
    found = fit_cascades(task, fitted.features, traded_prices(task), folds, 4, 1)
    assert np.isfinite(found.held.gaps).all()


def test_a_constant_table_says_what_a_cascade_would_save():
    """One expert is right in every row, and others are cheaper."""
    columns = {**columns_of(), "correct__large": [1] * 300}
    columns["answer__large"] = [str(i) for i in range(1000, 1300)]
    for name, wrong in (("small", 4000), ("medium", 6000)):
        right = zip(columns[f"correct__{name}"], range(1000, 1300), strict=True)
        columns[f"answer__{name}"] = [str(i if ok else i + wrong) for ok, i in right]
    found = mild.tune(mild.read_outcomes(pa.table(columns)), **QUICK)
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
        return _calibration_split(make_task(table, CostTerms(), priced=True), None, 0)

    for i in split()[1].table.row_numbers:
        for name in NAMES:
            columns[f"answer__{name}"][i] += " or some other words that come after it, who knows"
    assert mild.read_outcomes(pa.table(columns)).answer_kind != "number"
    assert [part.table.answers.kind for part in split()] == ["number", "number"]
    # What is set stays.
    assert {part.table.answers.kind for part in split(answer_kind="free_text")} == {"free_text"}
