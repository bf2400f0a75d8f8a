"""CIFAR-10 with simulated experts, on tiny images: data, decisions, resumed runs."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from experiments.defer import cifar10
from experiments.defer.cifar10_data import load_cifar10, write_tiles
from mild.errors import DataFileError

SETTINGS = cifar10.Settings(epochs=1, batch_size=32, width=2)


@pytest.fixture
def tiny():
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=160)
    images = rng.integers(256, size=(160, 32, 32, 3), dtype=np.uint8)
    return cifar10.Cifar10(images[:100], labels[:100], images[100:], labels[100:])


def test_tiles_hold_the_images_in_order(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(5000, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(10, size=5000)
    write_tiles(tmp_path, images, labels)
    data = load_cifar10(tmp_path)
    assert (data.train_images == images).all()
    assert (data.train_labels == labels).all()
    assert len(data.test_images) == 0
    (tmp_path / "tile00.webp").unlink()
    assert (load_cifar10(tmp_path).train_labels == labels[2500:]).all()


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataFileError, match="tiles"):
        load_cifar10(tmp_path)


def test_rows_are_split_and_the_expert_knows_k_classes(tiny):
    rows = cifar10.split_rows(tiny, 3, seed=0)
    assert [len(rows[part].y) for part in ("train", "validation", "test")] == [90, 10, 60]
    for part in rows.values():
        assert part.expert_is_right[part.y < 3].all()
    again = cifar10.split_rows(tiny, 3, seed=0)
    assert (rows["train"].answers == again["train"].answers).all()


def test_finished_trainings_are_not_repeated(tiny, tmp_path):
    methods = [cifar10.METHODS["ova"], cifar10.METHODS["confidence"]]
    said = []
    first = cifar10.run(tiny, tmp_path, methods, [2, 4], [0], SETTINGS, "cpu", said.append)
    assert len(first) == len(said) == 4
    second = cifar10.run(tiny, tmp_path, methods, [2, 4], [0, 1], SETTINGS, "cpu", said.append)
    assert len(said) == 8
    assert second[:4] == first
    lines = (tmp_path / "cifar10.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == second
    for record in second:
        assert 0 <= record["test"]["system_accuracy"] <= 1
        assert record["hardware"]
        assert record["commit"]
    # A classifier alone is trained once for both experts.
    alone = [r["test"]["classifier_alone"] for r in second if r["cell"]["loss"] == "confidence"]
    assert alone[0] == alone[1]
    printed = cifar10.table(second)
    assert len(printed) == 6
    assert "85.69 (0.66)" in printed[3]


def _minimiser(loss, weight):
    """Scores (1, 11) that minimise the weighted mean of a loss of scores (20, 11)."""
    scores = torch.zeros(1, 11, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [scores],
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = (weight * loss(scores.expand(20, 11))).sum()
        value.backward()
        return value

    for _ in range(5):
        optimizer.step(closure)
    return scores.detach().numpy()


@pytest.mark.parametrize("name", ["mild_margins", "mild_others", "mild_others_margins"])
def test_probabilities_are_read_from_the_minimiser_of_mild(tiny, name):
    method = cifar10.METHODS[name]
    train = cifar10.split_rows(tiny, 3, seed=0)["train"]
    margins = method.margins(
        torch.as_tensor(train.y), torch.as_tensor(train.expert_is_right)[:, None]
    )
    # One x: ten classes, each with an expert that is right with 0.45.
    classes = np.array([0.5, 0.3, *[0.025] * 8])
    expert = 0.45
    weight = torch.as_tensor(np.concatenate([classes * expert, classes * (1 - expert)]))
    y = torch.arange(10).repeat(2)
    is_right = (torch.arange(20) < 10)[:, None]

    def loss(scores):
        rho = torch.as_tensor(margins)
        return cifar10.mild_defer_loss(scores, y, is_right, margins=rho, rewards=method.rewards)

    decisions = method.decide(_minimiser(loss, weight), train)
    assert decisions.predicted[0] == 0
    assert decisions.expert_probability[0] == pytest.approx(expert, abs=1e-4)
    assert decisions.margin[0] == pytest.approx(expert - 0.5, abs=1e-4)
