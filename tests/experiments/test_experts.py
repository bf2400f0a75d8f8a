"""Who knows which classes, what experts answer and what they cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from experiments.images import experts
from experiments.images.data import PeopleFile
from experiments.images.experts import (
    SETUPS,
    Setup,
    held_out_rows,
    people_scenario,
    stratified_order,
    synthetic_answers,
    trained_answers,
)
from experiments.images.training import PROTOCOLS
from mild.errors import InvalidInputError, MildWarning, OptionError

PROTOCOL = PROTOCOLS["fast"].changed(epochs=1, width=2, batch_size=64)


class Network:
    """Answers with the nearest mean brightness of the classes it was trained on."""

    seconds = 0.5

    def __init__(self, images, labels):
        self.classes = np.unique(labels)
        means = images.mean(axis=(1, 2, 3))
        self.means = np.array([means[labels == k].mean() for k in self.classes])

    def scores(self, images):
        scores = np.full((len(images), 10), -1e9, np.float32)
        scores[:, self.classes] = -abs(images.mean(axis=(1, 2, 3))[:, None] - self.means)
        return scores


@pytest.fixture
def trained(monkeypatch):
    """Networks are stand-ins; the list has the images and labels of each training."""
    calls = []

    def train(images, labels, data, protocol, seed, **options):
        calls.append((images, labels, protocol, options))
        return Network(images, labels)

    monkeypatch.setattr(experts, "train_classifier", train)
    return calls


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("n_classes", [10, 100, 200])
def test_every_class_has_one_owner_and_shares_are_those_of_the_setup(name, n_classes):
    owners = SETUPS[name].owners(n_classes)
    shares = np.bincount(owners) / n_classes
    np.testing.assert_allclose(shares, SETUPS[name].coverage, atol=1e-12)
    assert (np.diff(owners) >= 0).all()


def test_setups_are_read_by_name_or_coverage():
    assert Setup.parse("0.7,0.2,0.1") == SETUPS["I"]
    assert Setup.parse("0.6-0.4") == Setup("0.6-0.4", (0.6, 0.4))
    for text in ("IV", "0.5,0.6", "1", "0.5,0,0.5"):
        with pytest.raises(OptionError):
            Setup.parse(text)
    with pytest.raises(InvalidInputError, match="at least one of 3 classes"):
        SETUPS["III"].owners(3)


def test_synthetic_experts_are_right_on_their_classes_and_guess_elsewhere(make_images):
    images = make_images(per_class=600)
    answers = synthetic_answers(images, SETUPS["I"], seed=3)
    right = answers.train == images.train_labels[:, None]
    owners = SETUPS["I"].owners(10)
    own = owners[images.train_labels][:, None] == np.arange(3)
    assert right[own].all()
    assert right[~own].mean() == pytest.approx(0.1, abs=0.01)
    same, other = (synthetic_answers(images, SETUPS["I"], seed) for seed in (3, 4))
    np.testing.assert_array_equal(answers.test, same.test)
    assert not np.array_equal(answers.test, other.test)


def test_an_ambiguous_share_of_the_rows_has_two_experts_that_are_right(make_images):
    images = make_images(per_class=600)
    for share in (0.0, 0.3):
        answers = synthetic_answers(images, SETUPS["I"], 0, ambiguous=share)
        right = (answers.train == images.train_labels[:, None]).sum(axis=1)
        assert (right > 1).mean() == pytest.approx(share, abs=0.02)


def test_costs_are_errors_plus_the_coverage_where_asking_costs(make_images):
    images = make_images()
    answers = synthetic_answers(images, SETUPS["severe"], 0)
    errors = answers.costs("test", images.test_labels, "error")
    priced = answers.costs("test", images.test_labels, "cost")
    assert set(np.unique(errors)) == {0.0, 1.0}
    np.testing.assert_allclose(priced - errors, np.tile([0.9, 0.1], (100, 1)), rtol=1e-6)
    assert (answers.largest("error"), answers.largest("cost")) == (1.0, 1.9)


def test_every_stretch_of_a_stratified_order_has_all_labels():
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    order = stratified_order(labels, np.random.default_rng(0))
    assert sorted(order) == list(range(1000))
    for part in np.array_split(labels[order], 10):
        np.testing.assert_allclose(np.bincount(part), [60, 30, 10], atol=1)


def test_held_out_rows_are_a_tenth_that_is_not_trained_on():
    costs = np.eye(3, dtype=np.float32)[np.arange(200) % 3]
    rest, held = held_out_rows(costs)
    assert len(held) == 20
    assert sorted([*rest, *held]) == list(range(200))


def test_trained_experts_see_their_classes_and_a_hundredth_of_the_others(make_images, trained):
    images = make_images(per_class=200)
    answers = trained_answers(images, SETUPS["I"], PROTOCOL)
    seen = [np.bincount(labels, minlength=10).tolist() for _, labels, _, _ in trained]
    assert seen == [[200] * 7 + [2] * 3, [2] * 7 + [200] * 2 + [2], [2] * 9 + [200]]
    assert answers.names == ("classes 0-6", "classes 7-8", "class 9")
    assert [e["accuracy"]["test"]["own"] for e in answers.notes["experts"]] == [1.0, 1.0, 1.0]
    np.testing.assert_array_equal(answers.router_rows, np.arange(2000))


def test_with_holdout_no_expert_saw_an_image_of_the_router(make_images, trained):
    images = make_images()
    marked = np.zeros_like(images.train_images)
    marked[:, 0, 0, 0], marked[:, 0, 1, 0] = np.divmod(np.arange(300), 256)
    data = dataclasses.replace(images, train_images=marked)
    answers = trained_answers(data, SETUPS["I"], PROTOCOL, holdout=True)
    seen = {int(i[0, 0, 0]) * 256 + int(i[0, 1, 0]) for batch, *_ in trained for i in batch}
    assert not seen & set(answers.router_rows.tolist())
    assert np.bincount(images.train_labels[answers.router_rows]).tolist() == [15] * 10


def test_a_cached_expert_is_not_trained_again_unless_something_it_depends_on_changed(
    make_images, trained, tmp_path
):
    images = make_images()

    def answers(data=images, setup="severe", protocol=PROTOCOL, **options):
        return trained_answers(data, SETUPS[setup], protocol, cache_dir=tmp_path, **options)

    first = answers()
    second = answers(protocol=dataclasses.replace(PROTOCOL, name="mine"))
    assert len(trained) == 2
    np.testing.assert_array_equal(first.train, second.train)
    np.testing.assert_array_equal(first.test, second.test)
    assert first.notes == second.notes
    for change in (
        {"seed": 1},
        {"holdout": True},
        {"protocol": PROTOCOL.changed(lr=0.5)},
        {"data": make_images(seed=1)},
    ):
        before = len(trained)
        answers(**change)
        assert len(trained) == before + 2
    # Setups share the experts with the same classes: class 9 is there.
    before = len(trained)
    answers(setup="I")
    assert len(trained) == before + 2


def test_a_damaged_cache_is_reported_and_replaced(make_images, trained, tmp_path):
    images = make_images()
    first = trained_answers(images, SETUPS["severe"], PROTOCOL, cache_dir=tmp_path)
    broken = min(tmp_path.iterdir())
    broken.write_bytes(broken.read_bytes()[:-7])
    with pytest.warns(MildWarning, match="trained again"):
        again = trained_answers(images, SETUPS["severe"], PROTOCOL, cache_dir=tmp_path)
    np.testing.assert_array_equal(first.train, again.train)
    trained_answers(images, SETUPS["severe"], PROTOCOL, cache_dir=tmp_path)
    assert len(trained) == 3


def test_people_answer_on_images_that_the_classifier_did_not_see(make_images, trained):
    images = make_images(name="cifar10")
    columns = {f"random_label{k}": (images.train_labels + k) % 10 for k in (1, 2, 3)}
    people = PeopleFile("cifar10", images.train_labels, columns)
    part, answers = people_scenario(images, people, PROTOCOL, price=0.2)
    assert answers.names == ("annotator 1", "annotator 2", "annotator 3", "classifier")
    assert answers.prices.tolist() == [0.2, 0.2, 0.2, 0.0]
    assert (len(part.train_labels), len(part.test_labels)) == (240, 60)
    assert np.bincount(part.test_labels).tolist() == [6] * 10
    np.testing.assert_array_equal(answers.test[:, 0], (part.test_labels + 1) % 10)
    ((batch, _, protocol, _),) = trained
    assert len(batch) == 30
    assert answers.router_rows.tolist() == list(range(30, 240))
    assert protocol.width == 1
