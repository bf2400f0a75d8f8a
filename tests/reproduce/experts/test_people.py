"""People as experts: who saw what, and what asking them costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mild.exceptions import InvalidInputError
from mild.reproduce.data.images import ImageData
from mild.reproduce.data.people import PeopleFile
from mild.reproduce.experts import PEOPLE, expert_costs, people_scenario


@pytest.fixture
def images(make_images) -> ImageData:
    return dataclasses.replace(make_images(), name="cifar10")


@pytest.fixture
def people(images) -> PeopleFile:
    rng = np.random.default_rng(5)
    truth = images.train_labels
    columns = {}
    for name, error in (("random_label1", 0.1), ("random_label2", 0.2), ("random_label3", 0.3)):
        wrong = rng.random(len(truth)) < error
        columns[name] = np.where(wrong, (truth + 1) % 10, truth)
    columns["aggre_label"] = truth.copy()
    return PeopleFile(dataset="cifar10", truth=truth, columns=columns)


@pytest.fixture
def numbered(images):
    """Images that carry their row in their first two pixels."""
    marked = images.train_images.copy()
    marked[:, 0, 0, 0] = np.arange(300) // 256
    marked[:, 0, 1, 0] = np.arange(300) % 256
    return dataclasses.replace(images, train_images=marked)


def rows_of(images: np.ndarray) -> np.ndarray:
    return images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 1, 0]


def test_test_classifier_and_router_rows_are_disjoint_and_stratified(
    numbered, people, protocol, trainer
):
    data, answers = people_scenario(numbered, people, protocol, classifier_rows=60)
    train, test = rows_of(data.train_images), rows_of(data.test_images)
    assert sorted([*train, *test]) == list(range(300))
    assert len(test) == 60
    small = rows_of(trainer.calls[0]["images"])
    router = train[answers.router_rows]
    assert not set(small) & set(router)
    assert len(small) + len(router) + len(test) == 300
    for rows, count in ((test, 6), (small, 6), (router, 18)):
        counts = np.bincount(people.truth[rows], minlength=10)
        assert np.abs(counts - count).max() <= 1


def test_answers_and_labels_belong_to_their_images(numbered, people, protocol, trainer):
    data, answers = people_scenario(numbered, people, protocol, classifier_rows=60)
    for images, labels, given in (
        (data.train_images, data.train_labels, answers.train),
        (data.test_images, data.test_labels, answers.test),
    ):
        rows = rows_of(images)
        np.testing.assert_array_equal(labels, people.truth[rows])
        for expert in range(3):
            column = people.columns[f"random_label{expert + 1}"]
            np.testing.assert_array_equal(given[:, expert], column[rows])


def test_people_cost_and_the_classifier_does_not(images, people, protocol, trainer):
    data, answers = people_scenario(images, people, protocol, classifier_rows=60, price=0.25)
    assert answers.kind == "people"
    assert answers.names == ("annotator 1", "annotator 2", "annotator 3", "classifier")
    np.testing.assert_array_equal(answers.prices, [0.25, 0.25, 0.25, 0.0])
    costs = expert_costs(answers.test, data.test_labels, answers.prices, "cost")
    assert set(np.unique(costs[:, 0])) == {np.float32(0.25), np.float32(1.25)}
    assert set(np.unique(costs[:, 3])) <= {0.0, 1.0}


def test_the_setup_tells_accuracies_on_the_routers_rows(images, people, protocol, trainer):
    data, answers = people_scenario(images, people, protocol, classifier_rows=60)
    assert answers.setup.name == PEOPLE
    rows = answers.router_rows
    right = (answers.train[rows] == data.train_labels[rows, None]).mean(axis=0)
    assert answers.setup.coverage == tuple(right)
    assert answers.setup.coverage[:3] == pytest.approx([0.9, 0.8, 0.7], abs=0.1)


def test_the_classifier_is_a_quarter_as_wide_and_cached(
    images, people, protocol, trainer, tmp_path
):
    wide = protocol.changed(width=16)
    first = people_scenario(images, people, wide, classifier_rows=60, cache_dir=tmp_path)[1]
    assert trainer.calls[0]["protocol"].width == 4
    second = people_scenario(images, people, wide, classifier_rows=60, cache_dir=tmp_path)[1]
    assert len(trainer.calls) == 1
    np.testing.assert_array_equal(first.train, second.train)
    assert second.notes["classifier"]["rows"] == 60


def test_without_columns_of_single_people_all_columns_go_by_their_names(
    images, people, protocol, trainer
):
    votes = {"aggre_label": people.truth, "worse_label": people.columns["random_label3"]}
    other = PeopleFile("cifar10", people.truth, votes)
    answers = people_scenario(images, other, protocol, classifier_rows=60)[1]
    assert answers.names == ("aggre_label", "worse_label", "classifier")
    assert answers.setup.coverage[0] == 1.0


def test_a_single_annotator_column_is_the_default_of_cifar100(images, people, protocol, trainer):
    noisy = {"noisy_label": people.columns["random_label1"], "other_label": people.truth}
    hundred = dataclasses.replace(images, name="cifar100")
    answers = people_scenario(
        hundred, PeopleFile("cifar100", people.truth, noisy), protocol, classifier_rows=60
    )[1]
    assert answers.names == ("annotator 1", "classifier")


def test_the_division_depends_on_the_seed_alone(images, people, protocol, trainer):
    first, again, other = (
        people_scenario(images, people, protocol, seed=seed, classifier_rows=60)[0]
        for seed in (0, 0, 1)
    )
    assert first.digest() == again.digest()
    assert first.digest() != other.digest()
    assert first.digest() != images.digest()


def test_the_note_says_where_the_images_come_from(images, people, protocol, trainer):
    noted = dataclasses.replace(images, note="a stand-in")
    data = people_scenario(noted, people, protocol, classifier_rows=60)[0]
    assert data.note.startswith("a stand-in; 240 and 60 of the official training images")


def test_labels_of_other_images_are_refused(images, people, protocol):
    shuffled = dataclasses.replace(people, truth=np.roll(people.truth, 1))
    with pytest.raises(InvalidInputError, match="labels do not match images"):
        people_scenario(images, shuffled, protocol, classifier_rows=60)


@pytest.mark.parametrize("rows", [0, -1, 240, 4000])
def test_the_classifier_must_leave_rows_to_the_router(images, people, protocol, rows):
    with pytest.raises(
        InvalidInputError, match=rf"classifier_rows must lie in \[1, 240\).*got {rows}"
    ):
        people_scenario(images, people, protocol, classifier_rows=rows)


@pytest.mark.parametrize("price", [-0.1, np.nan, np.inf])
def test_a_price_is_a_non_negative_number(images, people, protocol, price):
    with pytest.raises(InvalidInputError, match="price must be finite and non-negative"):
        people_scenario(images, people, protocol, classifier_rows=60, price=price)
