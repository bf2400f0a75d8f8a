"""From a ledger to a sentence; the estimates themselves are tested in the library."""

import numpy as np
import pytest

from mild_gateway.ledger import ledger_reader
from replay_cases import NEW, OLD, make_log, make_router, true_cost, write_log
from replay_cases import replay_log as replay


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    records, errors = make_log()
    return write_log(tmp_path_factory.mktemp("replay") / "l.db", records), records, errors


@pytest.fixture(scope="module")
def router():
    return make_router()


def holds(estimate, truth, reach=4):
    return abs(estimate["mean"] - truth) <= reach * estimate["standard_error"]


def test_a_cheaper_router_is_found_better_in_dollars(log):
    path, _, _ = log
    cheap = {"sum": "small", "place": "small", "code": "middle"}
    found = replay(ledger_reader(path), make_router(cheap))
    cost = found["estimates"]["cost"]
    truth = true_cost(cheap)
    for method in ("inverse_propensity", "self_normalised", "doubly_robust"):
        assert holds(cost[method], truth)
    assert cost["doubly_robust"]["standard_error"] < cost["inverse_propensity"]["standard_error"]
    assert found["verdict"].pays is True
    assert found["verdict"].reason == "better"
    assert found["verdict"].sentence.startswith("Dollars only")
    assert (found["rows"], found["draws"], found["left_out"]) == (1500, 1500, {})
    assert found["overlap"]["effective"] > 100
    assert found["shares"]["small"]["new"] == pytest.approx(2 / 3, abs=0.05)


def test_with_feedback_the_cost_counts_errors_and_dollars(log, router):
    path, _, errors = log
    found = replay(ledger_reader(path), router, errors=errors, price_weight=20.0)
    assert found["cost"] == "error + 20 * dollars"
    assert set(found["estimates"]) == {"cost", "dollars", "errors", "failures"}
    assert holds(found["estimates"]["cost"]["doubly_robust"], true_cost(NEW, 20.0))
    assert holds(found["estimates"]["dollars"]["doubly_robust"], true_cost(NEW))
    # All to the small one: cheap, and wrong most of the time.
    poor = replay(
        ledger_reader(path),
        make_router(dict.fromkeys(OLD, "small")),
        errors=errors,
        price_weight=20.0,
    )
    assert poor["verdict"].pays is False
    assert poor["estimates"]["dollars"]["difference"]["high"] < 0


def test_only_judged_requests_count_and_a_failure_is_an_error(tmp_path, router):
    records, errors = make_log(400)
    for entry in records[:40]:
        entry.outcome = "failed"
        entry.price = None
        errors.pop(entry.request_id)
    for entry in records[40:100]:
        errors.pop(entry.request_id)
    path = write_log(tmp_path / "l.db", records)
    found = replay(ledger_reader(path), router, errors=errors, price_weight=0.0)
    assert found["left_out"] == {"not judged": 60}
    assert found["rows"] == 340
    paid = sum(errors.values()) + 40
    assert found["estimates"]["errors"]["logged"]["mean"] == pytest.approx(paid / 340)
    assert found["estimates"]["failures"]["logged"]["mean"] == pytest.approx(40 / 340)


@pytest.mark.parametrize("pinned", [0.0, 0.5])
def test_the_serving_router_is_not_better_than_itself(tmp_path, pinned):
    records, _ = make_log(400, pinned=pinned)
    path = write_log(tmp_path / "l.db", records)
    found = replay(ledger_reader(path), make_router(OLD))
    difference = found["estimates"]["cost"]["difference_to_serving"]
    assert (difference["mean"], difference["standard_error"]) == (0.0, 0.0)
    assert (found["verdict"].pays, found["verdict"].reason) == (None, "same")
    assert (found["overlap"]["changed"], found["overlap"]["changed_draws"]) == (0.0, 0)


def test_what_the_router_preferred_is_what_the_ledger_says(tmp_path):
    """Exploration that asks one other expert draws it with more than 1 / 3."""
    rng = np.random.default_rng(0)
    records, _ = make_log(600, explore=0.0)
    for entry in records:
        entry.preferred, entry.propensity = entry.chosen, 0.55
        if rng.random() < 0.45:
            entry.chosen, entry.expert, entry.propensity = "small", "small", 0.45
    found = replay(ledger_reader(write_log(tmp_path / "l.db", records)), make_router(OLD))
    assert (found["overlap"]["changed"], found["verdict"].reason) == (0.0, "same")


