"""What has changed: versions that experts report, the share of novel requests, scores against the first."""

from contextlib import closing

import numpy as np
import pytest

from ledger_cases import record, write_all
from mild_gateway.database.engine import open_database
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.ledger.summary import summarize

START = 1_800_000_000.0


class Traffic:
    """Rows and scores that are written to a ledger, one after the other."""

    def __init__(self, place):
        self.place, self.number = place, 0
        write_all(place, [])

    def send(self, count=1, scores=(), source="grader", **fields):
        """So many rows with these fields, a second apart; the scores are those of the first of them."""
        rows = []
        for _ in range(max(count, len(scores))):
            self.number += 1
            rows.append(record(self.number, time=START + self.number, **fields))
        write_all(self.place, rows)
        judged = [
            Feedback(row.request_id, row.expert, source, score, None, row.time)
            for row, score in zip(rows, scores, strict=False)
        ]
        with closing(open_database(self.place)) as database:
            write_feedback(database, judged)

    @property
    def drift(self):
        return summarize(self.place)["drift"]


@pytest.fixture
def traffic(ledger_place):
    return Traffic(ledger_place)


def test_of_few_rows_nothing_is_said(traffic):
    assert traffic.drift == {"versions": {}, "novel": None, "scores": []}
    traffic.send(29, reported="m-1", novel=True)
    traffic.send(200, scores=[1.0] * 200)
    traffic.send(29, scores=[0.0] * 29)
    assert traffic.drift == {"versions": {}, "novel": None, "scores": []}


def test_versions_are_told_with_their_answers_where_there_are_several(traffic):
    traffic.send(5, reported="m-1")
    traffic.send(5, reported="l-1", expert="large")
    traffic.send(2, reported="m-typo")
    traffic.send(3, reported="m-2")
    traffic.send(1, reported=None, expert=None, outcome="failed")
    assert traffic.drift["versions"] == {
        "small": [
            {"version": "m-1", "answers": 5, "first": START + 1, "last": START + 5},
            {"version": "m-2", "answers": 3, "first": START + 13, "last": START + 15},
        ]
    }


def test_all_calls_of_a_cascade_report_versions(traffic):
    for version in ("m-1", "m-2"):
        usual = {
            "outcome": "ok",
            "dollars": 0.1,
            "tokens_in": 1,
            "tokens_out": 1,
            "latency_ms": 5.0,
        }
        calls = [
            {"expert": "small", "step": 1, "reported": version, **usual},
            {"expert": "small#2", "step": 1, "reported": version, **usual},
            {"expert": "large", "step": 2, "reported": None, **usual},
        ]
        traffic.send(3, expert="large", chosen="cascade", reported="l-1", calls=calls)
    (versions,) = traffic.drift["versions"].values()
    assert [(entry["version"], entry["answers"]) for entry in versions] == [("m-1", 6), ("m-2", 6)]


def test_the_novel_share_is_that_of_the_router_that_decided_last(traffic):
    traffic.send(100, novel=True, router="older")
    traffic.send(38, novel=False)
    traffic.send(2, novel=True)
    traffic.send(10)
    novel = traffic.drift["novel"]
    assert (novel["count"], novel["mean"]) == (40, 0.05)
    assert novel["low"] == pytest.approx(0.014, abs=0.001)
    assert novel["high"] == pytest.approx(0.165, abs=0.001)


def test_the_latest_scores_are_compared_with_the_first_by_expert_and_source(traffic):
    traffic.send(scores=[1.0] * 160 + [0.0] * 40)
    # Neither the first nor the latest.
    traffic.send(scores=[0.5] * 50)
    traffic.send(scores=[1.0] * 100 + [0.0] * 100)
    traffic.send(scores=[0.9] * 200, source="client")
    traffic.send(scores=[0.9] * 40, source="client")
    client, grader = traffic.drift["scores"]
    assert (grader["expert"], grader["source"]) == ("small", "grader")
    assert (grader["first"]["count"], grader["first"]["mean"]) == (200, 0.8)
    assert (grader["latest"]["count"], grader["latest"]["mean"]) == (200, 0.5)
    assert grader["change"] == pytest.approx(-0.3)
    # Newcombe's interval, as in his paper's method 10.
    assert (grader["low"], grader["high"]) == pytest.approx((-0.385, -0.209), abs=0.001)
    assert (client["source"], client["latest"]["count"]) == ("client", 40)
    assert client["change"] == pytest.approx(0)
    assert client["low"] < 0 < client["high"]


@pytest.mark.parametrize(
    "other",
    [{"chosen": "large"}, {"router": "older"}, {"pinned_by": "r1"}, {"chosen": None}],
    ids=lambda other: next(iter(other)),
)
def test_only_answers_that_the_router_that_decided_last_prefers_are_compared(traffic, other):
    traffic.send(scores=[1.0] * 200)
    traffic.send(scores=[1.0] * 30)
    if "chosen" in other:
        other = {**other, "preferred": "small", "propensity": None if not other["chosen"] else 0.1}
    traffic.send(scores=[0.0] * 100, **other)
    traffic.send(1)
    (entry,) = traffic.drift["scores"]
    assert (entry["latest"]["count"], entry["change"]) == (30, 0.0)


def test_the_difference_is_held_by_its_interval_as_often_as_it_says():
    from mild_gateway.ledger.drift import _difference

    rng = np.random.default_rng(0)
    for old, new in ((0.8, 0.8), (0.95, 0.9), (0.3, 0.6)):
        n_held = 0
        for _ in range(500):
            found = _difference(rng.random(200) < old, rng.random(60) < new)
            n_held += found["low"] <= new - old <= found["high"]
        assert n_held >= 0.92 * 500


def test_rows_outside_the_span_are_left_out(traffic):
    traffic.send(60, reported="m-1", novel=True)
    traffic.send(60, reported="m-2", novel=False)
    # Whole minutes: START is the beginning of one.
    later = summarize(traffic.place, since=START + 60)["drift"]
    assert later["versions"] == {}
    assert later["novel"]["count"] == 61
