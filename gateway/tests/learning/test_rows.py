"""Judged answers of a ledger as arrays: what each entry says, and what is left out and why."""

import json
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa

from cascade_cases import EASY, HARD, cascade_router
from cascade_cases import NAMES as CASCADE_NAMES
from ledger_cases import record, write_all
from mild.artifact import features_tag
from mild.errors import UnsupportedError
from mild.policies import MixPolicy
from mild_gateway.database.engine import open_database
from mild_gateway.learning.rows import SOURCE_NAMES, UNKNOWN, WHOLE_CASCADE, read_logged
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.selection.stored_features import pack_features, unpack_features
from replay_cases import NAMES, make_log, make_router


@pytest.fixture(scope="module")
def router():
    return make_router()


def ledger(path, records, judged=(), experts=NAMES, keep_text=True):
    write_all(path, records, experts=experts, keep_text=keep_text)
    database = open_database(path)
    try:
        if judged:
            write_feedback(database, judged)
    finally:
        database.close()
    return path


def grade(request, expert="small", source="grader", score=1.0, rate=0.1):
    return Feedback(request, expert, source, score, rate, time=2e9)


def explored(found):
    return (found.preferred != UNKNOWN) & (found.chosen != found.preferred)


def row(number, **fields):
    return record(number, time=1e9 + number, **{"text": f"what is {number} plus 2", **fields})


def test_an_entry_says_what_is_known_of_an_answer(tmp_path, router):
    rows = [
        row(0, reported="m1", preferred="small"),
        row(1, chosen="large", expert="large", propensity=0.05, preferred="small", price=0.3),
        row(2, chosen="large", expert="large", propensity=0.05, router="other", preferred="gone"),
        row(3, reported="m2"),
        row(4),  # not judged
    ]
    judged = [
        grade("r0", score=0.25), grade("r1", "large", "client", 1.0, None),
        grade("r2", "large", "import", 0.0, 0.5), grade("r3", rate=1.0),
    ]  # fmt: skip
    found = read_logged(ledger(tmp_path / "l", rows, judged), router)
    assert len(found) == found.requests == found.from_text == 4
    assert found.request_id.astype(str).tolist() == ["r0", "r1", "r2", "r3"]
    assert found.time.tolist() == [1e9 + k for k in range(4)]
    assert found.expert.tolist() == found.chosen.tolist() == [0, 2, 2, 0]
    assert found.preferred.tolist() == [0, 0, UNKNOWN, 0]
    assert explored(found).tolist() == [False, True, False, False]
    assert found.propensity.tolist() == [0.9, 0.05, 0.05, 0.9]
    assert found.error.tolist() == [0.75, 0.0, 1.0, 0.0]
    np.testing.assert_array_equal(found.rate, [0.1, np.nan, 0.5, 1.0])
    assert found.sampled.tolist() == [True, False, True, True]
    assert [SOURCE_NAMES[k] for k in found.source] == ["grader", "client", "import", "grader"]
    assert found.dollars.tolist() == [0.001, 0.3, 0.001, 0.001]
    assert found.latency.tolist() == [0.0125] * 4
    assert [found.routers[k] for k in found.router] == ["f" * 12, "f" * 12, "other", "f" * 12]
    assert [k if k < 0 else found.reports[k] for k in found.reported] == ["m1", -1, -1, "m2"]
    assert not found.selected.any()
    assert len(set(found.episode.tolist())) == 4
    np.testing.assert_array_equal(found.X, router.features([one.text for one in rows[:4]]))
    assert found.X.dtype == np.float32
    assert found.left_out == {}
    part = found.take(slice(1, 3))
    assert part.request_id.astype(str).tolist() == ["r1", "r2"]
    assert part.X.base is not None