def test_pinned_requests_follow_their_sessions_draw(tmp_path, router):
    records, _ = make_log(1500, pinned=1.0)
    path = write_log(tmp_path / "l.db", records)
    found = replay(ledger_reader(path), router)
    assert found["draws"] == 1500
    assert found["rows"] == len(records) > 3000
    cost = found["estimates"]["cost"]
    # In a pinned session only the first query chooses; the others come as they come.
    one, rest = 1500 / len(records), 1 - 1500 / len(records)
    truth = one * true_cost(NEW) + rest * true_cost(NEW, pinned=True)
    for method in ("inverse_propensity", "self_normalised", "doubly_robust"):
        assert holds(cost[method], truth)
    # Taken for draws of their own, the requests would make the estimate wrong.
    for entry in records:
        entry.pinned_by = None
    naive = replay(ledger_reader(write_log(tmp_path / "naive.db", records)), router)
    wrong = naive["estimates"]["cost"]["inverse_propensity"]
    assert not holds(wrong, truth, 2.5)


def test_a_pinned_request_without_its_first_is_left_out(tmp_path, router):
    records, _ = make_log(300, pinned=1.0)
    path = write_log(tmp_path / "l.db", records)
    found = replay(ledger_reader(path), router, since=records[1].time)
    (reason,) = found["left_out"]
    assert "pinned by a request that is not among" in reason
    assert found["draws"] == 299


def test_without_exploration_nothing_can_be_told(tmp_path, router):
    records, _ = make_log(200, propensity=1.0)
    found = replay(ledger_reader(write_log(tmp_path / "l.db", records)), router)
    assert found["verdict"].pays is None
    assert "all 200 routed requests were decided without exploration" in found["verdict"].sentence
    assert "explore = 0.05" in found["verdict"].sentence
    assert found["estimates"] == {}


def test_rows_without_exploration_are_left_out_of_a_log_that_has_both(tmp_path, router):
    records, _ = make_log(900)
    for entry in records[:300]:
        entry.propensity = 1.0
    found = replay(ledger_reader(write_log(tmp_path / "l.db", records)), router)
    assert found["left_out"] == {"drawn without exploration": 300}
    assert found["draws"] == 600
    assert found["estimates"]["cost"]["doubly_robust"]["mean"] > 0


def test_rows_that_say_nothing_are_named_by_reason(tmp_path, router):
    records, _ = make_log(300)
    records[0].outcome = "refused"
    records[1].chosen = records[1].propensity = None
    records[2].asked = "router-mild-0.7"
    records[3].text = None
    records[4].price = None
    records[5].probabilities = [0.5, None, 0.5]
    found = replay(ledger_reader(write_log(tmp_path / "l.db", records)), router)
    assert found["left_out"] == {
        "refused before an expert was asked": 1,
        "sent to an expert by its name": 1,
        "asked for a trade-off of its own": 1,
        "without a query": 1,
        "without a price": 1,
        "could not be served by every expert": 1,
    }


def test_queries_may_come_from_elsewhere(tmp_path, router):
    records, _ = make_log(300)
    path = write_log(tmp_path / "l.db", records, keep_text=False)
    nothing = replay(ledger_reader(path), router)
    assert "keep_text = true" in nothing["verdict"].sentence
    texts = {entry.request_id: entry.text for entry in records}
    assert replay(ledger_reader(path), router, texts=texts)["rows"] == 300


def test_a_fallback_counts_for_the_expert_that_was_drawn(tmp_path, router):
    records, _ = make_log(500)
    for entry in records:
        if entry.chosen == "small":
            entry.expert, entry.price = "large", 1.0
    found = replay(ledger_reader(write_log(tmp_path / "l.db", records)), router)
    assert found["estimates"]["cost"]["doubly_robust"]["mean"] > 0.2


def test_an_empty_span_is_told(log, router):
    found = replay(ledger_reader(log[0]), router, since=1.0, until=2.0)
    assert found["verdict"].sentence.endswith("the ledger has no rows in this span.")
