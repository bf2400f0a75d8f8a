"""``mild_gateway.learn``, from a ledger on disk to a router that serves: what is promoted and written."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import mild
import mild_gateway
from cascade_cases import cascade_router
from ledger_cases import record, write_all
from mild.artifact import features_tag
from mild.artifact.info import CostInfo
from mild.errors import InvalidInputError
from mild.policies import MixPolicy, PricedPolicy
from mild_gateway.database.engine import open_database
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.selection.stored_features import pack_features
from mild_gateway.versions import read_versions, rollback, write_version
from replay_cases import KINDS, NAMES, make_router, texts_of

# Probability of a wrong answer in the table, and in the log if nothing or something has changed.
THEN = (0.6, 0.5, 0.3)
NOW = (0.05, 0.5, 0.3)
ALWAYS_LARGE = dict.fromkeys(KINDS, "large")


@pytest.fixture
def folder(tmp_path):
    return make_router(ALWAYS_LARGE).save(tmp_path / "router")


def table(n=200, seed=5, wrong=THEN):
    rng = np.random.default_rng(seed)
    columns = {"query": texts_of([KINDS[k] for k in rng.integers(0, 3, n)], rng)}
    for name, share in zip(NAMES, wrong, strict=True):
        columns[f"correct__{name}"] = (rng.random(n) >= share).astype(int)
    return pa.table(columns)


def make(
    serving, n=2000, wrong=NOW, start=0, seed=0, source="grader", rate=0.5, explore=0.3, best=2,
    prices=(0.01, 0.01, 0.01), spread=None, **fields,
):  # fmt: skip
    """Records and judgements of a gateway that explores; experts are wrong as often as ``wrong`` says."""
    rng = np.random.default_rng(seed)
    records, judged = [], []
    draws = [explore / 3] * 3
    draws[best] += 1 - explore
    for number in range(start, start + n):
        chosen = int(rng.choice(3, p=draws))
        (text,) = texts_of([KINDS[rng.integers(3)]], rng)
        name = NAMES[chosen]
        entry = {
            "time": 1e9 + number, "expert": name, "chosen": name, "propensity": draws[chosen],
            "draws": draws, "preferred": NAMES[best], "text": text, "price": prices[chosen],
            "router": serving.info.fingerprint, "probabilities": [1 / 3] * 3,
        }  # fmt: skip
        records.append(record(number, **{**entry, **fields}))
        if rng.random() < (rate or 0.5):
            score = float(rng.random() >= wrong[chosen])
            if spread is not None:
                score = float(np.clip(1 - wrong[chosen] + spread * rng.normal(), 0, 1))
            judged.append(Feedback(f"r{number}", name, source, score, rate, 1e9 + number + 1))
    return records, judged


def write(path, records, judged, keep_text=True, experts=NAMES):
    write_all(path, records, experts=experts, keep_text=keep_text)
    database = open_database(path)
    try:
        write_feedback(database, judged)
    finally:
        database.close()
    return path


def written(folder):
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))


@pytest.fixture
def ledger(tmp_path, folder):
    return write(tmp_path / "ledger.sqlite", *make(mild.load(folder)))


def test_learning_from_a_mix_makes_one_setting_and_says_so(tmp_path):
    router = make_router(ALWAYS_LARGE)
    other = make_router(dict.fromkeys(KINDS, "middle")).policy
    folder = replace(router, policy=MixPolicy(router.policy, other, 0.1, "salt")).save(
        tmp_path / "router"
    )
    ledger = write(tmp_path / "ledger.sqlite", *make(mild.load(folder)))
    found = mild_gateway.learn(folder, ledger, table=table())
    assert (found.promoted, found.reason) == (True, "better")
    serving = mild.load(folder)
    assert serving.mix is None
    assert serving.info.dropped_mix.startswith("10 % of the queries: ")
    assert any("the mix of the old one is not kept" in note for note in found.notes)


def test_an_expert_that_got_better_is_found_and_promoted(folder, ledger):
    found = mild_gateway.learn(folder, ledger, table=table())
    assert (found.promoted, found.reason, found.version) == (True, "better", 2)
    gap = found.judgement.differences["cost"]
    for method in ("doubly_robust", "self_normalised"):
        assert gap[method].estimate == pytest.approx(0.05 - 0.3, abs=0.1)
        assert gap[method].high < 0
        assert gap[method].confidence == 0.98
    serving = mild.load(folder)
    texts = texts_of(KINDS * 20, np.random.default_rng(9))
    assert {NAMES[k] for k in serving.predict_texts(texts)} == {"small"}
    assert {NAMES[k] for k in mild.load(folder / "versions" / "0001").predict_texts(texts)} == {
        "large"
    }
    known = read_versions(folder)
    assert (known.serving, known[2].base, known[2].reason) == (2, 1, "better")
    # Half of what is new trains.
    assert known[2].learned_until == pytest.approx(1e9 + 1000, abs=100)
    assert found.trained_on["table"] == 200
    assert (
        found.trained_on["grader"] == found.judgement.rows + (found.judgement.rows % 2 or 0) or True
    )
    json.dumps(found.as_dict(), allow_nan=False)
    assert "Version 2 serves" in found.sentence
    assert len(found.to_frame()) == 6
    # What is left is learned from and judged, and nothing is new.
    again = mild_gateway.learn(folder, ledger, table=table())
    assert not again.promoted
    assert read_versions(folder).serving == 2
    assert rollback(folder).serving == 1
    # What was known before a rollback does not undo it.
    assert not mild_gateway.learn(folder, ledger, table=table()).promoted
    assert read_versions(folder).serving == 1


@pytest.mark.parametrize("goal", [{"price_weight": 10.0}, {"keep_quality": 0.9}])
def test_a_router_that_was_tuned_learns_and_so_does_what_it_has_learned(goal, tmp_path):
    known = table(120)
    for name, dollars in zip(NAMES, (0.001, 0.01, 0.02), strict=True):
        known = known.append_column(f"cost__{name}", pa.array([dollars] * 120))
    search = mild.RouterCV(families="linear", cv=2)
    folder = mild.tune(known, search=search, **goal).router.save(tmp_path / "router")
    path = write(tmp_path / "l", *make(mild.load(folder), n=160, rate=1.0))
    first = mild_gateway.learn(folder, path, table=known)
    assert (first.promoted, first.version, first.judgement.rows) == (False, 2, 80)
    write(path, *make(mild.load(folder), n=400, start=160, seed=1, rate=1.0))
    found = mild_gateway.learn(folder, path, table=known)
    assert found.judgement.rows == 400
    for learned in (first, found):
        for quantity in ("cost", "error", "dollars"):
            interval = learned.judgement.differences[quantity]["doubly_robust"]
            assert interval.low <= interval.estimate <= interval.high


def test_nothing_is_promoted_if_nothing_changed(folder, tmp_path):
    for seed in range(3):
        path = write(tmp_path / f"l{seed}", *make(mild.load(folder), wrong=THEN, seed=seed))
        found = mild_gateway.learn(folder, path, table=table(wrong=THEN))
        assert not found.promoted
        assert found.reason in ("same", "noise", "worse", "too_few")
        assert read_versions(folder).serving == 1


def test_a_dry_run_writes_nothing(folder, ledger):
    before = written(folder)
    found = mild_gateway.learn(folder, ledger, table=table(), dry_run=True)
    assert (found.promoted, found.version) == (True, None)
    assert "Nothing was written" in found.sentence
    assert written(folder) == before


@pytest.mark.parametrize("with_table", [True, False])
def test_an_empty_ledger_is_too_little(folder, tmp_path, with_table):
    path = write(tmp_path / "l", [], [])
    before = written(folder)
    found = mild_gateway.learn(folder, path, table=table() if with_table else None)
    assert (found.promoted, found.reason, found.version) == (False, "too_few", None)
    assert written(folder) == before


def test_too_few_answers_make_a_candidate_that_later_ones_prove(folder, tmp_path):
    router = mild.load(folder)
    path = write(tmp_path / "l", *make(router, n=160, rate=1.0))
    first = mild_gateway.learn(folder, path, table=table(20))
    assert (first.promoted, first.reason, first.version) == (False, "too_few", 2)
    known = read_versions(folder)
    assert (known.serving, known.candidate, known[2].reason) == (1, 2, "too_few")
    assert known[2].learned_until == 1e9 + 159
    # Until there are enough, it stays as it is, and nothing is written.
    before = written(folder)
    again = mild_gateway.learn(folder, path, table=table(20))
    assert (again.promoted, again.reason, again.version) == (False, "too_few", None)
    assert (written(folder), read_versions(folder)) == (before, known)
    # Requests that followed; a candidate is judged by all of them.
    write(path, *make(router, n=400, start=160, seed=1, rate=1.0))
    found = mild_gateway.learn(folder, path, table=table(20))
    assert (found.promoted, found.reason, found.version) == (True, "better", 2)
    assert found.judgement.rows == 400
    assert found.trained_on["grader"] == 160
    known = read_versions(folder)
    assert (known.serving, known.candidate) == (2, None)
    assert (known[2].reason, known[2].why) == ("better", "learned from 160 answers: better")
    assert known[2].facts["judgement"]["rows"] == 400


def nearly_equal_candidate(router, share):
    """A router that has learned, and asks another expert for so small a share of the queries."""
    texts = texts_of(KINDS * 300, np.random.default_rng(3))
    X = router.features(texts)
    coef = np.zeros((3, X.shape[1]), np.float32)
    coef[0] = -X.std(axis=0) * np.sign(X[0])
    score = X @ coef[0]
    intercept = np.array([0.5 - np.quantile(score, share), 0.9, 0.5], np.float32)
    none = np.zeros_like(coef)
    policy = PricedPolicy(
        coef, intercept, none, np.zeros(3), np.zeros(3), price_weight=0.0, kind_of_error="ridge"
    )
    candidate = replace(router, policy=policy)
    assert 0 < (candidate.predict_texts(texts) != router.predict_texts(texts)).mean() < 2 * share
    return candidate


def test_a_candidate_that_hardly_changes_anything_does_not_block_learning(folder, tmp_path):
    """The serving expert is always wrong from now on, which the candidate does not know."""
    router = mild.load(folder)
    path = write(tmp_path / "l", *make(router, n=300, wrong=THEN, explore=0.1, rate=1.0))
    candidate = nearly_equal_candidate(router, share=0.01)
    write_version(folder, candidate, why="learned", serve=False, learned_until=1e9 + 299)
    runs = []
    for start in (300, 1300, 2300):
        rows = make(router, 1000, (0.1, 0.5, 1.0), start, seed=start, explore=0.1, rate=1.0)
        write(path, *rows)
        runs.append(mild_gateway.learn(folder, path))
        if runs[-1].promoted:
            break
    assert runs[-1].promoted, [run.sentence for run in runs]
    assert {
        NAMES[k] for k in mild.load(folder).predict_texts(texts_of(KINDS, np.random.default_rng(9)))
    } == {"small"}


def test_a_starved_candidate_is_replaced_by_one_that_has_learned_from_everything(folder, tmp_path):
    """The newer half, which judges, is from the time before the change: only a refit knows of it."""
    router = mild.load(folder)
    path = write(tmp_path / "l", *make(router, n=300, wrong=THEN, explore=0.1, rate=1.0))
    candidate = nearly_equal_candidate(router, share=0.01)
    number = write_version(folder, candidate, why="learned", serve=False, learned_until=1e9 + 299)
    write(path, *make(router, 150, (0.1, 0.5, 1.0), 300, explore=0.1, rate=1.0, seed=1))
    found = mild_gateway.learn(folder, path)
    known = read_versions(folder)
    assert (found.promoted, known.serving) == (False, 1)
    assert found.version == known.candidate == number + 1
    assert known[known.candidate].learned_until == 1e9 + 449


def test_the_sentence_is_about_the_requests_that_the_log_tells_about(folder, tmp_path):
    """For half of the requests the new choice was hardly ever drawn; elsewhere it is better."""
    router = mild.load(folder)
    records, judged = make(router, 3000, rate=1.0)
    hidden = set()
    for one in records:
        if one.text.startswith("def"):
            one.draws = [0.001, 0.099, 0.9]
            one.propensity = one.draws[NAMES.index(one.chosen)]
            if one.chosen == "small":
                hidden.add(one.request_id)
    records = [one for one in records if one.request_id not in hidden]
    judged = [one for one in judged if one.request_id not in hidden]
    path = write(tmp_path / "l", records, judged)
    found = mild_gateway.learn(folder, path, table=table(wrong=NOW), dry_run=True)
    judgement = found.judgement
    assert (found.promoted, found.reason) == (False, "unsupported")
    difference = judgement.differences["cost"]["doubly_robust"]
    assert (
        difference.low < NOW[0] - NOW[2] < difference.high < 0 < judgement.worst_case["cost"].high
    )
    assert "costs less where the log can tell: -0.2" in found.sentence
    assert f"leaves out {100 * judgement.unsupported:.0f} % of the requests" in found.sentence


def test_feedback_of_clients_trains_and_judges_only_if_it_is_trusted(folder, tmp_path):
    path = write(tmp_path / "l", *make(mild.load(folder), source="client", rate=None))
    found = mild_gateway.learn(folder, path, table=table(), dry_run=True)
    assert (found.promoted, found.reason, found.judgement.rows) == (False, "too_few", 0)
    assert found.trained_on["client"] > 900
    assert any("does not judge" in note for note in found.notes)
    texts = texts_of(KINDS * 20, np.random.default_rng(9))
    assert {NAMES[k] for k in found.router.predict_texts(texts)} == {"small"}
    trusted = mild_gateway.learn(folder, path, table=table(), dry_run=True, trust_feedback=True)
    assert (trusted.promoted, trusted.reason) == (True, "better")
    assert any("trains and judges" in note for note in trusted.notes)


def test_requests_without_exploration_do_not_judge(folder, tmp_path):
    path = write(tmp_path / "l", *make(mild.load(folder), n=400, explore=0.0))
    found = mild_gateway.learn(folder, path, table=table(), dry_run=True)
    assert (found.reason, found.judgement.rows) == ("too_few", 0)


def test_requests_of_another_router_train_and_do_not_judge(folder, tmp_path):
    """They may be in the table that the serving router was fitted on."""
    path = write(tmp_path / "l", *make(mild.load(folder), router="another"))
    found = mild_gateway.learn(folder, path, table=table(), dry_run=True)
    assert (found.reason, found.judgement.rows) == ("too_few", 0)
    assert found.trained_on["grader"] > 900


def with_cost(folder, weight):
    """The router of a folder, made for a cost with dollars."""
    router = mild.load(folder)
    info = replace(router.info, cost=CostInfo("error and dollars", None, weight, None))
    return replace(router, info=info).save(folder.parent / "priced")


def test_cheaper_is_promoted_only_if_it_is_asked_for(folder, tmp_path):
    """Equal errors; a dollar is worth so little that the mean cost is not surely less."""
    place = with_cost(folder, 0.01)
    log = {"wrong": (0.2, 0.5, 0.2), "spread": 0.05, "prices": (0.001, 0.2, 0.2)}
    path = write(tmp_path / "l", *make(mild.load(place), 4000, rate=1.0, explore=0.5, **log))
    plain = mild_gateway.learn(place, path, dry_run=True)
    assert plain.cost == "error + 0.01 * dollars"
    assert (plain.promoted, plain.reason) == (False, "noise")
    cheaper = mild_gateway.learn(place, path, dry_run=True, accept="cheaper")
    assert (cheaper.promoted, cheaper.reason) == (True, "cheaper")
    assert cheaper.judgement.differences["dollars"]["doubly_robust"].high < 0
    with pytest.raises(InvalidInputError) as caught:
        mild_gateway.learn(place, path, accept="dearer")
    assert caught.value.parameter == "accept"


def test_dollars_count_by_the_weight_of_the_router(folder, tmp_path):
    place = with_cost(folder, 10.0)
    path = write(
        tmp_path / "l",
        *make(mild.load(place), wrong=(0.3, 0.3, 0.3), rate=1.0, prices=(0.001, 0.2, 0.2)),
    )
    found = mild_gateway.learn(place, path, table=table(wrong=(0.3, 0.3, 0.3)))
    assert (found.promoted, found.cost) == (True, "error + 10 * dollars")
    assert found.judgement.differences["cost"]["doubly_robust"].estimate == pytest.approx(
        -2, abs=0.2
    )
    serving = mild.load(place)
    assert serving.with_prices(price_weight=0.0).policy.price_weight == 0
    expected = serving.policy.expected_prices(serving.features(["what is 1 plus 2 together"]))
    np.testing.assert_allclose(expected[0], (0.001, 0.2, 0.2), rtol=0.2)


def test_a_router_for_errors_still_takes_another_price_weight(folder, ledger):
    """What dollars are expected is learned although they do not count."""
    mild_gateway.learn(folder, ledger, table=table())
    router = mild.load(folder)
    X = router.features(["what is 1 plus 2 together"])
    assert router.policy.price_weight == 0
    np.testing.assert_allclose(router.policy.expected_prices(X)[0], 0.01, rtol=0.1)
    assert router.with_prices(price_weight=3.0).policy.price_weight == 3


def test_answers_of_an_older_version_are_left_out(folder, tmp_path):
    """small was good, and the model behind it has been replaced."""
    router = mild.load(folder)
    older = make(router, wrong=(0.02, 0.5, 0.3), reported="m-1")
    newer = make(router, n=1000, start=2000, seed=2, wrong=(0.9, 0.5, 0.3), reported="m-2")
    path = write(tmp_path / "l", older[0] + newer[0], older[1] + newer[1])
    found = mild_gateway.learn(folder, path, table=table(), dry_run=True)
    assert found.left_out["of an older version"] == len(older[1])
    assert not found.promoted
    texts = texts_of(KINDS * 20, np.random.default_rng(9))
    assert {NAMES[k] for k in found.router.predict_texts(texts)} == {"large"}
    every = mild_gateway.learn(folder, path, table=table(), dry_run=True, all_versions=True)
    assert "of an older version" not in every.left_out
    assert every.trained_on["grader"] == len(older[1]) + len(newer[1])


def test_without_text_it_learns_from_features(folder, tmp_path):
    router = mild.load(folder)
    records, judged = make(router)
    tag = features_tag(router.text)
    for one in records:
        one.features = pack_features(router.features([one.text])[0], tag)
    path = write(tmp_path / "l", records, judged, keep_text=False)
    found = mild_gateway.learn(folder, path, table=table(), dry_run=True)
    assert found.promoted
    assert any("learned from stored features" in note for note in found.notes)
    # Rows that have neither are counted.
    bare = write(tmp_path / "bare", *make(router, n=50), keep_text=False)
    found = mild_gateway.learn(folder, bare, table=table(), dry_run=True)
    assert found.left_out["without a query"] > 10


def test_a_beta_of_a_removed_expert_does_not_count(folder, ledger):
    router = mild.load(folder)
    cost = CostInfo("error and beta", {"gone": 9.0, "small": 0.5}, None, None)
    place = replace(router, info=replace(router.info, cost=cost)).save(folder.parent / "beta")
    found = mild_gateway.learn(place, ledger, table=table())
    assert found.cost == "error + beta"
    assert found.judgement.rows == 0  # the log is that of another router
    texts = texts_of(KINDS * 20, np.random.default_rng(9))
    assert {NAMES[k] for k in found.router.predict_texts(texts)} == {"large"}


def test_of_a_cascade_the_router_without_answers_learns(tmp_path):
    names = ["small", "medium", "large", "spare"]
    folder = cascade_router().save(tmp_path / "cascade")
    router = mild.load(folder)
    rng = np.random.default_rng(0)
    records, judged = [], []
    for number in range(1200):
        explored, k = rng.random() < 0.4, int(rng.integers(4))
        chosen = names[k] if explored else "cascade"
        asked = [names[k]] if explored else ["small", "medium"]
        usage = {"dollars": 0.01, "tokens_in": 9, "tokens_out": 9, "latency_ms": 5.0}
        calls = [{"expert": one, "step": 1, "outcome": "ok", **usage} for one in asked]
        records.append(
            record(
                number, time=1e9 + number, chosen=chosen, expert=asked[-1], preferred="cascade",
                propensity=0.1 if explored else 0.6, draws=[0.1] * 4, probabilities=[0.25] * 4,
                text=f"What is {number} * 3?", router=router.info.fingerprint,
                calls=None if explored else calls, price=0.01 * len(asked),
            )
        )  # fmt: skip
        for one in asked:
            score = float(rng.random() >= {"spare": 0.02}.get(one, 0.6))
            judged.append(Feedback(f"r{number}", one, "grader", score, 1.0, 1e9 + number))
    path = write(tmp_path / "l", records, judged, experts=names)
    found = mild_gateway.learn(folder, path)
    assert (found.promoted, found.reason) == (True, "better")
    serving = mild.load(folder)
    assert serving.cascade is not None
    assert serving.cascade.steps == router.cascade.steps
    texts = [f"What is {k} * 7?" for k in range(20)]
    assert {names[k] for k in serving.direct.predict_texts(texts)} == {"spare"}


def test_it_reads_postgresql(folder, postgres):
    write(postgres.address, *make(mild.load(folder)))
    found = mild_gateway.learn(folder, postgres.url, table=table())
    assert (found.promoted, read_versions(folder).serving) == (True, 2)


def test_a_router_that_was_replaced_meanwhile_is_not_overwritten(folder, ledger, monkeypatch):
    from mild_gateway.learning import learn as module

    find = module.Learning.find

    def slow(*arguments):
        write_version(folder, make_router(dict.fromkeys(KINDS, "small")), why="by somebody else")
        return find(*arguments)

    monkeypatch.setattr(module.Learning, "find", slow)
    with pytest.raises(mild.errors.MildError) as caught:
        mild_gateway.learn(folder, ledger, table=table())
    assert caught.value.code == "version_changed"
    assert read_versions(folder).serving == 2


def test_learn_may_be_killed_at_any_time(folder, ledger, tmp_path):
    """The old router serves, and a rerun completes."""
    command = [
        sys.executable,
        "-m",
        "mild",
        "learn",
        str(folder),
        "--ledger",
        str(ledger),
        "--json",
    ]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    rng, before = random.Random(0), mild.load(folder).info.fingerprint
    saved = shutil.copytree(folder, tmp_path / "saved")
    start = time.monotonic()
    whole = subprocess.run(
        [*command, "--dry-run"], env=environment, capture_output=True, timeout=120
    )
    seconds = time.monotonic() - start
    assert (whole.returncode, json.loads(whole.stdout)["promoted"]) == (0, True)
    for _ in range(4):
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            process.communicate(timeout=rng.uniform(0.4, 1.0) * seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        known = read_versions(folder)
        assert mild.load(folder).info.fingerprint == known[known.serving].fingerprint
        # It may be killed after the promotion.
        if known.serving != 1:
            assert known.history[-1].event == "promoted"
            # Begin anew; after a rollback, what is known would not promote again.
            shutil.rmtree(folder)
            shutil.copytree(saved, folder)
        assert mild.load(folder).info.fingerprint == before
    done = subprocess.run(command, env=environment, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert read_versions(folder).serving > 1
