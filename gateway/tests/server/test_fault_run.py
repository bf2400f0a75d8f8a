"""Experts that fail in every way: nothing is lost, nothing is answered twice, and the money is exact."""

from fault_cases import (
    check,
    check_failing_expert,
    check_failing_expert_of_a_cascade,
    check_killed,
)


def test_a_short_run_keeps_every_promise(tmp_path):
    run = check(tmp_path, 1000, 1, 1, 1000.0)
    seen = run.outcomes
    # While every expert asks for a moment's rest, how many are told so depends on the machine.
    assert seen["200"] + seen["stream"] > 0.9 * (1000 - seen.get("429", 0)), (seen, run.errors)


def test_the_budget_holds_over_workers_under_faults(tmp_path):
    run = check(tmp_path, 600, 3, 2, 0.5)
    seen = run.outcomes
    # Refused because it is spent, or because requests under way hold the rest of it.
    assert seen.get("402", 0) + seen.get("429", 0) > 50, (seen, run.errors)
    assert run.spent > 0.35


def test_a_killed_gateway_loses_no_row_of_a_whole_answer(tmp_path):
    run = check_killed(tmp_path, 1000, 6, 1000.0)
    assert run.unanswered > 0
    assert 0 < run.killed_after < 1000
    assert run.missing_rows == set()


def test_clients_see_of_an_expert_that_fails_only_streams_cut_behind_the_first_byte(tmp_path):
    check_failing_expert(tmp_path, 400)


def test_clients_see_nothing_of_a_cheap_expert_of_a_cascade_that_fails(tmp_path):
    check_failing_expert_of_a_cascade(tmp_path, 400)
