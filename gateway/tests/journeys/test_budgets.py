"""A budget holds under eight clients at a time, who are answered again once there is more money."""

from __future__ import annotations

import shutil

import pytest

from journeys import adapter
from journeys.accounts import (
    DOLLARS,
    MAX_OUTPUT,
    PRICES,
    TOKENS,
    Clients,
    charges,
    check_rows,
    codes,
    dollars_by_key,
    experts_of,
    most_dollars,
    question,
    send,
    set_tokens,
    spent_by_hand,
    spent_by_keys,
    spent_by_metrics,
    spent_by_models,
)
from journeys.processes import mild, served
from model_server import ModelServer
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("whole_day")]

# Of a key, and of all keys together.
BUDGET = 0.02
COMMON_BUDGET = 0.06
CLIENTS = 8


def spend_all(gateway, key, model=adapter.ROUTER_MODEL):
    """Eight clients ask until there is no money for one more question; the answers."""
    with Clients(gateway, model, key, last=402, count=CLIENTS) as clients:
        clients.wait()
    assert clients.n_broken == 0
    found = codes(clients.answers)
    assert found[402, "insufficient_quota"] == CLIENTS
    # While the rest is held by others, a client comes again.
    assert set(found) <= {(200, None), (402, "insufficient_quota"), (429, "budget_held")}
    return clients.answers


def is_used_up(dollars, budget):
    """Whether too little is left of a budget for one of two keys; it is never exceeded."""
    assert dollars <= budget + 1e-9
    return budget - dollars < 2 * most_dollars("small")


def test_eight_clients_never_spend_more_than_a_budget(router, database, tmp_path):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    words = adapter.serve_workers(2)
    with ModelServer() as models:
        # So slow that all clients always wait for an answer.
        set_tokens(models, delay=0.03)
        access = {"require_key": True, "budget_day": COMMON_BUDGET}
        given = adapter.settings(experts_of(models), database, access=access)
        adapter.write_settings(tmp_path, given)

        def make_key(name, **limits):
            return mild(tmp_path, adapter.add_key(name, **limits)).figures["key"]

        alice = make_key("alice", budget_day=BUDGET)
        bob = make_key("bob")
        ops = make_key("ops", admin=True)
        with served(tmp_path, words) as gateway:
            # Alice uses her budget up, gets as much again, and uses it up again.
            answers = spend_all(gateway, alice)
            assert is_used_up(spent_by_hand(answers), BUDGET)
            mild(tmp_path, adapter.change_key("alice", budget_day=2 * BUDGET))

            def used_up_again():
                """Spend what there is; a worker may learn a moment later that it is more."""
                answers.extend(spend_all(gateway, alice))
                return is_used_up(spent_by_hand(answers), 2 * BUDGET)

            wait_until(used_up_again)
            of_alice = spent_by_hand(answers)

            # Bob may spend what is left for all.
            of_bob = spent_by_hand(spend_all(gateway, bob))
            assert is_used_up(of_alice + of_bob, COMMON_BUDGET)
            assert send(gateway, adapter.CHAT, question(1, "large"), ops).status == 402
            total = of_alice + of_bob
            wait_until(
                lambda: (
                    spent_by_metrics(gateway, ops)[adapter.ALL_KEYS]
                    == pytest.approx(total, rel=1e-9)
                )
            )
            assert gateway.stop() == 0
        assert spent_by_models(models) == pytest.approx(of_alice + of_bob)
        spent = {"alice": of_alice, "bob": of_bob}
        assert spent_by_keys(tmp_path) == pytest.approx({**spent, "ops": 0.0})
        rows = charges(tmp_path)
        check_rows(rows)
        assert dollars_by_key(rows) == pytest.approx(spent)


def test_an_expert_that_counts_more_than_was_allowed_exceeds_a_budget_by_no_more_than_that(
    router, tmp_path
):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    excess = 3 * MAX_OUTPUT
    tokens_in, tokens_out = TOKENS["small"]
    dollars = DOLLARS["small"] + excess * PRICES["small"][1] / 1e6
    with ModelServer() as models:
        models.set_rules("small-model", {"tokens": [tokens_in, tokens_out + excess]})
        adapter.write_settings(
            tmp_path, adapter.settings(experts_of(models), access={"require_key": True})
        )
        key = mild(tmp_path, adapter.add_key("alice", budget_day=BUDGET)).figures["key"]
        with served(tmp_path) as gateway:
            answers = spend_all(gateway, key)
            assert send(gateway, adapter.CHAT, question(1), key).status == 402
            assert gateway.stop() == 0
        spent = codes(answers)[200, None] * dollars
        assert BUDGET - most_dollars("small") < spent
        # Each of those that ran at a time may have been the last.
        assert spent <= BUDGET + CLIENTS * (dollars - DOLLARS["small"])
        assert spent_by_keys(tmp_path) == pytest.approx({"alice": spent})
        assert dollars_by_key(charges(tmp_path)) == pytest.approx({"alice": spent})
        assert len(models.received()) * dollars == pytest.approx(spent)
