"""A gateway is operated under load: killed, stopped, given other routers, told to forget."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from collections import Counter
from http.client import HTTPException

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from journeys import adapter
from journeys.accounts import (
    DOLLARS,
    Clients,
    charges,
    check_rows,
    codes,
    experts_of,
    most_dollars,
    outcomes,
    question,
    send,
    set_tokens,
    spent_by_keys,
    spent_by_metrics,
    spent_by_models,
    status_of,
)
from journeys.processes import mild, served
from model_server import ModelServer
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("whole_day")]

# Dollars of a day, which are not used up.
AMPLE = 100.0


def spent_by_all(gateway):
    return spent_by_metrics(gateway)[adapter.ALL_KEYS]


def test_after_kill_9_no_answer_is_missing_or_counted_twice(router, database, tmp_path):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    whole = set()
    with ModelServer() as models:
        set_tokens(models, delay=0.02)
        given = adapter.settings(experts_of(models), database, access={"budget_day": AMPLE})
        adapter.write_settings(tmp_path, given)
        # The second one is killed after it has taken over what the first one left.
        for _ in range(2):
            with served(tmp_path) as gateway, Clients(gateway) as clients:
                clients.next_answers(50)
                assert gateway.stop(signal.SIGKILL) == -signal.SIGKILL
                clients.wait()
            assert clients.n_broken == 8
            assert set(codes(clients.answers)) == {(200, None)}
            last = max(answer.ended for answer in clients.answers) - adapter.ROWS_LOST_BY_A_KILL
            whole |= {
                answer.headers[adapter.REQUEST_ID]
                for answer in clients.answers
                if answer.ended <= last
            }
        with served(tmp_path) as gateway:
            answer = send(gateway, adapter.CHAT, question(1))
            whole.add(answer.headers[adapter.REQUEST_ID])

            def settled():
                """The rows, once they are as much as the accounts: either may come later."""
                rows = charges(tmp_path)
                spent = sum(row.dollars for row in rows)
                return rows if spent_by_all(gateway) == pytest.approx(spent) else None

            wait_until(lambda: whole <= {row.request_id for row in charges(tmp_path)})
            rows = wait_until(settled)
            assert gateway.stop() == 0
        check_rows(rows)
        n_answered = sum(row.outcome == "ok" for row in rows)
        assert len(whole) <= n_answered
        assert n_answered * DOLLARS["small"] <= spent_by_models(models) + 1e-9


def test_sigterm_lets_running_requests_end_as_long_as_they_may(router, tmp_path):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    bodies = [question(1), question(2, "large"), question(3, stream=True)]
    with ModelServer() as models:
        given = adapter.settings(
            experts_of(models), access={"require_key": True}, limits={"drain_seconds": 60}
        )
        adapter.write_settings(tmp_path, given)
        key = mild(tmp_path, adapter.add_key("alice", budget_day=AMPLE)).figures["key"]

        def ask_and_stop():
            """Stop the gateway when all questions have arrived at the models; the answers by place."""
            answers = {}

            def ask(place):
                # Of a request that is cut off there may be no answer.
                with contextlib.suppress(OSError, HTTPException):
                    answers[place] = send(gateway, adapter.CHAT, bodies[place], key)

            n_before = len(models.received())
            threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(bodies))]
            for thread in threads:
                thread.start()
            wait_until(lambda: len(models.received()) == n_before + len(bodies))
            assert gateway.stop() == 0
            for thread in threads:
                thread.join()
            return answers

        def spent():
            """Dollars of the account, which are those of the rows."""
            rows = charges(tmp_path)
            dollars = sum(row.dollars for row in rows)
            assert spent_by_keys(tmp_path) == pytest.approx({"alice": dollars})
            return len(rows), dollars

        set_tokens(models, delay=1, pause=0.1)
        with served(tmp_path) as gateway:
            answers = ask_and_stop()
        assert {place: answer.status for place, answer in answers.items()} == {
            0: 200,
            1: 200,
            2: 200,
        }
        assert answers[1].headers[adapter.EXPERT] == "large"
        assert answers[2].document.splitlines()[-2:] == ["data: [DONE]", ""]
        n_rows, dollars = spent()
        assert n_rows == 3
        assert dollars == pytest.approx(2 * DOLLARS["small"] + DOLLARS["large"])

        # Nobody waits for an expert that does not answer: it is charged for what it was sent.
        given["limits"]["drain_seconds"] = 0.5
        adapter.write_settings(tmp_path, given)
        set_tokens(models, fault="hang")
        with served(tmp_path) as gateway:
            answers = ask_and_stop()
        assert not any(answer.status == 200 for answer in answers.values())
        n_rows, dollars_then = spent()
        assert n_rows == 6
        assert dollars < dollars_then <= dollars + 2 * most_dollars("small") + most_dollars("large")


def test_routers_are_exchanged_under_load_and_a_damaged_one_is_refused(router, tmp_path):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    shutil.copytree(router, tmp_path / "damaged")
    adapter.damage_router(tmp_path / "damaged")
    pq.write_table(pa.table(outcomes(best="large")), tmp_path / "log.parquet")

    def exchange(name):
        """Put another folder in the place of the router."""
        os.rename(tmp_path / adapter.ROUTER, tmp_path / "old")
        os.rename(tmp_path / name, tmp_path / adapter.ROUTER)
        shutil.rmtree(tmp_path / "old")

    with ModelServer() as models:
        set_tokens(models, delay=0.1)
        adapter.write_settings(tmp_path, adapter.settings(experts_of(models)))
        with served(tmp_path, adapter.serve_workers(2)) as gateway:

            def common_router(but_not=None):
                """Fingerprint of the router of both workers; None while they differ, or one is silent.

                What a worker knows of both is a moment old.
                """
                status = status_of(gateway)
                routers = adapter.serving_routers(status)
                is_common = adapter.n_workers(status) == 2 and len(routers) == 1
                return routers.pop() if is_common and but_not not in routers else None

            first = wait_until(common_router)
            with Clients(gateway, count=4) as clients:

                def asked():
                    """The experts of the next questions."""
                    return {answer.headers[adapter.EXPERT] for answer in clients.next_answers(20)}

                assert asked() == {"small"}
                # Another version serves in both workers.
                mild(tmp_path, adapter.fit("log.parquet", adapter.ROUTER, "constant", 50))
                second = wait_until(lambda: common_router(but_not=first))
                assert asked() == {"large"}
                shutil.copytree(tmp_path / adapter.ROUTER, tmp_path / "whole")
                # A damaged one does not, and that is known.
                assert not adapter.has_trouble(status_of(gateway))
                exchange("damaged")
                wait_until(lambda: adapter.has_trouble(status_of(gateway)))
                mild(tmp_path, adapter.check(), codes=(1,))
                assert asked() == {"large"}
                assert adapter.has_trouble(status_of(gateway))
                wait_until(lambda: common_router() == second)
                exchange("whole")
                wait_until(lambda: not adapter.has_trouble(status_of(gateway)))
                assert asked() == {"large"}
            assert clients.n_broken == 0
            assert set(codes(clients.answers)) == {(200, None)}
            assert gateway.stop() == 0
        rows = charges(tmp_path)
        check_rows(rows)
        answered = Counter(answer.headers[adapter.EXPERT] for answer in clients.answers)
        assert Counter(row.expert for row in rows) == answered


def test_old_rows_are_forgotten_with_their_scores_and_their_dollars_stay_counted(router, tmp_path):
    shutil.copytree(router, tmp_path / adapter.ROUTER)
    with ModelServer() as models:
        set_tokens(models)
        given = adapter.settings(experts_of(models))
        adapter.write_settings(tmp_path, given)
        with served(tmp_path) as gateway:
            answers = [send(gateway, adapter.CHAT, question(number)) for number in range(5)]
            scores = [
                adapter.feedback(answer.headers[adapter.REQUEST_ID], 1.0) for answer in answers
            ]

            def score_all():
                """Status of the feedback on each answer."""
                return [send(gateway, adapter.FEEDBACK, score).status for score in scores]

            wait_until(lambda: score_all() == [200] * 5)
            assert gateway.stop() == 0
        # A tenth of a second.
        adapter.write_settings(tmp_path, {**given, "ledger": {"keep_days": 1e-6}})
        with served(tmp_path) as gateway:
            wait_until(lambda: score_all() == [404] * 5)
            assert charges(tmp_path) == []
            wait_until(lambda: spent_by_all(gateway) == pytest.approx(5 * DOLLARS["small"]))
            assert gateway.stop() == 0
