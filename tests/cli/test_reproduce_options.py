"""Errors of ``mild reproduce`` name the option that was typed, and offer what the verb takes."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["readings", "--setup", "IV"], "--setup must be one of 'I', 'II', 'III', 'severe'; got"),
        (["readings", "--experts", "fake"], "--experts must be one of 'synthetic', 'real'; got 'f"),
        (["readings", "--holdout"], "--holdout must go with real experts; got synthetic ones"),
        (["readings", "--expert-seed", "3"], "--expert-seed must go with real experts; got synth"),
        (["severe", "--experts", "synthetic", "--holdout"], "--holdout must go with real experts"),
        (
            ["severe", "--experts", "synthetic", "--expert-protocol", "fast"],
            "--expert-protocol must go with real experts; got synthetic ones alone. Leave it out, or "
            "ask for real ones (--experts real).",
        ),
        (
            ["table1", "--method", "mild:rewards=a"],
            "--method mild:rewards=a: rewards must be one of",
        ),
        (
            ["table1", "--method", "mild:margins=a"],
            "--method mild:margins=a: margins must be one of",
        ),
        (["table1", "--method", "mild:total=0"], "--method mild:total=0: total must be a positive"),
        (
            ["table1", "--method", "mild:margins=1/2"],
            "--method mild:rewards=others,margins=1/2 must have one margin per expert, 3 in setup I; ",
        ),
        (["table1", "--checkpoint-dir", "file"], "--checkpoint-dir must be a folder that can be"),
        (
            ["table1", "--cache-dir", "file", "--method", "tuned"],
            "--cache-dir must be a folder that can be written to",
        ),
        (
            ["table1", "--results", "file/r.jsonl"],
            "--results must lie in a folder that can be made",
        ),
    ],
)
def test_an_error_names_the_option_and_offers_what_the_verb_takes(
    words, sentence, mild, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    quick = ["--dataset", "digits", "--seeds", 1, "--epochs", 1, "--width", 1]
    quick += [] if "--method" in words else ["--method", "tdef"]
    done = mild("reproduce", *words, *quick)
    assert done.code == 1
    assert done.err.startswith(f"error: {sentence}")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]