def test_samples_go_before_what_was_volunteered(tmp_path, router):
    judged = [
        grade("r0", source="client", score=0.0, rate=None), grade("r0", score=1.0),
        grade("r0", source="import", score=0.5, rate=0.2), grade("r1", source="client", rate=None),
        grade("r1", source="import", rate=None),
    ]  # fmt: skip
    found = read_logged(ledger(tmp_path / "l", [row(0), row(1)], judged), router)
    names = found.request_id.astype(str).tolist()
    pairs = {(name, SOURCE_NAMES[k]) for name, k in zip(names, found.source, strict=True)}
    assert pairs == {("r0", "grader"), ("r0", "import"), ("r1", "client"), ("r1", "import")}
    assert len(set(found.episode.tolist())) == 2


def test_a_failed_answer_is_an_error_that_nobody_judged(tmp_path, router):
    rows = [
        row(0, outcome="cut"),
        row(1, outcome="failed", status=502, price=None),
        row(2, outcome="cut"),
    ]
    rows.append(row(3, outcome="cancelled", status=499))
    found = read_logged(ledger(tmp_path / "l", rows, [grade("r2", score=1.0)]), router)
    assert found.request_id.astype(str).tolist() == ["r0", "r2"]
    assert (found.error.tolist(), found.rate.tolist()) == ([1.0, 1.0], [1.0, 1.0])
    assert [SOURCE_NAMES[k] for k in found.source] == ["outcome", "outcome"]
    # A request without an answer leaves no text.
    assert found.left_out == {"without a query": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"chosen": None, "propensity": None}, "sent to an expert by its name"),
        ({"asked": "router-mild-9"}, "asked for a trade-off of its own"),
        ({"text": None}, "without a query"),
        ({"text": None, "features": "old:AAA="}, "with features of another text step"),
        ({"price": None}, "without a price"),
        ({"probabilities": [0.5, None, 0.5]}, "could not be served by every expert"),
    ],
)
def test_what_is_left_out_is_counted(tmp_path, router, fields, reason):
    found = read_logged(ledger(tmp_path / "l", [row(0, **fields)], [grade("r0")]), router)
    assert len(found) == 0
    assert found.X.shape == (0, router.n_features)
    assert found.left_out == {reason: 1}


def test_answers_of_unknown_experts_are_left_out(tmp_path, router):
    rows = [row(0, chosen="gone", expert="gone"), row(1, chosen="gone", expert="small")]
    found = read_logged(ledger(tmp_path / "l", rows, [grade("r0", "gone"), grade("r1")]), router)
    assert found.left_out == {"of an expert that the router does not have": 1}
    # The second was answered by another expert than the one that was drawn.
    assert (found.chosen.tolist(), found.selected.tolist()) == ([UNKNOWN], [True])


def test_draws_without_exploration_are_kept(tmp_path, router):
    found = read_logged(ledger(tmp_path / "l", [row(0, propensity=1.0)], [grade("r0")]), router)
    assert (found.propensity.tolist(), found.preferred.tolist()) == ([1.0], [0])


def test_a_pinned_session_is_one_episode(tmp_path, router):
    rows = [
        row(0, session="s"), row(1),
        row(2, session="s", pinned_by="r0"), row(3, session="t", pinned_by="x"),
        row(4, session="t", pinned_by="x"), row(5, session="s"),
    ]  # fmt: skip
    found = read_logged(ledger(tmp_path / "l", rows, [grade(f"r{k}") for k in range(6)]), router)
    first = found.episode.tolist()
    assert first[0] == first[2]
    assert first[3] == first[4]
    assert len(set(first)) == 4


def test_draws_are_those_of_the_first_request_by_name(tmp_path, router):
    first, second = [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]
    rows = [
        row(0, session="s", draws=first),  # not judged, and before the span
        row(1, session="s", pinned_by="r0", draws=[0.7, 0, 0]), row(2, draws=second), row(3),
        row(4, session="t", pinned_by="gone", draws=[0.7, 0, 0]),
    ]  # fmt: skip
    judged = [grade(f"r{k}") for k in range(1, 5)]
    place = ledger(tmp_path / "l", rows, judged)
    # Another router, with another order and an expert that this one does not have.
    others = [row(5, router="other", draws=[0.3, 0.6, 0.1]), row(6, pinned_by="r5")]
    ledger(place, others, [grade("r5"), grade("r6")], ["large", "gone", "small"])
    found = read_logged(place, router, since=1e9 + 1)
    none = [np.nan] * 3
    expected = [first, second, none, none, [0.1, 0, 0.3], [0.1, 0, 0.3]]
    assert found.draws.dtype == np.float32
    np.testing.assert_array_equal(found.draws, np.array(expected, np.float32))


