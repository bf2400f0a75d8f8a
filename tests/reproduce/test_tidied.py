"""However a run ends, no empty folder of checkpoints stays behind."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from mild.exceptions import DataFileError, InvalidInputError
from mild.reproduce import turns
from mild.reproduce.classifier import run_classifier
from mild.reproduce.data import load_images
from mild.reproduce.run import reproduce


@pytest.fixture
def one(make_request):
    """A request of one cell that a real, small network is trained for."""
    return make_request(methods=("tdef",), setups=make_request().setups[:1])


def stop(done, total, message):
    if "epoch 1" in message:
        raise KeyboardInterrupt


def full(path, record):
    raise DataFileError("No space left on device")


def test_an_interrupt_leaves_no_empty_folder(one):
    with pytest.raises(KeyboardInterrupt):
        reproduce(one, stop)
    assert not one.checkpoint_dir.exists()


def test_a_divergence_leaves_no_empty_folder(make_request):
    protocol = make_request().protocol.changed(lr=1e30)
    request = make_request(methods=("tdef",), setups=make_request().setups[:1], protocol=protocol)
    with pytest.raises(InvalidInputError, match="1 cell of 1 diverged"):
        reproduce(request)
    assert not request.checkpoint_dir.exists()


def test_a_full_disk_leaves_no_empty_folder(one, monkeypatch):
    monkeypatch.setattr(turns, "append_record", full)
    with pytest.raises(DataFileError, match="No space left"):
        reproduce(one)
    assert not one.checkpoint_dir.exists()


def test_a_folder_with_something_in_it_stays(one):
    one.checkpoint_dir.mkdir()
    (one.checkpoint_dir / "another.safetensors").write_text("theirs")
    with pytest.raises(KeyboardInterrupt):
        reproduce(one, stop)
    assert [path.name for path in one.checkpoint_dir.iterdir()] == ["another.safetensors"]


def test_a_classifier_that_is_interrupted_leaves_no_empty_folder(one, tmp_path):
    def first(done, total, message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_classifier(
            load_images("digits"),
            one.protocol,
            1,
            tmp_path / "classifier.json",
            device="cpu",
            checkpoint_dir=one.checkpoint_dir,
            progress=first,
        )
    assert not one.checkpoint_dir.exists()
