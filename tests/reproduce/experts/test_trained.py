"""Real experts: what they are trained on, and that they are trained once."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mild.exceptions import InvalidInputError, MildWarning
from mild.files import KERNEL_LOCKS
from mild.reproduce.experts import SETUPS, coverage_setup, trained, trained_answers
from mild.reproduce.experts.answers import accuracy
from mild.reproduce.experts.trained import LEAST_STEPS, expert_protocol, expert_rows
from mild.reproduce.images.protocol import PROTOCOLS


@pytest.mark.parametrize(("per_class", "others"), [(5000, 50), (500, 5), (30, 1), (1, 1)])
def test_an_expert_sees_its_classes_and_one_percent_of_every_other(per_class, others):
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), per_class))
    rows = expert_rows(labels, np.arange(len(labels)), np.array([7, 8]), seed=0)
    assert len(np.unique(rows)) == len(rows)
    counts = np.bincount(labels[rows], minlength=10)
    assert counts.tolist() == [others] * 7 + [per_class] * 2 + [others]


def test_the_one_percent_depends_on_seed_and_classes_but_not_on_position():
    labels = np.repeat(np.arange(10), 500)
    pool = np.arange(len(labels))
    first, again, other = (expert_rows(labels, pool, np.array([9]), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    neighbour = expert_rows(labels, pool, np.array([8]), 0)
    assert set(first[first < 4000]) != set(neighbour[neighbour < 4000])


def test_rows_come_from_the_pool_alone():
    labels = np.repeat(np.arange(3), 100)
    pool = np.arange(0, 300, 2)
    assert set(expert_rows(labels, pool, np.array([0]), 0)) <= set(pool.tolist())


@pytest.mark.parametrize(("rows", "epochs"), [(50000, 16), (5450, 80), (1024, 400), (100, 400)])
def test_epochs_are_raised_to_the_least_number_of_steps(rows, epochs):
    protocol = expert_protocol(PROTOCOLS["fast"], rows)
    assert protocol.epochs == epochs
    assert protocol.epochs * max(1, rows // protocol.batch_size) >= LEAST_STEPS


def test_a_protocol_of_many_epochs_is_kept():
    assert expert_protocol(PROTOCOLS["paper"], 50000) is PROTOCOLS["paper"]


def test_each_training_gets_the_rows_of_its_expert(images, protocol, trainer):
    answers = trained_answers(images, SETUPS["I"], protocol)
    owners = SETUPS["I"].owners(10)
    assert len(trainer.calls) == 3
    for expert, call in enumerate(trainer.calls):
        counts = np.bincount(call["labels"], minlength=10)
        assert counts.tolist() == np.where(owners == expert, 30, 1).tolist()
        assert call["flip"] is images.flip
        assert len(call["images"]) == len(call["labels"])
        assert call["protocol"].epochs * max(1, len(call["labels"]) // 50) >= LEAST_STEPS
    assert len({call["seed"] for call in trainer.calls}) == 3
    assert answers.kind == "real"
    assert answers.train.shape == (300, 3)
    assert answers.test.shape == (100, 3)
    np.testing.assert_array_equal(answers.router_rows, np.arange(300))
    np.testing.assert_array_equal(answers.prices, [0.7, 0.2, 0.1])


def test_accuracies_on_own_and_other_classes_are_noted(images, protocol, trainer):
    answers = trained_answers(images, SETUPS["severe"], protocol)
    for k, (noted, own) in enumerate(
        zip(answers.notes["experts"], (range(9), range(9, 10)), strict=True)
    ):
        found = accuracy(answers.test[:, k], images.test_labels, list(own))
        assert noted["accuracy"]["test"] == found.as_dict()
        assert found.own == 1.0
        assert found.others == 0.0
    assert [noted["rows"] for noted in answers.notes["experts"]] == [271, 39]


def test_another_recipe_is_another_expert(images, protocol, trainer, tmp_path, monkeypatch):
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    monkeypatch.setattr(trained, "RECIPE", trained.RECIPE + 1)
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 4


def test_a_cached_expert_is_not_trained_again(images, protocol, trainer, tmp_path):
    first = trained_answers(images, SETUPS["II"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 4
    second = trained_answers(images, SETUPS["II"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 4
    np.testing.assert_array_equal(first.train, second.train)
    np.testing.assert_array_equal(first.test, second.test)
    assert first.notes == second.notes
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.skipif(not KERNEL_LOCKS, reason="the system has no such locks")
def test_two_at_once_have_the_same_experts_and_the_second_says_that_it_waits(
    images, protocol, trainer, tmp_path, monkeypatch
):
    under_way, go_on = threading.Event(), threading.Event()
    told = []

    def slow(*arguments, **options):
        network = trainer(*arguments, **options)
        if len(trainer.calls) == 1:
            under_way.set()
            go_on.wait(60)
        # On a GPU no two trainings are the same.
        noise = np.random.default_rng(len(trainer.calls)).permutation(network.means)
        return dataclasses.replace(network, means=noise)

    def tell(*said):
        told.append(said)
        go_on.set()

    def second():
        try:
            return answers(progress=tell)
        finally:
            go_on.set()

    def answers(**options):
        return trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path, **options)

    monkeypatch.setattr("mild.reproduce.experts.trained.train_classifier", slow)
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(answers)
        assert under_way.wait(60)
        theirs = pool.submit(second)
        one, other = ours.result(), theirs.result()
    np.testing.assert_array_equal(one.train, other.train)
    np.testing.assert_array_equal(one.test, other.test)
    assert one.notes == other.notes
    assert len(trainer.calls) == 2
    epochs = trainer.calls[0]["protocol"].epochs
    assert told[0] == (0, epochs, "expert for classes 0-8: waiting for another process")
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"] * 2


def test_without_a_folder_every_call_trains(images, protocol, trainer):
    for _ in range(2):
        trained_answers(images, SETUPS["severe"], protocol)
    assert len(trainer.calls) == 4


def test_setups_share_the_experts_with_the_same_classes(images, protocol, trainer, tmp_path):
    first = trained_answers(images, SETUPS["I"], protocol, cache_dir=tmp_path)
    second = trained_answers(images, SETUPS["II"], protocol, cache_dir=tmp_path)
    # Classes 7-8 and class 9 are there; 0-4 and 5-6 are new.
    assert len(trainer.calls) == 5
    np.testing.assert_array_equal(first.train[:, 1:], second.train[:, 2:])
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 6


def test_the_name_of_a_protocol_does_not_matter(images, protocol, trainer, tmp_path):
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    renamed = dataclasses.replace(protocol, name="mine")
    trained_answers(images, SETUPS["severe"], renamed, cache_dir=tmp_path)
    assert len(trainer.calls) == 2


@pytest.mark.parametrize("change", ["seed", "holdout", "lr", "data"])
def test_whatever_an_expert_depends_on_makes_it_another(
    change, images, make_images, protocol, trainer, tmp_path
):
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    options = {"seed": 1} if change == "seed" else {"holdout": True} if change == "holdout" else {}
    trained_answers(
        make_images(seed=1) if change == "data" else images,
        SETUPS["severe"],
        protocol.changed(lr=0.5) if change == "lr" else protocol,
        cache_dir=tmp_path,
        **options,
    )
    assert len(trainer.calls) == 4


def test_a_damaged_file_is_trained_again_and_replaced(images, protocol, trainer, tmp_path):
    first = trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    broken = sorted(tmp_path.iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:-7])
    with pytest.warns(MildWarning, match="trained again and the file replaced"):
        second = trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 3
    np.testing.assert_array_equal(first.train, second.train)
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert len(trainer.calls) == 3


def test_a_checkpoint_is_named_by_the_key_and_removed_when_the_expert_is_kept(
    images, protocol, trainer, tmp_path, monkeypatch
):
    def leaving(*arguments, **options):
        options["checkpoint"].write_bytes(b"half of it")
        return trainer(*arguments, **options)

    monkeypatch.setattr("mild.reproduce.experts.trained.train_classifier", leaving)
    trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert len({call["checkpoint"] for call in trainer.calls}) == 2
    for call in trainer.calls:
        assert call["checkpoint"].parent == tmp_path
        assert call["identity"]["expert"].startswith(call["checkpoint"].stem.split("-")[1])
    assert all(path.suffix == ".safetensors" for path in tmp_path.iterdir())


def test_with_holdout_no_expert_saw_an_image_of_the_router(images, protocol, trainer):
    marked = np.zeros_like(images.train_images)
    # Every image carries its row in its first two pixels.
    marked[:, 0, 0, 0] = np.arange(300) // 256
    marked[:, 0, 1, 0] = np.arange(300) % 256
    data = dataclasses.replace(images, train_images=marked)
    answers = trained_answers(data, SETUPS["I"], protocol, holdout=True)
    seen = {
        int(image[0, 0, 0]) * 256 + int(image[0, 1, 0])
        for call in trainer.calls
        for image in call["images"]
    }
    assert not seen & set(answers.router_rows.tolist())
    # All rows of its own classes in one half, one row of every other class.
    assert [len(call["labels"]) for call in trainer.calls] == [7 * 15 + 3, 2 * 15 + 8, 15 + 9]
    assert np.bincount(images.train_labels[answers.router_rows]).tolist() == [15] * 10


def test_progress_says_which_expert_it_is(images, protocol, trainer):
    told = []
    trained_answers(images, SETUPS["severe"], protocol, progress=lambda *what: told.append(what))
    trainer.calls[1]["progress"](1, 2, "epoch 1")
    assert told == [(1, 2, "expert for class 9: epoch 1")]


def test_a_training_that_diverged_is_refused_and_not_kept(images, protocol, monkeypatch, tmp_path):
    class Diverged:
        seconds = 0.0

        def scores(self, images):
            return np.full((len(images), 10), np.nan, dtype=np.float32)

    monkeypatch.setattr(
        "mild.reproduce.experts.trained.train_classifier", lambda *a, **options: Diverged()
    )
    with pytest.raises(
        InvalidInputError, match="'classes 0-8' must be finite; its training diverged"
    ):
        trained_answers(images, SETUPS["severe"], protocol, cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_real_networks_learn_their_own_classes_the_same_way_each_time(
    make_images, protocol, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    monkeypatch.setattr("mild.reproduce.experts.trained.LEAST_STEPS", 40)
    data = make_images(n_classes=4, per_class=40)
    small = protocol.changed(batch_size=40, lr=0.01)
    setup = coverage_setup((0.75, 0.25))
    answers = trained_answers(data, setup, small, cache_dir=tmp_path)
    again = trained_answers(data, setup, small)
    np.testing.assert_array_equal(answers.train, again.train)
    np.testing.assert_array_equal(answers.test, again.test)
    for noted in answers.notes["experts"]:
        assert noted["accuracy"]["test"]["own"] > 0.8
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"] * 2