def test_stored_features_stand_for_the_text(tmp_path, router):
    text, tag = "what is 3 plus 4 together", features_tag(router.text)
    packed = pack_features(router.features([text])[0], tag)
    rows = [row(0, text=None, features=packed), row(1, text=text, features=packed)]
    found = read_logged(ledger(tmp_path / "l", rows, [grade("r0"), grade("r1")]), router)
    assert (found.from_text, found.from_features, found.requests) == (1, 1, 2)
    np.testing.assert_allclose(found.X[0], found.X[1], atol=2e-3)
    assert not np.array_equal(found.X[0], found.X[1])


def test_features_are_packed_within_half_precision():
    values = np.array([0.0, 1e-3, -3.5, 1e9, -np.inf], np.float32)
    found = unpack_features(pack_features(values, "tag"), "tag")
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:3], values[:3], rtol=1e-3)
    assert unpack_features(pack_features(values, "tag"), "other") is None


def test_another_text_step_has_another_tag(router):
    assert features_tag(router.text) == features_tag(make_router().text)
    assert features_tag(router.text) != features_tag(cascade_router().text)


def test_the_span_and_the_newest_are_kept(tmp_path, router):
    records, errors = make_log(draws=300)
    judged = [
        grade(one.request_id, one.expert, score=1 - errors[one.request_id]) for one in records[::2]
    ]
    place = ledger(tmp_path / "l", records, judged)
    found = read_logged(place, router, since=1e9 + 100, until=1e9 + 200)
    assert (found.time.min(), found.time.max()) == (1e9 + 100, 1e9 + 198)
    everything, newest = read_logged(place, router), read_logged(place, router, max_answers=40)
    assert len(everything) == 150
    assert newest.left_out == {"older than the newest ones that are used": 110}
    for name in ("X", "request_id", "error", "propensity", "expert"):
        np.testing.assert_array_equal(getattr(newest, name), getattr(everything, name)[-40:])


def test_blocks_give_the_same_as_one(tmp_path, router, monkeypatch):
    records, errors = make_log(draws=100, pinned=0.5)
    judged = [grade(one.request_id, one.expert, score=errors[one.request_id]) for one in records]
    place = ledger(tmp_path / "l", records, judged)
    whole = read_logged(place, router)
    monkeypatch.setattr("mild_gateway.learning.rows._BLOCK", 7)
    parts = read_logged(place, router)
    for name in ("X", "request_id", "error", "episode", "rate"):
        np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))


def test_a_ledger_in_postgresql_gives_the_same(postgres, tmp_path, router):
    records, errors = make_log(draws=60)
    judged = [grade(one.request_id, one.expert, score=errors[one.request_id]) for one in records]
    found = [
        read_logged(ledger(place, records, judged), router)
        for place in (tmp_path / "l", postgres.address)
    ]
    for name in ("X", "request_id", "error", "episode", "rate", "propensity"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))


def test_a_router_of_numbers_is_refused(tmp_path, router):
    with pytest.raises(UnsupportedError):
        read_logged(tmp_path / "l", replace(router, text=None))


OWN = "own"


def climbed(number, calls, **fields):
    usual = {
        "chosen": "cascade", "expert": calls[-1][0], "propensity": 0.8, "router": OWN,
        "preferred": "cascade", "probabilities": [0.25] * 4, "text": EASY,
        "draws": [(1 - fields.get("propensity", 0.8)) / 4] * 4,
    }  # fmt: skip
    entries = [
        {
            "expert": name,
            "step": step,
            "outcome": outcome,
            "dollars": 0.01 * step,
            "tokens_in": 3,
            "tokens_out": 4,
            "latency_ms": 10.0,
        }
        for name, step, outcome in calls
    ]
    return row(number, **{**usual, "calls": entries, **fields})


