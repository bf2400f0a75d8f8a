"""Sentences that follow the numbers."""

from __future__ import annotations

import dataclasses
import re

from mild.evaluation.demo.findings import caption, findings
from mild.evaluation.demo.run import Block, DemoResults


def changed(results: DemoResults, **rows) -> DemoResults:
    """Results with some rows' against_tdef replaced in every block."""

    def edit(block: Block) -> Block:
        kept = tuple(
            dataclasses.replace(row, against_tdef=rows[row.key]) if row.key in rows else row
            for row in block.rows
        )
        return dataclasses.replace(block, rows=kept)

    return dataclasses.replace(results, blocks=tuple(edit(block) for block in results.blocks))


def test_there_are_five_to_nine_sentences_that_end(small_results):
    sentences = findings(small_results)
    assert 5 <= len(sentences) <= 9
    assert all(sentence.endswith(".") for sentence in sentences)


def test_counts_add_up_to_the_number_of_blocks(small_results):
    tally = re.compile(r"better in (\d+), worse in (\d+), undecided in (\d+) of (\d+) blocks")
    found = tally.findall(" ".join(findings(small_results)))
    assert len(found) >= 5
    for better, worse, level, total in found:
        assert int(better) + int(worse) + int(level) == int(total) == len(small_results.blocks)


def test_the_first_sentence_follows_the_intervals(small_results):
    sure = small_results.blocks[0].row("mild_theory_argmax").against_tdef
    worse = changed(small_results, mild_tuned_stationary=sure)
    assert "better in 0, worse in 4, undecided in 0 of 4 blocks" in findings(worse)[0]
    assert "largest gain" not in findings(worse)[0]
    better = dataclasses.replace(sure, low=-sure.high, high=-sure.low, estimate=-sure.estimate)
    gained = findings(changed(small_results, mild_tuned_stationary=better))[0]
    assert "better in 4, worse in 0" in gained
    assert "largest gain" in gained


def test_the_caption_states_rule_grid_and_seeds(small_results):
    text = caption(small_results)
    assert "2 splits" in text
    assert "95 % interval" in text
    assert "alpha from 0.0001 by 2-fold cross-validation" in text
    assert "every other row but the oracle's" in text
