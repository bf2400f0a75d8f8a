"""Sentences that follow the numbers."""

from __future__ import annotations

import copy
import re

import pytest

from mild.evaluation.demo.tables import caption, findings


@pytest.fixture(scope="module")
def document(small_results):
    return small_results.document


def with_verdict(document, method, verdict):
    """The document with another verdict against TDEF for a method in every block."""
    changed = copy.deepcopy(document)
    for block in changed["blocks"]:
        for row in block["rows"]:
            if row["method"] == method:
                row["verdict_against_tdef"] = verdict
    return changed


def test_there_are_five_to_nine_sentences_that_end(document):
    sentences = findings(document)
    assert 5 <= len(sentences) <= 9
    assert all(sentence.endswith(".") for sentence in sentences)


def test_counts_add_up_to_the_number_of_blocks(document):
    tally = re.compile(r"better in (\d+), worse in (\d+), undecided in (\d+) of (\d+) blocks")
    found = tally.findall(" ".join(findings(document)))
    assert len(found) >= 5
    for better, worse, level, total in found:
        assert int(better) + int(worse) + int(level) == int(total) == len(document["blocks"])


def test_the_first_sentence_follows_the_intervals(document):
    worse = findings(with_verdict(document, "mild_tuned_stationary", "worse"))[0]
    assert "better in 0, worse in 4, undecided in 0 of 4 blocks" in worse
    assert "largest gain" not in worse
    gained = findings(with_verdict(document, "mild_tuned_stationary", "better"))[0]
    assert "better in 4, worse in 0" in gained
    assert "largest gain" in gained


def test_the_caption_states_rule_grid_and_seeds(document):
    text = caption(document["settings"])
    assert "2 splits" in text
    assert "95 % interval" in text
    assert "alpha from 0.0001 by 2-fold cross-validation" in text
    assert "every other row but the oracle's" in text
