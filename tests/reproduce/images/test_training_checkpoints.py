"""A disk that takes no checkpoints: the training goes on, and it is said once what a kill would lose."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from mild.exceptions import ArtifactError, MildWarning
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.images.training import train_network

SMALL = PROTOCOLS["fast"].changed(epochs=3, width=2, batch_size=32)
IMAGES = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 1), dtype=np.uint8)
LABELS = torch.as_tensor(IMAGES[:, 0, 0, 0] > 127).long()


def train(**more):
    def loss(scores, rows):
        return cross_entropy(scores, LABELS[rows], reduction="none")

    return train_network(IMAGES, 2, loss, SMALL, 0, flip=False, checkpoint_seconds=0, **more)


def full(*words, **more):
    raise OSError(28, "No space left on device")


def said(**more):
    """The network, and the warnings of its training."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = train(**more)
    assert {warning.category for warning in caught} <= {MildWarning}
    return network, [str(warning.message) for warning in caught]


def test_a_full_disk_ends_no_training(tmp_path, monkeypatch):
    unbroken = train()
    monkeypatch.setattr(os, "fsync", full)
    network, sentences = said(checkpoint=tmp_path / "c" / "run.safetensors")
    assert sentences == [
        f"checkpoints cannot be written to {tmp_path / 'c'} (No space left on device): trainings go "
        f"on, but a kill would now lose the one under way. Make room there, or name another folder "
        f"(--checkpoint-dir; for experts --cache-dir)."
    ]
    np.testing.assert_array_equal(network.scores(IMAGES), unbroken.scores(IMAGES))
    assert os.listdir(tmp_path / "c") == []


def test_a_disk_without_room_for_the_folder_ends_no_training_either(tmp_path, monkeypatch):
    unbroken = train()
    monkeypatch.setattr(Path, "mkdir", full)
    network, sentences = said(checkpoint=tmp_path / "c" / "run.safetensors")
    assert len(set(sentences)) == 1
    np.testing.assert_array_equal(network.scores(IMAGES), unbroken.scores(IMAGES))


def test_checkpoints_are_written_again_once_there_is_room(tmp_path, monkeypatch):
    file = tmp_path / "run.safetensors"
    monkeypatch.setattr(os, "fsync", full)

    def make_room(done, total, message):
        if done == 2:
            monkeypatch.undo()

    _, sentences = said(checkpoint=file, progress=make_room)
    assert len(sentences) == 1
    assert file.exists()


def test_a_folder_that_can_never_be_written_to_is_refused_before_the_first_epoch(tmp_path):
    (tmp_path / "file").write_text("")
    epochs = []
    with pytest.raises(ArtifactError, match="cannot write checkpoint"):
        train(
            checkpoint=tmp_path / "file" / "run.safetensors",
            progress=lambda *told: epochs.append(told),
        )
    assert epochs == []
