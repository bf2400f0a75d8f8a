"""Keys are given out while the gateway serves: made, limited, changed, revoked, and accounted for."""

from __future__ import annotations

import shutil
import time

import pytest

from journeys import adapter
from journeys.accounts import (
    DOLLARS,
    TOKENS,
    charges,
    check_rows,
    dollars_by_key,
    experts_of,
    most_dollars,
    question,
    refusal,
    send,
    set_tokens,
    spent_by_metrics,
    spent_by_models,
)
from journeys.processes import mild, served
from model_server import ModelServer
from waiting import wait_until

pytestmark = pytest.mark.slow

BUDGET = 0.005
RATE = 5


def make_key(folder, name, **limits):
    return mild(folder, adapter.add_key(name, **limits)).figures["key"]


def ask_until_refused(gateway, key):
    """Ask one question after the other; how many were answered, and the refusal."""
    for number in range(1000):
        answer = send(gateway, adapter.CHAT, question(number), key)
        if answer.status != 200:
            return number, answer
    raise AssertionError("it never ends")


def contents(folder):
    """The bytes of all files of a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_keys_are_made_limited_changed_and_revoked_while_the_gateway_serves(
    router, whole_day, tmp_path
):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    with ModelServer() as models:
        set_tokens(models)
        adapter.write_settings(
            tmp_path, adapter.settings(experts_of(models), access={"require_key": True})
        )
        keys = {"alice": make_key(tmp_path, "alice")}
        with served(tmp_path) as gateway:
            # Who has no key, or not ours, is told so before anything is asked.
            for key in (None, "mild-nobody", "sk-other", keys["alice"][:-1]):
                for path, body in ((adapter.CHAT, question(1)), (adapter.MODELS, None)):
                    answer = send(gateway, path, body, key)
                    assert refusal(answer) == (401, "invalid_api_key")
            assert models.received() == []
            # Keys are made without a restart, which is known within a second; a name is given once.
            keys["bob"] = make_key(tmp_path, "bob", requests_per_minute=RATE)
            keys["carol"] = make_key(tmp_path, "carol", budget_day=BUDGET)
            keys["ops"] = make_key(tmp_path, "ops", admin=True)
            mild(tmp_path, adapter.add_key("carol"), codes=(1,))
            assert len(set(keys.values())) == len(keys)
            wait_until(lambda: send(gateway, adapter.MODELS, key=keys["ops"]).status == 200)

            # Alice has no limits; the key may be in either header.
            expected = dict.fromkeys(keys, 0.0)
            bodies = [
                question(1),
                question(2, "large"),
                question(3, stream=True),
                question(4, "large", stream=True),
            ]
            for header in ("authorization", "x-api-key"):
                for body in bodies:
                    answer = send(gateway, adapter.CHAT, body, keys["alice"], header)
                    assert answer.status == 200
                    expert = answer.headers[adapter.EXPERT]
                    assert expert == ("large" if body["model"] == "large" else "small")
                    expected["alice"] += DOLLARS[expert]
            answered = send(gateway, adapter.CHAT, question(5), keys["alice"])
            expected["alice"] += DOLLARS["small"]
            names = {
                model["id"]
                for model in send(gateway, adapter.MODELS, key=keys["alice"]).document["data"]
            }
            assert names >= {adapter.ROUTER_MODEL, "small", "large"}

            # Bob is too fast.
            start = time.monotonic()
            n_answered, answer = ask_until_refused(gateway, keys["bob"])
            minutes = (time.monotonic() - start) / 60
            assert refusal(answer) == (429, "rate_limit_exceeded")
            assert 0 < float(answer.headers["retry-after"]) <= 61
            assert RATE <= n_answered <= RATE * (1 + minutes)
            mild(tmp_path, adapter.change_key("bob", requests_per_minute="none"))
            wait_until(lambda: send(gateway, adapter.CHAT, question(1), keys["bob"]).status == 200)
            for number in range(2 * RATE):
                assert send(gateway, adapter.CHAT, question(number), keys["bob"]).status == 200
            expected["bob"] = (n_answered + 1 + 2 * RATE) * DOLLARS["small"]

            # Carol has too little money, and then more; nobody else feels it.
            n_answered, answer = ask_until_refused(gateway, keys["carol"])
            assert refusal(answer) == (402, "insufficient_quota")
            assert 0 < float(answer.headers["retry-after"]) <= 86_400
            expected["carol"] = n_answered * DOLLARS["small"]
            assert BUDGET - most_dollars("small") < expected["carol"] <= BUDGET
            dear = question(1, "large")
            assert refusal(send(gateway, adapter.CHAT, dear, keys["carol"]))[0] == 402
            assert send(gateway, adapter.CHAT, question(6), keys["alice"]).status == 200
            expected["alice"] += DOLLARS["small"]
            mild(tmp_path, adapter.change_key("carol", budget_day=2 * BUDGET))
            wait_until(lambda: send(gateway, adapter.CHAT, dear, keys["carol"]).status == 200)
            expected["carol"] += DOLLARS["large"]

            # A key scores its own answers only; figures are for an admin's.
            score = adapter.feedback(answered.headers[adapter.REQUEST_ID], 1.0)
            # A row may come after its answer.
            wait_until(lambda: send(gateway, adapter.FEEDBACK, score, keys["alice"]).status != 404)
            assert send(gateway, adapter.FEEDBACK, score, keys["alice"]).status == 200
            foreign = send(gateway, adapter.FEEDBACK, score, keys["bob"])
            assert refusal(foreign) == (403, "foreign_request")
            assert send(gateway, adapter.FEEDBACK, score, keys["ops"]).status == 200
            for path in (adapter.METRICS, adapter.STATUS):
                assert send(gateway, path).status == 401
                assert refusal(send(gateway, path, key=keys["bob"])) == (403, "admin_key_required")
                assert send(gateway, path, key=keys["ops"]).status == 200

            # A key that is revoked is no key any more, but its spending stays on record.
            mild(tmp_path, adapter.revoke_key("alice"))
            wait_until(lambda: send(gateway, adapter.MODELS, key=keys["alice"]).status == 401)
            for path, body in ((adapter.CHAT, question(7)), (adapter.MODELS, None)):
                assert refusal(send(gateway, path, body, keys["alice"])) == (401, "invalid_api_key")
            assert send(gateway, adapter.CHAT, question(7), keys["bob"]).status == 200
            expected["bob"] += DOLLARS["small"]
            expected[adapter.ALL_KEYS] = sum(expected.values())
            # A key that is revoked has no metrics any more.
            wait_until(
                lambda: (
                    spent_by_metrics(gateway, keys["ops"])[adapter.ALL_KEYS]
                    == pytest.approx(expected[adapter.ALL_KEYS])
                )
            )
            metrics = spent_by_metrics(gateway, keys["ops"])
            for name in ("bob", "carol", "ops", adapter.ALL_KEYS):
                assert metrics[name] == pytest.approx(expected[name])
            assert gateway.stop() == 0

        # Accounts, ledger and models say the same.
        listed = adapter.read_keys(mild(tmp_path, adapter.list_keys()).figures)
        assert {name for name, key in listed.items() if key.revoked} == {"alice"}
        assert listed["carol"].budget == 2 * BUDGET
        assert spent_by_models(models) == pytest.approx(expected.pop(adapter.ALL_KEYS))
        assert {name: key.spent for name, key in listed.items()} == pytest.approx(expected)
        rows = charges(tmp_path)
        check_rows(rows)
        assert dollars_by_key(rows) == pytest.approx(
            {name: dollars for name, dollars in expected.items() if dollars}
        )
        answers = [row for row in rows if row.outcome == "ok"]
        assert len(answers) == len(models.received())
        for name, tokens in TOKENS.items():
            assert {row.tokens for row in answers if row.expert == name} == {tokens}

    # Only who got a key has it, and nobody has kept a question.
    kept = contents(tmp_path)
    for secret in (*keys.values(), "plus 3?"):
        assert secret.encode() not in kept
