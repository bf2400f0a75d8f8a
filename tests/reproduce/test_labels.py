"""Names that a reader understands, and that tell different things apart."""

from __future__ import annotations

import pytest

from mild.reproduce.labels import block_title, method_label, method_order, seed_range, tell_apart
from result_cases import LDAM, PROTOCOLS, TDEF, THEORY, TUNED, UNIFORM, make_record


def cell(**changes):
    common = make_record(**changes)["cell"]
    return {name: value for name, value in common.items() if name not in ("method", "seed")}


@pytest.mark.parametrize(
    ("method", "decision", "label"),
    [
        (TDEF, "argmax", "TDEF"),
        (LDAM, "argmax", "LDAM"),
        (UNIFORM, "argmax", "MILD others, uniform, mean ρ=1"),
        (THEORY, "argmax", "MILD others, theory (best), Σρ=1, argmax"),
        (THEORY, "stationary", "MILD others, theory (best), Σρ=1, stationary"),
        ({**THEORY, "total": "2.5"}, "argmax", "MILD others, theory (best), Σρ=2.5, argmax"),
        (TUNED, "stationary", "MILD any, tuned, stationary"),
        (
            {**TUNED, "margins": [0.5, 0.25, 1], "total": None},
            *("argmax", "MILD any, ρ=0.5/0.25/1, argmax"),
        ),
        ({"name": "oracle"}, None, "oracle"),
        ({"name": "constant"}, None, "best constant"),
        ({"name": "unheard-of"}, "argmax", "unheard-of"),
    ],
)
def test_methods_read_as_their_settings(method, decision, label) -> None:
    assert method_label(method, decision) == label


def test_searched_margins_say_where_they_began_when_asked_to() -> None:
    grid = {**THEORY, "margins": "grid"}
    assert method_label(grid, "argmax") == "MILD others, grid, argmax"
    assert method_label(grid, "argmax", full=True) == "MILD others, grid (best), Σρ=1, argmax"
    assert method_label(TUNED, "argmax", full=True) == "MILD any, tuned, mean ρ=1, argmax"


def test_titles_say_protocol_augmentation_and_holdout() -> None:
    assert block_title(cell()) == (
        "CIFAR-10 · setup I (70-20-10) · synthetic experts · error · protocol fast (16 epochs)"
    )
    plain = PROTOCOLS["fast"] | {
        "name": "fast, changed",
        "epochs": 1,
        "augment": False,
        "lr": 0.004,
    }
    title = block_title(cell(protocol=plain, cost="cost", holdout=True, dataset="svhn5000"))
    assert title == (
        "SVHN, 5,000 images · setup I (70-20-10) · synthetic experts · error + cost · "
        "protocol fast, changed (1 epoch) · no augmentation · holdout"
    )


def test_titles_say_how_experts_were_trained_if_otherwise_than_the_router() -> None:
    same = cell(experts="real", expert_protocol=PROTOCOLS["fast"])
    other = cell(experts="real", expert_protocol=PROTOCOLS["paper"])
    assert block_title(same).endswith("· protocol fast (16 epochs)")
    assert block_title(other).endswith("· experts by protocol paper (200 epochs)")


def test_a_split_of_one_s_own_is_called_by_its_coverage_and_people_by_their_accuracy() -> None:
    assert "· setup 60-30-10 · real experts ·" in block_title(
        cell(setup="0.6-0.3-0.1", experts="real")
    )
    people = cell(setup="people", experts="people", coverage=[0.828, 0.9])
    assert "· people (accuracy 82.8-90 %) and a classifier ·" in block_title(people)


def test_titles_that_coincide_say_what_differs_and_others_stay() -> None:
    slow = {**PROTOCOLS["fast"], "lr": 0.1}
    cells = [cell(), cell(protocol=slow), cell(protocol=slow, expert_seed=3), cell(setup="II")]
    told = tell_apart([block_title(each) for each in cells], cells)
    assert told[3] == block_title(cells[3])
    assert told[0].endswith("· expert_seed None, protocol lr 0.005")
    assert told[2].endswith("· expert_seed 3, protocol lr 0.1")
    assert len(set(told)) == 4


def test_rows_come_tdef_first_then_mild_by_margins_and_decision_then_the_others() -> None:
    rows = [
        (TDEF, "argmax"),
        (UNIFORM, "argmax"),
        ({**THEORY, "counts": "reward"}, "argmax"),
        (THEORY, "argmax"),
        (THEORY, "stationary"),
        ({**THEORY, "total": "mean1"}, "argmax"),
        ({**THEORY, "rewards": "contrast"}, "argmax"),
        (TUNED, "argmax"),
        ({**TUNED, "margins": [1.0, 2.0, 3.0]}, "argmax"),
        (LDAM, "argmax"),
    ]
    shuffled = [rows[k] for k in (9, 3, 0, 7, 5, 1, 8, 2, 6, 4)]
    assert sorted(shuffled, key=lambda row: method_order(*row)) == rows


@pytest.mark.parametrize(
    ("seeds", "text"),
    [([3, 1, 2, 1], "1-3"), ([0, 1], "0, 1"), ([5], "5"), ([0, 1, 3], "0, 1, 3")],
)
def test_seeds_in_few_words(seeds, text) -> None:
    assert seed_range(seeds) == text


def test_a_changed_protocol_says_what_is_changed_and_another_width_always() -> None:
    changes = {"batch_size": 128, "lr": 0.01, "width": 8}
    changed = PROTOCOLS["fast"] | changes | {"name": "fast, changed", "epochs": 1}
    text = "fast, changed (1 epoch, width 8, batch size 128, learning rate 0.01)"
    assert f"· protocol {text}" in block_title(cell(protocol=changed))
    real = cell(experts="real", expert_protocol=changed)
    assert block_title(real).endswith(f"· experts by protocol {text}")
    assert "(16 epochs, width 8)" in block_title(cell(protocol=PROTOCOLS["fast"] | {"width": 8}))
