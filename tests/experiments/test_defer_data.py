"""Data of learning to defer: files in the format of the public ones, small; the public ones if there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from experiments.defer import data as defer_data
from experiments.defer.cifar10_data import Cifar10
from experiments.defer.data import SOURCES, load
from mild.errors import DataFileError, OptionError

#: An optional folder beside the checkout.
PUBLIC = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _check(data, n_experts, n_classes):
    """What every data set must be, and features of its rows."""
    n_rows = len(data.y)
    answers = data.answers(0)
    assert len(data.inputs) == len(data.groups) == n_rows
    assert answers.shape == (n_rows, n_experts) == (n_rows, len(data.expert_names))
    known = answers[~np.isnan(answers)]
    assert set(np.unique(known)) <= set(range(n_classes))
    assert set(np.unique(data.y)) <= set(range(n_classes))
    assert np.array_equal(answers, data.answers(0), equal_nan=True)
    assert data.digest() == data.digest()
    assert data.note
    return answers


@pytest.mark.parametrize(("name", "n_classes"), [("digits", 10), ("breast_cancer", 2)])
def test_data_of_scikit_learn(name, n_classes, tmp_path):
    data = load(name, tmp_path)
    answers = _check(data, 1, n_classes)
    assert (answers != data.answers(1)).any()
    assert np.isfinite(clone(data.features).fit_transform(data.inputs)).all()


def test_the_annotator_of_hate_speech_is_one_of_those_who_voted(tmp_path):
    folder = tmp_path / "field" / "hatespeech"
    folder.mkdir(parents=True)
    votes = np.array([[3, 0, 0], [0, 2, 1], [0, 0, 3]] * 100)
    table = pd.DataFrame(votes, columns=["hate_speech", "offensive_language", "neither"])
    table["class"] = votes.argmax(axis=1)
    table["tweet"] = [f"tweet number {number % 150} of some" for number in range(300)]
    table.to_csv(folder / "labeled_data.csv")
    data = load("hatespeech", tmp_path)
    answers = _check(data, 1, 3)[:, 0].astype(int)
    assert (votes[np.arange(300), answers] > 0).all()
    assert len(np.unique(data.groups)) == 150


@pytest.fixture
def small_images(monkeypatch, rng):
    monkeypatch.setattr(defer_data, "N_FILTERS", 4)
    images = rng.integers(256, size=(30, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(10, size=30)
    small = Cifar10(images[:20], labels[:20], images[20:], labels[20:])
    monkeypatch.setattr(defer_data, "load_cifar10", lambda folder: small)
    return small


def test_cifar10h(tmp_path, small_images, rng):
    np.savez(tmp_path / "cifar10h.npz", counts=rng.integers(1, 9, size=(10, 10)))
    data = load("cifar10h", tmp_path, tmp_path)
    _check(data, 1, 10)
    assert data.inputs.shape == (10, 8 * 4)
    np.savez(tmp_path / "cifar10h.npz", counts=np.ones((12, 10), int))
    with pytest.raises(DataFileError, match="all 12 test images"):
        load("cifar10h", tmp_path, tmp_path)
    with pytest.raises(DataFileError, match="--images"):
        load("cifar10h", tmp_path)


def test_cifar10n(tmp_path, small_images):
    labels = small_images.train_labels.astype(np.uint8)
    columns = {f"c10_random_label{number}": labels for number in (1, 2, 3)}
    np.savez(tmp_path / "cifar_n_human.npz", c10_clean_label=labels, **columns)
    data = load("cifar10n", tmp_path, tmp_path)
    assert (_check(data, 3, 10) == data.y[:, None]).all()
    np.savez(tmp_path / "cifar_n_human.npz", c10_clean_label=(labels + 1) % 10, **columns)
    with pytest.raises(DataFileError, match="same order"):
        load("cifar10n", tmp_path, tmp_path)


def test_imagenet16h(tmp_path, rng):
    (tmp_path / "more").mkdir()
    shares = rng.dirichlet(np.ones(16), size=(5, 6))
    np.savez(
        tmp_path / "more" / "imagenet16h.npz",
        y=np.arange(6),
        classes=np.array([f"class {number}" for number in range(16)]),
        nets=np.array(["alexnet", "densenet161", "googlenet", "resnet152", "vgg19"]),
        softmax110=shares,
        human_image110=np.repeat(np.arange(6), 2),
        human_answer110=np.repeat(np.arange(6), 2),
    )
    alone = load("imagenet16h-110", tmp_path)
    assert (_check(alone, 1, 16)[:, 0] == alone.y).all()
    assert alone.inputs.shape == (6, 80)
    several = load("imagenet16h-110-nets", tmp_path)
    answers = _check(several, 5, 16)
    assert several.inputs.shape == (6, 16)
    assert (answers[:, 1] == shares[1].argmax(axis=1)).all()


def test_readers_of_nih(tmp_path, monkeypatch):
    monkeypatch.setattr(defer_data, "FEWEST_READINGS", 1)
    (tmp_path / "field" / "nih").mkdir(parents=True)
    rows = []
    for image, readers in {"a": [7, 8], "b": [8, 9, 7], "c": [9]}.items():
        for reader in readers:
            row = {"Image ID": image, "Patient ID": image, "Reader ID": reader}
            for finding in defer_data.FINDINGS:
                row[f"{finding}_Expert_Label"] = int(reader == 8)
                row[f"{finding}_GT_Label"] = 1
            rows.append(row)
    # A reading without a label for one finding is left out.
    rows.append({**rows[0], "Reader ID": 10, f"{defer_data.FINDINGS[0]}_Expert_Label": None})
    pd.DataFrame(rows).to_csv(tmp_path / "field" / "nih" / "nih_labels.csv")
    data = load("nih", tmp_path)
    # Image c was read once, so nobody is left to ask.
    assert len(data.y) == 8
    answers = _check(data, 3, 2)
    assert np.isnan(answers).sum(axis=0).tolist() == [4, 4, 4]
    assert data.expert_names == ("reader 0", "reader 1", "reader 2")


def test_openl2d(tmp_path, rng):
    folder = tmp_path / "field" / "openl2d"
    folder.mkdir(parents=True)
    rows = pd.DataFrame({"age": rng.integers(18, 90, 50), "sex": ["Male", "Female"] * 25})
    rows["income"] = rng.integers(2, size=50)
    rows.to_parquet(folder / "preprocessed.parquet")
    experts = pd.DataFrame({"standard#0": rows["income"], "standard#1": 0, "biased#0": 1})
    experts.to_parquet(folder / "expert_predictions.parquet")
    data = load("openl2d", tmp_path)
    assert (_check(data, 2, 2)[:, 0] == data.y).all()
    assert data.inputs.shape == (50, 3)


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(DataFileError, match="--folder"):
        load("hatespeech", tmp_path)
    with pytest.raises(OptionError, match="data must be"):
        load("unknown", tmp_path)


@pytest.mark.parametrize(
    ("name", "n_rows", "n_experts", "n_classes"),
    [
        ("hatespeech", 24_783, 1, 3),
        ("imagenet16h-110", 1_200, 1, 16),
        ("imagenet16h-125", 1_200, 1, 16),
        ("imagenet16h-110-nets", 1_200, 5, 16),
        ("nih", 17_304, 15, 2),
        ("openl2d", 10_000, 5, 2),
    ],
)
def test_public_files(name, n_rows, n_experts, n_classes):
    if not PUBLIC.is_dir():
        pytest.skip(f"the optional folder {PUBLIC} is absent")
    data = load(name, PUBLIC)
    assert len(data.y) == n_rows
    _check(data, n_experts, n_classes)


def test_every_source_is_tested_here():
    assert set(SOURCES) == {
        "digits", "breast_cancer", "hatespeech", "cifar10h", "cifar10n", "imagenet16h-110",
        "imagenet16h-125", "imagenet16h-110-nets", "nih", "openl2d",
    }  # fmt: skip
