"""``mild_gateway.replay``: a ledger and a router give estimates and a verdict, in Python."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import mild_gateway
from cascade_cases import cascade_router
from mild.errors import MildError, UnsupportedError
from replay_cases import NAMES, NEW, make_log, make_router, true_cost, write_log


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A ledger with texts, one without, and what is known about its requests."""
    folder = tmp_path_factory.mktemp("replay")
    records, errors = make_log(2000)
    write_log(folder / "l.sqlite", records)
    write_log(folder / "bare.sqlite", records, keep_text=False)
    return folder, records, errors


def test_a_cheaper_router_is_better(log):
    folder, _, _ = log
    found = mild_gateway.replay(folder / "l.sqlite", make_router())
    entry = found.estimates["cost"]["doubly_robust"]
    assert entry["low"] < true_cost(NEW) < entry["high"]
    assert found.verdict.pays is True
    assert found.verdict.sentence in repr(found)
    assert set(found.shares) == set(NAMES)
    assert (
        json.loads(json.dumps(found.as_dict(), allow_nan=False))["estimates"]["cost"]
        == found.estimates["cost"]
    )


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_queries_and_feedback_may_be_frames(log, kind):
    folder, records, errors = log
    queries = kind({"request_id": [r.request_id for r in records], "q": [r.text for r in records]})
    feedback = kind({"request_id": list(errors), "error": list(errors.values())})
    found = mild_gateway.replay(
        folder / "bare.sqlite",
        make_router(),
        queries=queries,
        text_column="q",
        feedback=feedback,
        price_weight=10.0,
    )
    assert found.cost == "error + 10 * dollars"
    frame = found.to_frame()
    assert type(frame) is type(feedback)
    assert set(frame["quantity"] if kind is not pa.table else frame["quantity"].to_pylist()) == {
        "cost",
        "dollars",
        "errors",
        "failures",
    }


def test_the_configuration_of_a_gateway_names_its_ledger(log):
    folder, _, _ = log
    config = folder / "mild.toml"
    config.write_text(
        '[experts.small]\nbase_url = "http://x/v1"\nmodel = "m"\n[ledger]\npath = "l.sqlite"\n'
    )
    assert (
        mild_gateway.replay(config, make_router()).rows
        == mild_gateway.replay(folder / "l.sqlite", make_router()).rows
    )


def test_a_span_is_text_seconds_or_a_datetime(log):
    folder, records, _ = log
    middle = records[len(records) // 2].time
    spans = (
        middle,
        datetime.fromtimestamp(middle, UTC),
        datetime.fromtimestamp(middle, UTC).isoformat(),
    )
    rows = [
        mild_gateway.replay(folder / "l.sqlite", make_router(), until=until).rows for until in spans
    ]
    assert len(set(rows)) == 1
    rest = mild_gateway.replay(folder / "l.sqlite", make_router(), since=middle).rows
    assert rows[0] + rest == mild_gateway.replay(folder / "l.sqlite", make_router()).rows
    assert rest > 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"explore": 2.0}, "invalid_explore"),
        ({"confidence": 1.0}, "invalid_confidence"),
        ({"since": "yesterday"}, "unknown_option"),
        ({"feedback": pa.table({"request_id": ["r1"], "error": [2.0]})}, "invalid_data_file"),
        ({"feedback": pa.table({"request_id": ["r1"], "error": [1.0]})}, "invalid_price_weight"),
        ({"queries": pa.table({"request_id": ["r1"]})}, "invalid_data_file"),
    ],
)
def test_bad_arguments_have_a_code(log, options, code):
    with pytest.raises(MildError) as caught:
        mild_gateway.replay(log[0] / "l.sqlite", make_router(), **options)
    assert caught.value.code == code


def test_a_cascade_is_not_replayed(log):
    with pytest.raises(UnsupportedError, match=r"a cascade cannot be replayed.*router\.direct"):
        mild_gateway.replay(log[0] / "l.sqlite", cascade_router())


def test_a_router_that_asks_one_expert_is_compared_with_a_cascade_that_served(tmp_path):
    """The cascade is drawn with 0.7, and each of three experts with 0.1."""
    rng = np.random.default_rng(5)
    records, _ = make_log(3000, explore=1.0)
    for entry in records:
        entry.propensity = 0.1
        entry.preferred = "cascade"
        if rng.random() < 0.7:
            entry.chosen, entry.propensity, entry.price = "cascade", 0.7, 0.05
    found = mild_gateway.replay(write_log(tmp_path / "l.sqlite", records), make_router())
    entry = found.estimates["cost"]
    assert entry["doubly_robust"]["low"] < true_cost(NEW) < entry["doubly_robust"]["high"]
    assert entry["serving"]["mean"] == pytest.approx(0.05, abs=0.002)
    assert found.verdict.pays is True
    assert found.shares["cascade"]["new"] == 0