@pytest.fixture(scope="module")
def climber():
    router = cascade_router()
    return replace(router, info=replace(router.info, fingerprint=OWN))


def test_every_judged_answer_of_a_cascade_is_an_entry(tmp_path, climber):
    rows = [
        climbed(0, [("small", 1, "ok"), ("medium", 1, "ok"), ("large", 2, "ok")]),
        climbed(1, [("small", 1, "timeout"), ("medium", 1, "ok")]),
        climbed(2, [("small", 1, "ok"), ("medium", 1, "ok")], router="other"),
    ]
    judged = [grade(f"r{k}", name) for k in range(3) for name in ("small", "medium", "large")]
    found = read_logged(ledger(tmp_path / "l", rows, judged, CASCADE_NAMES), climber)
    entries = [
        (name, CASCADE_NAMES[k], bool(selected), error, rate)
        for name, k, selected, error, rate in zip(
            found.request_id.astype(str), found.expert, found.selected, found.error, found.rate, strict=True
        )
    ]  # fmt: skip
    assert set(entries) == {
        ("r0", "small", False, 0.0, 0.1), ("r0", "medium", False, 0.0, 0.1),
        ("r0", "large", True, 0.0, 0.1),
        ("r1", "small", False, 1.0, 1.0), ("r1", "medium", False, 0.0, 0.1),
        ("r2", "small", True, 0.0, 0.1), ("r2", "medium", True, 0.0, 0.1),
    }  # fmt: skip
    assert found.left_out == {"of an expert that was not asked": 2}
    assert set(found.chosen.tolist()) == set(found.preferred.tolist()) == {WHOLE_CASCADE}
    # Asked by the cascade, with 1 - explore, or drawn among four.
    np.testing.assert_allclose(found.propensity, 0.8 + 0.2 / 4)
    later = found.expert == 2
    assert found.dollars[later].tolist() == [0.02]


def test_an_expert_that_exploration_drew_beside_a_cascade(tmp_path, climber):
    drawn = {
        "propensity": 0.2 / 4,
        "router": OWN,
        "probabilities": [0.25] * 4,
        "preferred": "cascade",
        "draws": [0.2 / 4] * 4,
    }
    rows = [
        row(0, chosen="small", expert="small", text=EASY, **drawn),
        row(1, chosen="large", expert="large", text=EASY, **drawn),
        row(2, chosen="small", expert="small", text=EASY, **{**drawn, "router": "other"}),
    ]
    judged = [grade(one.request_id, one.expert) for one in rows]
    found = read_logged(ledger(tmp_path / "l", rows, judged, CASCADE_NAMES), climber)
    # The cascade starts with small, in the version that drew.
    np.testing.assert_allclose(found.propensity, [0.85, 0.05, 0.05])
    assert not found.selected.any()
    assert explored(found).all()


def test_draws_that_exploration_made_beside_a_cascade_are_exact(tmp_path, climber):
    # Of four experts one is a fallback, which is never drawn.
    draws = [0.08, 0.08, 0.08, 0.0]
    rows = [
        climbed(0, [("small", 1, "ok"), ("medium", 1, "ok")], propensity=0.76, draws=draws),
        row(1, router=OWN, preferred="cascade", propensity=0.08, text=EASY, draws=draws),
        # A request that a cascade does not serve, such as a novel one, is drawn as by another router.
        row(2, router=OWN, preferred="small", propensity=0.9, text=EASY),
    ]
    place = ledger(tmp_path / "l", rows, [grade(f"r{k}") for k in range(3)], CASCADE_NAMES)
    found = read_logged(place, climber)
    np.testing.assert_allclose(found.propensity, [0.84, 0.84, 0.9], rtol=1e-6)
    assert found.preferred.tolist() == [WHOLE_CASCADE, WHOLE_CASCADE, 0]
    assert explored(found).tolist() == [False, True, False]


