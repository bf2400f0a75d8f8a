"""Live shares beside the usual ones."""

from types import SimpleNamespace

import pytest

from mild.artifact import RouterInfo
from mild_gateway.dashboard.shares import MIN_DECISIONS, WINDOW, Reference, share_document, trained
from mild_gateway.decide import usual_shares

NAMES = ["a", "b"]


def usual(**more):
    shares = {"rows": 100, "experts": {"a": 0.7, "b": 0.3}}
    info = RouterInfo.from_notes({"shares": shares, **more})
    return usual_shares(SimpleNamespace(info=info))


def test_trained_shares_are_read_from_the_notes():
    found = trained(usual(), NAMES, None)
    assert found.counts == pytest.approx((70.0, 30.0))
    assert found.name == "trained"


@pytest.mark.parametrize(
    "shares",
    [
        None,
        "many",
        {"rows": 0, "experts": {"a": 1, "b": 0}},
        {"rows": 9, "experts": {"a": 1}},
        {"rows": 9, "experts": {"a": 1, "b": "x"}},
        {"rows": "9", "experts": {"a": 1, "b": 0}},
    ],
)
def test_a_router_that_does_not_say_has_no_trained_shares(shares):
    assert trained(usual(shares=shares), NAMES, None) is None


def test_under_another_trade_off_the_trained_shares_do_not_count():
    fitted = usual(cost={"price_weight": 50.0})
    assert trained(fitted, NAMES, 50.0) is not None
    assert trained(fitted, NAMES, None) is not None
    assert trained(fitted, NAMES, 10.0) is None


def test_shares_within_and_outside_their_bands():
    reference = Reference((700.0, 300.0), "trained")
    calm = share_document(NAMES, ["a"] * 350 + ["b"] * 150, reference)
    assert not calm["drift"]
    assert calm["sentence"] == "All shares of the last 500 decisions are within their bands."
    assert [line["live"] for line in calm["experts"]] == [0.7, 0.3]
    moved = share_document(NAMES, ["a"] * 250 + ["b"] * 250, reference)
    assert moved["drift"]
    assert [line["outside"] for line in moved["experts"]] == [True, True]
    assert "a has 50.0 % of the last 500 decisions; in training it had 70.0 %" in moved[
        "sentence"
    ].replace("\u00a0", " ")


def test_few_decisions_are_shown_and_not_judged():
    reference = Reference((700.0, 300.0), "trained")
    found = share_document(NAMES, ["b"] * (MIN_DECISIONS - 1), reference)
    assert not found["drift"]
    assert "compared from 50 decisions on" in found["sentence"]
    assert share_document(NAMES, ["b"] * MIN_DECISIONS, reference)["drift"]
    assert share_document(NAMES, [], reference)["sentence"] == "No decisions yet."


def test_without_trained_shares_the_earlier_decisions_are_the_usual():
    draws = ["b"] * WINDOW + ["a", "b"] * 500
    found = share_document(NAMES, draws, None)
    assert (found["reference"], found["reference_rows"]) == ("earlier", 1000)
    assert found["drift"]
    assert found["experts"][0]["usual"] == 0.5
    early = share_document(NAMES, draws[: WINDOW + MIN_DECISIONS - 1], None)
    assert early["reference"] is None
    assert not early["drift"]
