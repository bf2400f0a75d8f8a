import dataclasses

import numpy as np
import pytest

pytest.importorskip("torch")

from mild.exceptions import DataFileError, InvalidInputError
from mild.reproduce import supply
from mild.reproduce.cells import plan
from mild.reproduce.data import ImageData
from mild.reproduce.labels import block_title
from mild.reproduce.results import cell_key
from mild.reproduce.supply import Supply


def quiet(done, total, said):
    pass


@pytest.fixture
def annotated(monkeypatch, tmp_path):
    """A small CIFAR-10 stand-in and a file of what three people said about it."""
    rng = np.random.default_rng(0)
    labels = np.tile(np.arange(10), 60)
    images = rng.integers(0, 255, (600, 8, 8, 1), dtype=np.uint8)
    names = tuple("abcdefghij")
    data = ImageData("cifar10", images, labels, images[:20], labels[:20], names, flip=True)
    monkeypatch.setattr(supply, "load_images", lambda name, folder: data)
    said = {
        f"c10_random_label{k}": np.where(rng.random(600) < 0.8, labels, (labels + 1) % 10)
        for k in (1, 2, 3)
    }
    np.savez(tmp_path / "people.npz", c10_clean_label=labels, c10_worse_label=labels, **said)
    return data, tmp_path / "people.npz"


def test_data_are_loaded_once(make_request, monkeypatch):
    loaded = []
    load = supply.load_images
    monkeypatch.setattr(
        supply, "load_images", lambda name, folder: loaded.append(name) or load(name, folder)
    )
    request = make_request(seeds=3)
    found = Supply(request, "cpu")
    for cell in plan(request):
        found.scenario(cell, cell.seed, quiet)
        found.scenario(cell, 0, quiet)
    assert loaded == ["digits"]


def test_synthetic_experts_are_drawn_anew_with_every_seed_and_remembered(make_request):
    request = make_request(seeds=2)
    found = Supply(request, "cpu")
    cell = plan(request)[0]
    first, second = (found.scenario(cell, seed, quiet)[1] for seed in (0, 1))
    assert (first.test != second.test).any()
    assert found.scenario(cell, 0, quiet)[1] is first


def test_an_entry_is_known_before_any_expert_is(make_request, monkeypatch):
    monkeypatch.setattr(supply, "trained_answers", None)
    request = make_request("table2")
    entry = Supply(request, "cpu").entry(plan(request)[0])
    assert entry["experts"] == "real"
    assert len(entry["data"]) == 16


def test_people_bring_their_own_images_and_accuracy(make_request, annotated, trainings):
    data, file = annotated
    request = make_request("people", datasets=("cifar10",), people_file=file)
    found = Supply(request, "cpu")
    cell = plan(request)[0]
    entry = found.entry(cell)
    assert entry["setup"] == "people"
    assert len(entry["coverage"]) == 3
    assert all(0.7 < share < 0.9 for share in entry["coverage"])
    # Ten per cent of 600 for the classifier, a fifth for the test.
    assert (entry["classifier_rows"], entry["test_fraction"]) == (60, 0.2)
    part, answers = found.scenario(cell, 0, quiet)
    assert answers.names[-1] == "classifier"
    assert len(answers.names) == 4
    assert len(part.train_labels) + len(part.test_labels) == len(data.train_labels)
    assert len(part.test_labels) == entry["test_fraction"] * len(data.train_labels)
    assert answers.notes["classifier"]["rows"] == entry["classifier_rows"]
    assert len(trainings) == 1


def test_other_annotations_make_another_cell(make_request, annotated, tmp_path):
    _, file = annotated
    arrays = dict(np.load(file))
    arrays["c10_random_label1"][0] = (arrays["c10_random_label1"][0] + 1) % 10
    np.savez(tmp_path / "others.npz", **arrays)
    keys = set()
    for name in ("people.npz", "others.npz"):
        request = make_request("people", datasets=("cifar10",), people_file=tmp_path / name)
        keys.add(cell_key(Supply(request, "cpu").entry(plan(request)[0])))
    assert len(keys) == 2


def test_the_price_of_people_is_a_setting_where_it_counts_alone(make_request, annotated):
    _, file = annotated
    entries = {}
    for price in (0.1, 0.3):
        request = make_request(
            "people",
            datasets=("cifar10",),
            people_file=file,
            costs=("error", "cost"),
            methods=("tdef",),
            price=price,
        )
        for cell in plan(request):
            entries[cell.cost, price] = Supply(request, "cpu").entry(cell)
    assert entries["error", 0.1] == entries["error", 0.3]
    assert "price" not in entries["error", 0.1]
    assert entries["cost", 0.3] == {**entries["cost", 0.1], "price": 0.3}
    assert "error + cost (a person costs 0.3)" in block_title(entries["cost", 0.3])


def test_annotations_of_other_images_are_refused(make_request, annotated, monkeypatch):
    data, file = annotated
    turned = dataclasses.replace(data, train_labels=data.train_labels[::-1].copy())
    monkeypatch.setattr(supply, "load_images", lambda name, folder: turned)
    request = make_request("people", datasets=("cifar10",), people_file=file)
    with pytest.raises(InvalidInputError, match=r"people\.npz: .* order differs at row 0"):
        Supply(request, "cpu").entry(plan(request)[0])


def test_a_missing_data_folder_is_named(make_request):
    request = make_request(datasets=("cifar10",))
    with pytest.raises(DataFileError, match="--data-dir"):
        Supply(request, "cpu").entry(plan(request)[0])


def test_margins_for_people_must_be_as_many_as_people_and_the_classifier(make_request, annotated):
    fields = {"datasets": ("cifar10",), "people_file": annotated[1]}
    three = make_request("people", methods=("mild:margins=1/1/1",), **fields)
    with pytest.raises(InvalidInputError, match=r"4 for cifar10 .* got 3"):
        Supply(three, "cpu").check()
    Supply(make_request("people", methods=("mild:margins=1/1/1/1",), **fields), "cpu").check()