def test_unjudged_answers_of_a_cascade_are_not_counted(tmp_path, climber):
    rows = [climbed(0, [("small", 1, "ok")], text=None)]
    found = read_logged(ledger(tmp_path / "l", rows, experts=CASCADE_NAMES), climber)
    assert found.left_out == {}


def test_a_cascade_says_the_version_of_each_answer(tmp_path, climber):
    one = climbed(0, [("small", 1, "ok"), ("medium", 1, "ok")], reported="given")
    one.calls[0]["reported"] = "m1"
    found = read_logged(
        ledger(tmp_path / "l", [one], [grade("r0"), grade("r0", "medium")], CASCADE_NAMES), climber
    )
    said = {CASCADE_NAMES[k]: v for k, v in zip(found.expert, found.reported, strict=True)}
    assert found.reports == ("m1",)
    assert said == {"small": 0, "medium": -1}
    assert json.dumps(list(found.left_out)) == "[]"


def test_propensities_of_a_cascade_make_unbiased_estimates(tmp_path, climber):
    """Weighted by 1 / propensity, answers of small count each text once, however they came about."""
    rng, rows, judged = np.random.default_rng(0), [], []
    for number in range(3000):
        text = EASY if rng.random() < 0.5 else HARD
        steps = [("small", 1, "ok"), ("medium", 1, "ok")]
        if rng.random() < 0.4:
            name = CASCADE_NAMES[rng.integers(4)]
            rows.append(
                row(
                    number, chosen=name, expert=name, text=text, propensity=0.1, router=OWN,
                    probabilities=[0.25] * 4, preferred="cascade", draws=[0.1] * 4,
                )
            )  # fmt: skip
        else:
            rows.append(climbed(number, steps, propensity=0.6, text=text))
        judged.extend(
            grade(f"r{number}", name, score=float(text == EASY))
            for name in ([rows[-1].expert] if rows[-1].calls is None else [one[0] for one in steps])
        )
    found = read_logged(ledger(tmp_path / "l", rows, judged, CASCADE_NAMES), climber)
    for expert in range(4):
        use = (found.expert == expert) & ~found.selected
        assert (1 / found.propensity[use]).sum() / 3000 == pytest.approx(1, abs=0.12)


def test_rows_of_a_mix_have_its_draws(tmp_path, router):
    mixed = replace(router, policy=MixPolicy(router.policy, router.policy, 0.5, "salt"))
    text = "what is 3 plus 4 together"
    x = mixed.features([text])[0]
    packed = pack_features(x, features_tag(mixed.text, mixed.mix))
    without_draw = pack_features(x[:-1], features_tag(mixed.text))
    rows = [
        row(0, text=text),
        row(1, text=None, features=packed),
        row(2, text=None, features=without_draw),
    ]
    place = ledger(tmp_path / "l", rows, [grade(f"r{number}") for number in range(3)])
    found = read_logged(place, mixed)
    assert (found.from_text, found.from_features) == (1, 1)
    assert found.left_out == {"without the text, which says what a mix does": 1}
    np.testing.assert_allclose(found.X, [x, x], rtol=1e-3, atol=1e-3)
    # A router without the mix reads the same rows, without the draws.
    plain = read_logged(place, router)
    assert (plain.from_text, plain.from_features) == (1, 2)
    assert plain.X.shape == (3, router.n_features)
    other = replace(router, policy=MixPolicy(router.policy, router.policy, 0.5, "other"))
    assert read_logged(place, other).from_features == 0


def test_the_writer_keeps_features_only_of_answered_requests(tmp_path):
    rows = [row(0, features="t:AA=="), row(1, features="t:AA==", outcome="refused", status=429)]
    place = write_all(tmp_path / "l", rows)
    database = open_database(place)
    with database.transaction() as connection:
        found = connection.execute(sa.text("SELECT request_id, features FROM decisions")).all()
    database.close()
    assert dict(found) == {"r0": "t:AA==", "r1": None}
