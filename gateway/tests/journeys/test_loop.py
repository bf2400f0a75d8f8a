"""The learning loop of the guide: tune, serve, score, export, replay, learn, serve what was learned.

In the world of ``world.py``, ``medium`` forgets its rivers halfway.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

from journeys import adapter
from journeys.processes import mild, served
from journeys.world import (
    BEST,
    DOLLARS,
    PRICE_WEIGHT,
    RIGHT,
    ask,
    experts_of,
    kind_of,
    outcomes,
    questions,
    send_feedback,
    set_knowledge,
)
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

EXPLORE = 0.3
# Questions of the table, those that are routed before the router learns, and those that show what changed:
# a promotion needs 30 answers of the expert that is to be asked instead, which a tenth of them draw.
TABLE = {"plus": 60, "river": 60, "primes": 60}
ROUTED = {"plus": 75, "river": 150, "primes": 75}
LATER = {"plus": 50, "river": 900, "primes": 50}
# Standard deviations that a figure may be off: less often than once in 10^8 runs.
FAR = 6.0


def route(folder, router, asked):
    """The experts that a router chooses without exploration."""
    (folder / "questions.txt").write_text("\n".join(asked), encoding="utf-8")
    return adapter.read_routes(mild(folder, adapter.route(router, "questions.txt")).out)


def serving_version(folder):
    """Number and fingerprint of the version that serves."""
    return adapter.read_serving_version(mild(folder, adapter.versions()).figures)


def assert_near(count, probabilities):
    """A number of events agrees with their probabilities."""
    deviation = math.sqrt(sum(p * (1 - p) for p in probabilities))
    assert abs(count - sum(probabilities)) <= FAR * deviation + 1e-6


def check_draws(rows):
    """The probabilities of the draws are right, as far as the draws themselves can tell."""
    for row in rows:
        assert 0 < row.propensity <= 1
        assert row.propensity == pytest.approx(row.draws[row.chosen], abs=1e-4)
        assert sum(row.draws.values()) == pytest.approx(1, abs=1e-4)
        for name, probability in row.draws.items():
            expected = EXPLORE / 3 + (1 - EXPLORE) * (name == row.preferred)
            assert probability == pytest.approx(expected, abs=1e-4)
    for name in DOLLARS:
        drawn = sum(row.chosen == name for row in rows)
        assert_near(drawn, [row.draws[name] for row in rows])
    assert_near(
        sum(row.chosen == row.preferred for row in rows),
        [row.draws[row.preferred] for row in rows],
    )


def check_described(described, rows):
    """A table has all rows of a ledger: of each question, one answer is known."""
    assert described.rows == len(rows)
    assert set(described.experts) == set(DOLLARS)
    for name, (n_answers, score, dollars) in described.experts.items():
        scores = [row.score for row in rows if row.expert == name]
        assert n_answers == len(scores)
        assert score == pytest.approx(np.mean(scores))
        assert dollars == pytest.approx(DOLLARS[name])


def check_replay(replayed, new, rows):
    """A replay of a router that chooses ``new`` agrees with what its choices take."""
    assert replayed.rows == len(rows)
    truth = {
        "logged": [row.price for row in rows],
        "serving": [DOLLARS[row.preferred] for row in rows],
        "new": [DOLLARS[name] for name in new],
    }
    for name, dollars in truth.items():
        mean, standard_error = replayed.dollars[name]
        assert abs(mean - np.mean(dollars)) <= FAR * standard_error + 1e-9
    for name, share in replayed.shares.items():
        assert share == pytest.approx(new.count(name) / len(rows))


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_a_router_is_tuned_and_served_and_learns_from_feedback(place, request, tmp_path):
    database = request.getfixturevalue("postgres").url if place == "postgres" else None
    rng = np.random.default_rng(7)
    table = outcomes(rng, questions(rng, TABLE))
    pq.write_table(table, tmp_path / "log.parquet")
    mild(tmp_path, adapter.tune("log.parquet", adapter.ROUTER, price_weight=PRICE_WEIGHT))
    asked = questions(rng, ROUTED)
    first_half = dict(list(asked.items())[: len(asked) // 2])
    second_half = dict(list(asked.items())[len(asked) // 2 :])
    later = questions(rng, LATER)
    rivers = questions(rng, {"river": 100})
    with ModelServer() as models:
        for part in (asked, later, rivers):
            models.set_answers(part)
        adapter.write_config(tmp_path, experts_of(models), database, explore=EXPLORE)
        mild(tmp_path, adapter.check())
        with served(tmp_path) as gateway:
            # Half of the questions, then medium forgets, then the other half.
            set_knowledge(models)
            answered = ask(gateway, first_half)
            set_knowledge(models, {**RIGHT, "river": {**RIGHT["river"], "medium": 0.0}})
            answered += ask(gateway, second_half)
            counts = Counter(expert for _, expert, _ in answered)
            for name in DOLLARS:
                assert len(models.received(f"{name}-model")) == counts[name]

            send_feedback(gateway, answered)
            shown = adapter.read_shown(mild(tmp_path, adapter.show_ledger()).figures)
            assert shown.requests == len(answered)
            assert shown.outcomes == {"ok": len(answered)}
            assert shown.answered == counts
            assert shown.dollars == pytest.approx(
                sum(DOLLARS[name] * counts[name] for name in counts)
            )

            # Every answer is exported as it was given and scored.
            for file in ("week.parquet", "week.csv"):
                assert mild(tmp_path, adapter.export_ledger(file)).figures["rows"] == len(answered)
            rows = adapter.read_rows(tmp_path / "week.parquet")
            assert adapter.read_rows(tmp_path / "week.csv") == rows
            exported = {row.request_id: (row.text, row.expert, row.score) for row in rows}
            assert exported == {
                request_id: (question, expert, score)
                for question, (request_id, expert, score) in zip(asked, answered, strict=True)
            }
            assert [row.price for row in rows] == pytest.approx(
                [DOLLARS[row.expert] for row in rows]
            )
            for file in ("week.parquet", "week.csv"):
                described = adapter.read_described(mild(tmp_path, adapter.describe(file)).figures)
                check_described(described, rows)
            check_draws(rows)
            # The router has understood the table, and the scores tell what has changed.
            assert np.mean([row.preferred == BEST[kind_of(row.text)] for row in rows]) > 0.8
            for half, right in ((first_half, 0.95), (second_half, 0.0)):
                scores = [
                    row.score
                    for row in rows
                    if row.text in half and row.expert == "medium" and "river" in row.text
                ]
                assert len(scores) > 20
                assert_near(sum(scores), [right] * len(scores))

            # A router that is tuned on old and new rows, judged by the requests before it serves.
            (tmp_path / "joined").mkdir()
            for file in ("log.parquet", "week.parquet"):
                mild(tmp_path, adapter.convert(file, f"joined/{file}"))
            described = adapter.read_described(mild(tmp_path, adapter.describe("joined")).figures)
            assert described.rows == len(table) + len(rows)
            mild(tmp_path, adapter.tune("joined", "anew", price_weight=PRICE_WEIGHT))
            new = route(tmp_path, "anew", [row.text for row in rows])
            for_rivers = [name for name, row in zip(new, rows, strict=True) if "river" in row.text]
            assert for_rivers.count("large") > 0.8 * len(for_rivers)
            replayed = adapter.read_replayed(mild(tmp_path, adapter.replay("anew")).figures)
            check_replay(replayed, new, rows)

            # The newer half judges a router that learned from the older one, in which nothing had changed.
            words = adapter.learn("log.parquet")
            learned = adapter.read_learned(mild(tmp_path, words, adapter.NOT_PROMOTED).figures)
            assert (learned.promoted, learned.version) == (False, 2)
            assert (learned.n_table, learned.n_answers) == (len(table), len(rows))
            assert learned.n_judged == pytest.approx(len(rows) / 2, abs=1)
            version, served_first = serving_version(tmp_path)
            assert (version, {row.router for row in rows}) == (1, {served_first})

            # A router that has learned from both is judged by what comes later.
            answered = ask(gateway, later)
            scores = [(request_id, score) for request_id, _, score in answered]
            (tmp_path / "scores.csv").write_text(adapter.scores_file(scores))
            n_requests = len(asked) + len(later)
            wait_until(
                lambda: (
                    adapter.read_shown(mild(tmp_path, adapter.show_ledger()).figures).requests
                    == n_requests
                )
            )
            mild(tmp_path, adapter.import_scores("scores.csv"))
            learned = adapter.read_learned(mild(tmp_path, words).figures)
            assert (learned.promoted, learned.version) == (True, 2)
            assert learned.n_judged == len(later)
            # Nine questions of ten are about rivers: medium costs 1 + 0.1 now, and large 0.05 + 0.2.
            assert learned.gain == pytest.approx(0.9 * (0.25 - 1.1), abs=0.25)
            assert learned.gain_at_most < 0

            # It serves: large is asked where medium was.
            version, promoted = serving_version(tmp_path)
            assert version == 2
            wait_until(lambda: gateway.routers == {promoted})
            chosen = route(tmp_path, adapter.ROUTER, rivers)
            assert chosen.count("large") > 0.8 * len(rivers)
            answered = ask(gateway, rivers)
            counts = Counter(expert for _, expert, _ in answered)
            for name in DOLLARS:
                draws = [EXPLORE / 3 + (1 - EXPLORE) * (choice == name) for choice in chosen]
                assert_near(counts[name], draws)
            assert sum(score for *_, score in answered) > len(rivers) / 2
            assert gateway.stop() == 0
