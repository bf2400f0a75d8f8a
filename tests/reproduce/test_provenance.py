"""The lines under a table say how its numbers were made, whatever was mixed."""

from __future__ import annotations

from mild.reproduce.provenance import meta_lines
from result_cases import TDEF, THEORY, UNIFORM, make_record


def test_records_of_one_kind_are_said_once() -> None:
    records = [make_record(method, seed) for method in (TDEF, UNIFORM) for seed in range(3)]
    assert meta_lines(records) == (
        "Seeds: 0-2.",
        "Training: fast: 16 epochs, batch 1,024, learning rate 0.005 (one-cycle), "
        "coupled weight decay 0.001, augmentation.",
        "Hardware: one GPU.",
        "Commits: 0123456789ab.",
        "Versions: mild 0.1.0, torch 2.11.0.",
        "Training time on that hardware: 75 s (0.02 h) in 6 trainings.",
    )


def test_mixed_records_are_counted_and_notes_name_their_data() -> None:
    records = [
        make_record(seed=0, hardware="a", commit=None, versions={"torch": "2.10"}),
        make_record(seed=1, hardware="b", versions={"torch": "2.11"}),
        make_record(seed=2, hardware="b", protocol="paper"),
        make_record(seed=3, dataset="svhn5000", note="4,000 train, 1,000 test."),
        make_record(seed=4, dataset="svhn5000", note="4,000 train, 1,000 test."),
    ]
    lines = meta_lines(records)
    assert lines[0] == "Data: SVHN, 5,000 images: 4,000 train, 1,000 test."
    text = "\n".join(lines)
    assert text.count("Data:") == 1
    assert "fast: 16 epochs" in text
    assert "paper: 200 epochs, batch 1,024, learning rate 0.001 (constant)" in text
    assert "Hardware: b (2 trainings), one GPU (2 trainings), a (1 training)." in text
    assert "Commits: 0123456789ab (4 trainings), not recorded (1 training)." in text
    assert "torch 2.10/2.11/2.11.0" in text


def test_twins_are_one_training() -> None:
    first = {**make_record(TDEF, commit="a"), "twin": "x"}
    copy = {**make_record(UNIFORM, commit="a"), "twin": "x"}
    # The same training, run again for another results file.
    again = {**make_record(THEORY, commit="b", finished="2026-05-01T00:00:00+00:00"), "twin": "x"}
    assert "Training time on that hardware: 12 s (0.00 h) in 1 training." in meta_lines(
        [first, copy]
    )
    lines = meta_lines([first, copy, again])
    assert "Training time on that hardware: 25 s (0.01 h) in 2 trainings." in lines
    assert "Commits: a (1 training), b (1 training)." in lines


def test_a_protocol_with_its_bare_fields_is_enough() -> None:
    bare = {"name": "own", "epochs": 2, "augment": False}
    assert "Training: own: 2 epochs, no augmentation." in meta_lines([make_record(protocol=bare)])
