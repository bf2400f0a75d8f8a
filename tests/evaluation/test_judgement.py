import pytest

from report_cases import cost_router, document_of, expect, make_table

# The best constant is strong: two errors in eight, little and middle make four.
SCORES = [
    [1, 0, 1], [1, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1],
]  # fmt: skip


def judge(chosen, scores=SCORES, groups=None):
    """Verdict and figures of these choices; every row is alone unless told otherwise."""
    table = make_table(scores)
    rows = range(len(scores)) if groups is None else groups
    document = document_of(cost_router(), table, table.costs(), expect(chosen), groups=rows)
    return document["verdict"], document["figures"]


def test_the_verdict_is_on_router_minus_best_constant():
    verdict, figures = judge([0, 0, 0, 0, 1, 1, 1, 1])
    assert verdict["constant"] == "strong"
    assert verdict["estimate"] == -0.25
    assert verdict["low"] < -0.25 < verdict["high"]
    assert (verdict["pays"], verdict["rows"]) == (None, 8)
    assert figures["loss"] == 0
    assert figures["constant_loss"] == 0.25
    assert figures["oracle_loss"] == 0
    assert figures["headroom_captured"] == 1
    # Half of the rows to little, half to middle: 0.5 each, dealt at random.
    assert figures["shuffled_control"] == 0.5
    assert figures["constant_losses"] == [0.5, 0.5, 0.25]


def test_dollars_are_router_minus_constant_per_thousand():
    verdict, figures = judge([0, 0, 0, 0, 1, 1, 1, 1])
    assert verdict["dollars_per_1000"] == pytest.approx(1000 * (0.0025 - 0.02))
    assert figures["means"]["router"]["dollars"] == pytest.approx(2.5)
    assert figures["means"]["constant"]["dollars"] == pytest.approx(20)
    assert "saves $17.50 per 1,000" in verdict["sentence"]


def test_the_same_as_the_constant_does_not_pay():
    verdict, _ = judge([2] * 8)
    assert verdict["pays"] is False
    assert (verdict["low"], verdict["high"]) == (0, 0)


def test_rows_of_one_query_count_once():
    chosen = [0, 0, 0, 0, 1, 1, 1, 0]
    alone, _ = judge(chosen)
    paired, _ = judge(chosen, groups=[0, 0, 1, 1, 2, 2, 3, 3])
    assert paired["estimate"] == alone["estimate"]
    assert paired["high"] - paired["low"] > alone["high"] - alone["low"]


def test_too_few_rows_cannot_tell():
    verdict, _ = judge([0], [[1, 0, 0]])
    assert verdict["pays"] is None
    assert verdict["estimate"] is None
    assert "too few distinct queries (1)" in verdict["sentence"]
