"""Tables as text: every number where a reader or a program looks for it."""

from __future__ import annotations

import pytest

from mild.reproduce.formats import terminal_table, to_markdown
from mild.reproduce.summary import summarise
from result_cases import TDEF, THEORY, make_record, three_seeds


@pytest.fixture(scope="module")
def records():
    return three_seeds()


@pytest.fixture(scope="module")
def blocks(records):
    return summarise(records)


def cells_of(markdown: str, label: str) -> list[str]:
    (line,) = [line for line in markdown.splitlines() if line.startswith(f"| {label} |")][:1]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_markdown_puts_ours_beside_the_paper_s(blocks) -> None:
    text = to_markdown(blocks)
    assert text.startswith("## Table 1: synthetic experts\n\n### CIFAR-10 · setup I (70-20-10)")
    # 0.05 - 0.052 over sqrt(1e-4 / 3 + 0.0022^2 / 5) is -0.34.
    assert cells_of(text, "TDEF") == [
        *("TDEF", "3", "0.0500 ± 0.0100", "72.5 17.5 10.0", "0.0520 ± 0.0022", "71.3 19.2 9.5"),
        *("-0.3", "–", "–"),
    ]
    stationary = cells_of(text, "MILD others, theory (best), Σρ=1, stationary")
    # Differences -0.010, -0.010, -0.009: mean -0.00967, 4.302653 * 0.000577 / sqrt(3) = 0.00143.
    assert stationary[4:] == [
        *("0.0403 ± 0.0018", "70.0 20.0 10.0", "+0.0"),
        *("-0.0097 [-0.0111, -0.0082]", "better than TDEF"),
    ]
    assert cells_of(text, "oracle")[4:] == ["–"] * 5
    assert "More costly than the best constant: MILD others, theory (best), Σρ=1, argmax." in text
    assert "- Hardware: one GPU." in text


def test_every_markdown_line_of_a_table_has_nine_cells(blocks) -> None:
    lines = [line for line in to_markdown(blocks).splitlines() if line.startswith("|")]
    assert len(lines) == 2 * 2 + 5 + 3
    assert {line.count("|") for line in lines} == {10}


def test_the_heading_level_and_a_bar_in_a_name_are_looked_after(records) -> None:
    text = to_markdown(summarise([make_record({**TDEF, "name": "a|b"})]), heading=3)
    assert text.startswith("### Table 1")
    assert r"| a\|b |" in text


def test_joint_intervals_are_labelled_as_such(records) -> None:
    alone = to_markdown(summarise(records))
    jointly = to_markdown(summarise(records, simultaneous=True))
    assert "| minus TDEF (95 %) |" in alone
    assert "each by itself" in alone
    assert "| minus TDEF (95 %, jointly) |" in jointly
    assert "jointly over the 2 rows compared (Bonferroni)" in jointly


def test_the_terminal_shows_the_paper_first_and_its_cells_are_narrow(blocks) -> None:
    title, header, rows, footnotes = terminal_table(blocks[0])
    assert title.startswith("Table 1: synthetic experts · CIFAR-10 · setup I (70-20-10)")
    assert [row[0] for row in rows[:3]] == ["TDEF, the paper", "MILD, the paper", "TDEF"]
    assert rows[1][1:4] == ["5", "0.0403 ± 0.0018", "70 20 10"]
    assert rows[4] == [
        *("MILD others, theory (best), Σρ=1, stationary", "3", "0.0403 ± 0.0095", "70 20 10"),
        *("+0.0", "[-0.0111, -0.0082]", "better"),
    ]
    assert {len(row) for row in rows} == {len(header)} == {7}
    # The numbers, and a border each, leave room for the method in 100 columns.
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(1, 7)]
    assert sum(widths) + 3 * 7 + 1 <= 85
    assert footnotes[0].startswith("From paper: ours minus the paper's mean")
    assert any("paired over common seeds" in note for note in footnotes)


def test_the_terminal_leaves_out_what_a_block_has_not(blocks) -> None:
    _, _, rows, footnotes = terminal_table(blocks[1])
    assert [row[0] for row in rows] == ["TDEF", "best constant", "oracle"]
    assert rows[0] == ["TDEF", "1", "0.0500", "70 20 10", "", "", ""]
    assert footnotes == ["Data: 1,797 digits."]


def test_one_seed_reads_one_seed_in_the_terminal() -> None:
    (block,) = summarise([make_record(), make_record(THEORY)])
    assert terminal_table(block).rows[3][-1] == "one seed"


def test_no_blocks_make_empty_tables() -> None:
    assert to_markdown([]) == ""


def test_people_are_named_in_the_order_of_the_shares() -> None:
    cell = {"table": "people", "experts": "people", "setup": "people", "coverage": [0.8, 0.9]}
    record = make_record(**cell) | {"experts": {"names": ["annotator 1", "classifier"]}}
    notes = terminal_table(summarise([record])[0]).footnotes
    assert "Experts, in the order of the shares: annotator 1, classifier." in notes


def test_synthetic_experts_beside_the_paper_s_real_ones_are_told() -> None:
    note = "The paper's figures are for real experts; ours here are synthetic."
    for experts in ("synthetic", "real"):
        record = make_record(table="severe", setup="severe", experts=experts)
        block = summarise([record])[0]
        assert (note in terminal_table(block).footnotes) == (experts == "synthetic")
