"""``mild_gateway.collect_outcomes``: from questions and experts to a table, in Python."""

from __future__ import annotations

import asyncio
import json
import signal
import threading

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mild_gateway
from fake_endpoint import FakeEndpoint
from mild.errors import DataFileError, MildError, OutputExistsError
from mild_gateway.collect import plan_outcomes
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.runs import ExpertRun
from mild_gateway.experts.expert import Expert

QUESTIONS = {"query": ["2 + 2?", "3 + 4?", "1 + 3?"], "answer": [4, 7, 4]}
NOWHERE = Expert("nowhere", "http://127.0.0.1:9/v1", "4", price_per_query=0.25)


@pytest.fixture(scope="module")
def endpoint():
    """An endpoint whose models answer with their names."""
    with FakeEndpoint(answer=None) as endpoint:
        yield endpoint


@pytest.fixture
def four(endpoint):
    return Expert("four", endpoint.base_url, "4", price_per_query=0.25)


@pytest.fixture
def seven(endpoint):
    return Expert("seven", endpoint.base_url, "7", price_per_query=0.5)


@pytest.fixture
def collect(tmp_path, four, seven):
    """Collect the outcomes of both experts, on one ledger."""

    def run(questions=None, experts=(four, seven), **options):
        if questions is None:
            questions = pa.table(QUESTIONS)
        options.setdefault("ledger", tmp_path / "l.sqlite")
        return mild_gateway.collect_outcomes(questions, experts, **options)

    return run


def test_a_frame_of_questions_becomes_a_table_of_outcomes(collect):
    found = collect()
    assert found.table.experts == ["four", "seven"]
    assert found.table.scores.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert found.table.prices.tolist() == [[0.25, 0.5]] * 3
    assert (found.spent, found.cached, found.interrupted, found.path) == (2.25, 0, False, None)
    assert found.to_frame()["answer__seven"].to_pylist() == ["7"] * 3
    assert json.loads(json.dumps(found.as_dict()))["experts"]["four"]["accuracy"] == 2 / 3
    assert "3 questions" in repr(found)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frames_come_back_in_the_kind_they_came_in(collect, kind):
    frame = collect(kind(QUESTIONS)).to_frame()
    assert type(frame) is type(kind(QUESTIONS))
    assert np.asarray(frame["correct__four"]).tolist() == [1, 0, 1]


def test_what_is_known_is_neither_asked_nor_paid_again(collect):
    assert collect(limit=2, names=["four"]).spent == 0.5
    found = collect(names="seven, four")
    assert found.table.experts == ["four", "seven"]
    assert (found.spent, found.cached) == (1.75, 2)
    assert collect().spent == 0


def test_a_plan_asks_nothing_and_says_what_it_costs_at_most(collect, tmp_path, four, seven):
    collect(names="four")
    plan = plan_outcomes(pa.table(QUESTIONS), [four, seven], ledger=tmp_path / "l.sqlite")
    assert plan["experts"]["four"] == {"to_ask": 0, "known": 3, "cost_at_most": 0}
    assert plan["experts"]["seven"] == {"to_ask": 3, "known": 0, "cost_at_most": 1.5}


def test_only_a_table_of_the_same_ledger_is_replaced(collect, tmp_path):
    out = tmp_path / "t.csv"
    assert collect(out=out).path == out
    first = out.read_bytes()
    assert collect(out=out).path == out
    assert out.read_bytes() == first
    with pytest.raises(OutputExistsError):
        collect(out=out, ledger=tmp_path / "other.sqlite")
    out.write_text("mine")
    with pytest.raises(OutputExistsError):
        collect(out=out)
    collect(out=out, overwrite=True)
    assert out.read_bytes() == first


def test_the_ledger_is_beside_the_table(tmp_path, monkeypatch, four):
    monkeypatch.chdir(tmp_path)
    for out, ledger in ((None, "outcomes.ledger.sqlite"), ("t.csv", "t.ledger.sqlite")):
        assert mild_gateway.collect_outcomes(pa.table(QUESTIONS), [four], out).spent == 0.75
        assert (tmp_path / ledger).exists()


def test_it_runs_in_a_notebook(collect):
    async def cell():
        return collect()

    assert asyncio.run(cell()).spent == 2.25


@pytest.mark.parametrize("in_notebook", [False, True])
def test_ctrl_c_keeps_what_was_answered(collect, tmp_path, in_notebook):
    slow_endpoint = FakeEndpoint(answer=None, delay=0.2)
    slow = Expert("slow", slow_endpoint.base_url, "4", max_in_flight=1)

    def interrupt(done, total, message):
        if done == 1 and not sent:
            sent.append(True)
            main = threading.main_thread().ident
            signal.pthread_kill(main, signal.SIGINT)

    async def cell():
        return collect(experts=[slow], progress=interrupt)

    sent = []
    with slow_endpoint:
        if in_notebook:
            loop = asyncio.new_event_loop()
            try:
                found = loop.run_until_complete(cell())
            finally:
                loop.close()
        else:
            found = collect(experts=[slow], progress=interrupt)
    assert found.interrupted
    assert 1 <= found.summary["experts"]["slow"]["answered"] < 3
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert ledger.lost == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"experts": []}, "invalid_experts"),
        ({"experts": ["small"]}, "invalid_experts"),
        (
            {"experts": [NOWHERE, Expert("twin", NOWHERE.base_url, NOWHERE.model)]},
            "invalid_experts",
        ),
        ({"max_spend": -1.0}, "invalid_max_spend"),
        ({"tolerance": float("nan")}, "invalid_tolerance"),
        ({"score": "exacty"}, "invalid_score"),
        ({"scorer": "no-such-command"}, "invalid_scorer"),
        ({"names": "five"}, "unknown_option"),
        ({"samples": {"five": 2}}, "invalid_samples"),
        ({"samples": {"four": 0}}, "invalid_samples"),
        ({"questions": pa.table({"query": ["a"]})}, "invalid_data_file"),
        ({"out": "table.txt"}, "invalid_path"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_asked(collect, tmp_path, options, code):
    with pytest.raises(MildError) as caught:
        collect(**options)
    assert caught.value.code == code
    assert not (tmp_path / "l.sqlite").exists()


def test_samples_are_columns_of_their_own(collect, four):
    found = collect(experts=[four], samples={"four": 2})
    assert found.table.experts == ["four", "four#2"]
    assert found.spent == 1.5


def test_without_any_answer_there_is_no_table(collect, tmp_path):
    with FakeEndpoint(script=[("status", 401, {}, "no")] * 9) as endpoint:
        closed = Expert("closed", endpoint.base_url, "4")
        with pytest.raises(DataFileError, match=r"no expert answered anything \(closed: HTTP 401"):
            collect(experts=[closed], out=tmp_path / "t.csv")
    assert not (tmp_path / "t.csv").exists()


def test_progress_does_not_go_through_all_questions_for_every_answer(collect, monkeypatch, four):
    seen, pending = [], ExpertRun.pending
    monkeypatch.setattr(ExpertRun, "pending", lambda run: seen.append(1) or pending(run))
    given = pa.table({"query": [f"{i} + 0?" for i in range(12)], "answer": [4] * 12})
    told = []
    collect(given, [four], progress=lambda *one: told.append(one))
    assert len(told) > 12
    assert len(seen) < 6
