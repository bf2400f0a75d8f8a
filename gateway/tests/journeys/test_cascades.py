"""A cascade that was tuned on answers is served: it asks on until the answers of its experts agree."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mild as library
from journeys import adapter
from journeys.processes import mild, post_all
from journeys.service import DOLLARS, PRICES, TOKENS, experts_of, joined, serving
from journeys.world import questions
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

# The share of the questions that an expert knows, and its price in the table: two guess, and one is dear.
RIGHT = {"small": 0.75, "medium": 0.8, "large": 0.97}
PAID = {"small": 0.0002, "medium": 0.0003, "large": 0.004}
# What the models of the gateway say to the others.
WRONG = {"small": "333333", "medium": "444444", "large": "555555"}
MAX_TOKENS = 200


@pytest.fixture(scope="module")
def asked():
    """Questions with their right answers."""
    return questions(np.random.default_rng(23), {"plus": 40})


@pytest.fixture(scope="module")
def service(tmp_path_factory, asked):
    folder = tmp_path_factory.mktemp("cascades")
    pq.write_table(log(np.random.default_rng(0), 300), folder / "log.parquet")
    mild(folder, adapter.tune("log.parquet", adapter.ROUTER, price_weight=20, cascade=True))
    with ModelServer() as models:
        models.set_answers(asked)
        adapter.write_config(folder, experts_of(models))
        with serving(folder, models) as service:
            know(service)
            yield service


def log(rng, n_rows):
    """Experts that know the answer say the same, and those that guess do not."""
    answers = questions(rng, {"plus": n_rows})
    right_answers = np.array(list(answers.values()), dtype=int)
    columns = {adapter.QUERY: list(answers)}
    for name, share in RIGHT.items():
        is_right = rng.random(n_rows) < share
        said = np.where(is_right, right_answers, right_answers + rng.integers(1, 90, n_rows))
        columns |= adapter.outcome_columns(
            name, is_right.astype(float), np.full(n_rows, PAID[name]), said.astype(str)
        )
    return pa.table(columns)


def know(service, **rules):
    """The models know as much as those of the table; ``rules`` of some come first."""
    for name, share in RIGHT.items():
        rule = {"right": share, "wrong": WRONG[name], "tokens": TOKENS[name]}
        first = [rules[name]] if name in rules else []
        service.models.set_rules(f"{name}-model", *first, rule)


def body_of(question):
    return adapter.chat(question) | {"max_tokens": MAX_TOKENS}


@pytest.fixture(scope="module")
def says(service, asked):
    """What each expert says to each question, as it tells who asks it directly."""
    said = {question: {} for question in asked}
    for name in PRICES:
        bodies = [adapter.chat(question, f"{name}-model") for question in asked]
        for question, answer in zip(
            asked, post_all(service.models.address + adapter.CHAT, bodies), strict=True
        ):
            said[question][name] = adapter.said(answer.document)
    return said


def expected_run(router, question, says):
    """The steps and the accepted expert, by the router alone."""
    steps, answers = [], {}
    step = router.next(question, answers)
    while step.ask:
        steps.append(set(step.ask))
        answers |= {name: says[name] for name in step.ask}
        step = router.next(question, answers)
    return steps, step.accepted


def check_row(row, steps, accepted):
    """A row has each call of the steps with its price, and what the client got."""
    assert (row.expert, row.outcome) == (accepted, "ok")
    called = {(call.expert, call.step) for call in row.calls}
    assert called == {(name, number) for number, step in enumerate(steps, 1) for name in step}
    assert len(row.calls) == row.attempts == len(called)
    assert [call.dollars for call in row.calls] == pytest.approx(
        [DOLLARS[call.expert] for call in row.calls]
    )
    assert row.dollars == pytest.approx(sum(call.dollars for call in row.calls))
    n_in, n_out = np.sum([TOKENS[call.expert] for call in row.calls], axis=0)
    assert row.tokens == (n_in, n_out)


@pytest.mark.parametrize("streamed", [False, True])
def test_experts_that_agree_are_enough(service, asked, says, streamed):
    router = library.load(service.folder / adapter.ROUTER)
    before = adapter.read_metrics(service.get(adapter.METRICS).document)
    service.received()
    bodies = [body_of(question) for question in asked]
    if streamed:
        answers = [service.stream(adapter.CHAT, body) for body in bodies]
    else:
        answers = post_all(service.gateway.address + adapter.CHAT, bodies)
    sent = Counter((entry["text"], entry["model"]) for entry in service.received())
    rows = service.rows(answers)

    expected, accepted_at = Counter(), Counter()
    for question, answer, row in zip(asked, answers, rows, strict=True):
        steps, accepted = expected_run(router, question, says[question])
        assert answer.status == 200
        assert answer.headers[adapter.EXPERT] == accepted
        assert adapter.steps(answer.headers[adapter.STEPS]) == steps
        said = joined(answer.document) if streamed else adapter.said(answer.document)
        assert said == says[question][accepted]
        check_row(row, steps, accepted)
        assert (row.chosen, row.status, row.streamed) == (adapter.CASCADE, 200, streamed)
        expected.update((question, f"{name}-model") for step in steps for name in step)
        accepted_at[1 + next(n for n, step in enumerate(steps) if accepted in step)] += 1
    # Nobody was asked but whom the router asks, and nobody twice.
    assert sent == expected
    # Some questions were easy, and others not; asking on has helped.
    n_first = sum(len(row.calls) < len(PRICES) for row in rows)
    assert 0 < n_first < len(asked)
    n_right = sum(
        says[question][row.expert] == asked[question]
        for question, row in zip(asked, rows, strict=True)
    )
    assert n_right > max(
        sum(says[question][name] == asked[question] for question in asked)
        for name in ("small", "medium")
    )
    # What was spent is what the models were asked for, and less than always asking the dear one.
    spent = sum(DOLLARS[model.removesuffix("-model")] * count for (_, model), count in sent.items())
    assert sum(row.dollars for row in rows) == pytest.approx(spent)
    spent_before = sum(before.dollars.values())

    def is_counted():
        counted = adapter.read_metrics(service.get(adapter.METRICS).document)
        steps = Counter(counted.cascades) - Counter(before.cascades)
        return steps == accepted_at and sum(counted.dollars.values()) == pytest.approx(
            spent_before + spent
        )

    wait_until(is_counted)


def test_one_expert_alone_is_asked_directly(service, asked, says):
    service.received()
    bodies = [adapter.chat(question, adapter.DIRECT_MODEL) for question in asked]
    answers = post_all(service.gateway.address + adapter.CHAT, bodies)
    experts = [answer.headers[adapter.EXPERT] for answer in answers]
    for question, answer, name in zip(asked, answers, experts, strict=True):
        assert adapter.said(answer.document) == says[question][name]
        assert adapter.STEPS not in answer.headers
    sent = Counter((entry["text"], entry["model"]) for entry in service.received())
    assert sent == Counter(
        (question, f"{name}-model") for question, name in zip(asked, experts, strict=True)
    )
    for row, name in zip(service.rows(answers), experts, strict=True):
        assert (row.chosen, row.expert, row.calls) == (name, name, [])
        assert row.dollars == pytest.approx(DOLLARS[name])


def test_an_expert_that_fails_has_no_answer(service, asked, says):
    router = library.load(service.folder / adapter.ROUTER)
    # Experts that agree on this one, and would be enough.
    easy = next(
        question
        for question in asked
        if len(expected_run(router, question, says[question])[0]) == 1
    )
    (first_step,), _ = expected_run(router, easy, says[easy])
    failing = min(first_step)
    know(service, **{failing: {"contains": easy, "status": 500}})
    service.received()
    answer = service.post(adapter.CHAT, body_of(easy))
    know(service)
    steps, accepted = expected_run(router, easy, says[easy] | {failing: None})
    assert len(steps) > 1
    assert adapter.steps(answer.headers[adapter.STEPS]) == steps
    assert answer.headers[adapter.EXPERT] == accepted
    assert adapter.said(answer.document) == says[easy][accepted]
    received = service.received()
    (row,) = service.rows([answer])
    assert row.attempts == len(received)
    asked_names = {name for step in steps for name in step}
    assert {entry["model"] for entry in received} == {f"{name}-model" for name in asked_names}
    assert {call.expert for call in row.calls if not call.is_answered} == {failing}
    assert row.dollars == pytest.approx(sum(DOLLARS[name] for name in asked_names - {failing}))

    # All fail: an error, and nothing to pay.
    know(service, **{name: {"contains": easy, "status": 500} for name in PRICES})
    refused = service.post(adapter.CHAT, body_of(easy))
    know(service)
    assert (refused.status, adapter.error_code(refused.document)) == (502, "expert_server")
    (row,) = service.rows([refused])
    assert (row.expert, row.outcome, row.status, row.dollars) == (None, "failed", 502, 0)
    for name in PRICES:
        assert service.post(adapter.CHAT, adapter.chat(easy, name)).status == 200


def test_the_best_answer_so_far_is_given_at_the_deadline(service, asked, says):
    router = library.load(service.folder / adapter.ROUTER)
    hard = next(
        question
        for question in asked
        if len(expected_run(router, question, says[question])[0]) == 2
    )
    steps, last = expected_run(router, hard, says[hard])
    know(service, **{last: {"contains": hard, "fault": "hang"}})
    expected_calls = {**dict.fromkeys(steps[0], True), last: False}
    # On a busy machine, the first step itself may be too late.
    for seconds in (1, 8, 60):
        answer = service.post(adapter.CHAT, body_of(hard), {adapter.DEADLINE: str(seconds)})
        (row,) = service.rows([answer])
        calls = {call.expert: call.is_answered for call in row.calls}
        if calls == expected_calls:
            break
    know(service)
    assert calls == expected_calls
    _, accepted = expected_run(router, hard, says[hard] | {last: None})
    assert (answer.status, answer.headers[adapter.EXPERT]) == (200, accepted)
    assert adapter.said(answer.document) == says[hard][accepted]
    # The expert that was too late was let go, and has done something.
    wait_until(lambda: service.models.received(f"{last}-model")[-1]["ended"] == "left")
    price_in, price_out = PRICES[last]
    most = (len(json.dumps(body_of(hard))) * price_in + MAX_TOKENS * price_out) / 1e6
    lost = row.dollars - sum(DOLLARS[name] for name in steps[0])
    assert 0 < lost <= most
