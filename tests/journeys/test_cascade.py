"""A table with answers becomes a cascade, which a service asks step by step, with ``next``.

Each step is paid and recorded by hand; ``evaluate`` comes to the same figures, in Python and as a command.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass

import numpy as np
import pytest

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import flat, take

pytestmark = pytest.mark.slow

KEEP = 0.97
N_TRAIN, N_TEST = 400, 300
RIGHT = {"large": 0.97, "quick": 0.8, "small": 0.8}
DOLLARS = {"large": 0.012, "quick": 0.0006, "small": 0.0004}
MILLISECONDS = {"large": 2000, "quick": 500, "small": 300}
# Ways to say the same.
WORDINGS = ("{}", "The answer is {}.", "{}.0")


def answered(seed, n):
    """A table of sums; two cheap experts make different mistakes, and sometimes do not answer."""
    rng = np.random.default_rng(seed)
    numbers = rng.choice(8100, n, replace=False).tolist()
    columns = {"query": [f"What is {x // 90 + 10} times {x % 90 + 10}?" for x in numbers]}
    truth = np.array([(x // 90 + 10) * (x % 90 + 10) for x in numbers])
    for name, share in RIGHT.items():
        is_right = rng.random(n) < share
        is_silent = (rng.random(n) < 0.04) & (name != "large")
        said = np.where(is_right, truth, truth + rng.integers(1, 40, n)).tolist()
        wordings = rng.integers(0, len(WORDINGS), n).tolist()
        texts = [WORDINGS[wording].format(x) for wording, x in zip(wordings, said, strict=True)]
        columns[f"correct__{name}"] = (is_right & ~is_silent).astype(int).tolist()
        columns[f"cost__{name}"] = (DOLLARS[name] * rng.uniform(0.5, 1.5, n)).round(7).tolist()
        columns[f"latency_ms__{name}"] = (MILLISECONDS[name] * rng.uniform(0.8, 1.2, n)).tolist()
        columns[f"answer__{name}"] = [
            None if silent else text for silent, text in zip(is_silent, texts, strict=True)
        ]
    return columns


def save(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@dataclass
class Served:
    """What a service did for a query."""

    asked: list[str]
    accepted: str
    score: float
    dollars: float
    seconds: float
    probability: float | None


def serve(router, columns, row):
    """Ask whom the router wants to ask, until it accepts an answer."""
    query, answers = columns["query"][row], {}
    dollars, seconds = 0.0, 0.0
    step = router.next(query, answers)
    while step.ask:
        assert step.accepted is None
        # Nobody is asked twice, so this ends.
        assert not answers.keys() & set(step.ask)
        for name in step.ask:
            answers[name] = columns[f"answer__{name}"][row]
            dollars += columns[f"cost__{name}"][row]
        # They are asked at the same time.
        seconds += max(columns[f"latency_ms__{name}"][row] for name in step.ask) / 1000
        step = router.next(query, answers)
    score = columns[f"correct__{step.accepted}"][row]
    return Served(list(answers), step.accepted, score, dollars, seconds, step.probability)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cascade")
    columns = answered(5, N_TRAIN + N_TEST)
    save(folder / "log.csv", take(columns, range(N_TRAIN)))
    save(folder / "test.csv", take(columns, range(N_TRAIN, N_TRAIN + N_TEST)))
    return folder


@pytest.fixture(scope="module")
def test_rows():
    return take(answered(5, N_TRAIN + N_TEST), range(N_TRAIN, N_TRAIN + N_TEST))


@pytest.fixture(scope="module")
def found(folder):
    return mild.tune(folder / "log.csv", keep_quality=KEEP, target_probability=0.8, cascade=True)


@pytest.fixture(scope="module")
def served(found, test_rows):
    return [serve(found.router, test_rows, row) for row in range(N_TEST)]


def test_evaluate_comes_to_what_a_service_pays_and_answers(folder, found, served, test_rows):
    judged = mild.evaluate(found.router, folder / "test.csv")
    figures, target = adapter.read_judged(judged.as_dict()), adapter.read_target(judged.as_dict())
    quality = np.mean([one.score for one in served])
    dollars = 1000 * np.mean([one.dollars for one in served])
    assert figures.rows == N_TEST
    assert figures.quality[None] == pytest.approx(quality)
    assert figures.dollars[None] == pytest.approx(dollars)
    assert figures.calls == pytest.approx(np.mean([len(one.asked) for one in served]))
    for name in RIGHT:
        assert figures.asked[name] == pytest.approx(np.mean([name in one.asked for one in served]))
        assert figures.shares[name] == pytest.approx(
            np.mean([one.accepted == name for one in served])
        )
    best = np.mean(test_rows["correct__large"])
    price = 1000 * np.mean(test_rows["cost__large"])
    assert target.kept[0] == pytest.approx(quality / best)
    assert target.saved[0] == pytest.approx(1 - dollars / price)
    assert target.met == (quality / best >= KEEP)
    # It is worth it: more than half of the dollars are saved, and the cheap experts are right in 80 %.
    assert target.saved[0] > 0.5
    assert quality > 0.9
    promised = adapter.read_target(found.as_dict())
    for promise, truth in ((promised.kept, target.kept), (promised.saved, target.saved)):
        assert abs(promise[0] - truth[0]) <= promise[2] - promise[1]


def test_it_reads_answers_as_people_do(found, served, test_rows):
    # In another wording, an agreement is one.
    agreed = 0
    for row, one in enumerate(served):
        if one.asked == ["small", "quick"] or one.asked == ["quick", "small"]:
            said = [test_rows[f"answer__{name}"][row] for name in one.asked]
            if None not in said and said[0] != said[1]:
                agreed += 1
    assert agreed > N_TEST / 10
    for one in served:
        assert one.probability is None or 0 <= one.probability <= 1
    # An expert that fails is passed over, the last one's answer is accepted, and in the end so is any.
    row = [one.asked[-1] == "large" and len(one.asked) == 3 for one in served].index(True)
    query = test_rows["query"][row]
    silent = found.router.next(query, {"small": None, "quick": None})
    assert silent.ask == ("large",)
    after = found.router.next(query, {"small": None, "quick": None, "large": "17"})
    assert (after.ask, after.accepted) == ((), "large")
    assert found.router.next(query, dict.fromkeys(RIGHT)).accepted in RIGHT


def test_saved_it_does_the_same_and_the_command_says_so(folder, found, served, test_rows):
    router = found.router
    saved = router.save(folder / "router")
    loaded = mild.load(saved)
    for row in range(0, N_TEST, 10):
        assert serve(loaded, test_rows, row) == served[row]
    done = mild_here(folder, adapter.evaluate("router", "test.csv", "--json"))
    assert done.code == 0, done.err
    judged = mild.evaluate(router, folder / "test.csv").as_dict()
    assert flat(adapter.read_judged(done.figures)) == pytest.approx(
        flat(adapter.read_judged(judged))
    )
    assert flat(adapter.read_target(done.figures)) == pytest.approx(
        flat(adapter.read_target(judged))
    )

    # The first step is known without answers; after it, an answer is accepted or others are asked.
    firsts = [router.next(query, {}).ask for query in test_rows["query"]]
    is_accepted = [len(one.asked) == len(first) for one, first in zip(served, firsts, strict=True)]
    for row in (is_accepted.index(True), is_accepted.index(False)):
        query, first = test_rows["query"][row], firsts[row]
        assert router.route([query])[0] in first
        answers = {name: test_rows[f"answer__{name}"][row] for name in first}
        step = router.next(query, answers)
        in_python = router.explain(query, answers=answers).as_dict()
        words = ["--answers", json.dumps(answers), "--json"]
        done = mild_here(folder, adapter.explain("router", query, *words))
        assert done.code == 0, done.err
        for figures in (in_python, done.figures):
            assert adapter.read_next(figures) == (step.ask, step.accepted)


def test_a_router_without_a_cascade_is_asked_in_the_same_way(folder, test_rows):
    router = mild.fit(folder / "log.csv", "ridge", price_weight=20)
    chosen = router.route(test_rows["query"])
    silent = np.flatnonzero([answer is None for answer in test_rows["answer__small"]]).tolist()
    for row in [*range(30), *silent]:
        one = serve(router, test_rows, row)
        assert one.asked[0] == chosen[row]
        # It asks another expert only in place of one that does not answer.
        failed = [name for name in one.asked if test_rows[f"answer__{name}"][row] is None]
        assert failed == one.asked[:-1]
        assert one.accepted == one.asked[-1]
        assert one.dollars == pytest.approx(
            sum(test_rows[f"cost__{name}"][row] for name in one.asked)
        )
