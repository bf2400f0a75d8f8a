"""Checkpoints: a run that was killed ends as if it had not been."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal

torch = pytest.importorskip("torch")

from safetensors.numpy import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

from mild.errors import ArtifactError, InvalidInputError  # noqa: E402
from mild.routers.neural import NeuralRouter  # noqa: E402

EPOCHS = 7


def three_experts(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, np.abs(2 + X @ rng.normal(size=(4, 3)) + rng.normal(size=(n, 3)))


class Dropout(nn.Module):
    """Randomness of its own, buffers, and two names for one matrix."""

    def __init__(self, n_features, n_experts):
        super().__init__()
        self.first = nn.Linear(n_features, n_features)
        self.again = self.first
        self.norm = nn.BatchNorm1d(n_features)
        self.last = nn.Linear(n_features, n_experts)

    def forward(self, x):
        hidden = torch.dropout(self.norm(self.again(self.first(x))), 0.3, self.training)
        return self.last(hidden)


class KilledError(Exception):
    """Stands for the end of the process."""


def killer(epoch):
    def progress(done, epochs, message):
        if done == epoch:
            raise KilledError

    return progress


def router(path=None, module=None, **options):
    settings = {"hidden": (8,), "epochs": EPOCHS, "batch_size": 16, "lr": 0.02, "patience": 4}
    settings["device"] = "cpu"
    return NeuralRouter(module, checkpoint=path, **{**settings, **options})


def start(path, epoch=3, **options):
    """A run that is killed after some epochs."""
    with pytest.raises(KilledError):
        router(path, progress=killer(epoch), **options).fit(*three_experts())


def assert_same(one, other):
    X, _ = three_experts()
    assert one.history_ == other.history_
    assert (one.n_iter_, one.best_epoch_) == (other.n_iter_, other.best_epoch_)
    assert_array_equal(one.decision_function(X), other.decision_function(X))
    if hasattr(one.policy_, "weights"):
        for left, right in zip(one.policy_.weights, other.policy_.weights, strict=True):
            assert_array_equal(left, right)


@pytest.mark.parametrize("module", [None, Dropout], ids=["perceptron", "module"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "sgd", "schedule": "onecycle"},
        {"optimizer": "adam", "validation_fraction": 0},
        {"sampling": "over", "loss": "ce"},
    ],
    ids=["adamw", "sgd-onecycle", "adam-to-the-end", "resampled"],
)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, module, options):
    whole = router(module=module, **options).fit(*three_experts())
    path = tmp_path / "run.safetensors"
    for epoch in (1, whole.n_iter_ - 1):
        start(path, epoch, module=module, **options)
    done = []
    resumed = router(path, module=module, progress=lambda *args: done.append(args[0]), **options)
    assert_same(resumed.fit(*three_experts()), whole)
    assert done == [whole.n_iter_]


def test_a_run_stopped_by_patience_resumes_to_its_best_epoch(tmp_path):
    rng = np.random.default_rng(1)
    X, costs = rng.normal(size=(80, 4)), rng.uniform(size=(80, 3))
    options = {"epochs": 60, "patience": 3, "validation_fraction": 0.3, "lr": 0.05}
    whole = router(**options).fit(X, costs)
    assert whole.best_epoch_ < whole.n_iter_ < 60
    path = tmp_path / "run"
    with pytest.raises(KilledError):
        router(path, progress=killer(whole.n_iter_), **options).fit(X, costs)
    again = router(path, progress=killer(whole.n_iter_ + 1), **options).fit(X, costs)
    assert_same(again, whole)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_process_that_was_killed_can_be_continued(tmp_path):
    path = tmp_path / "run"
    np.savez(tmp_path / "data.npz", *three_experts())
    code = (
        "import os, signal, sys, numpy as np\n"
        "from mild.routers.neural import NeuralRouter\n"
        f"data = np.load({str(tmp_path / 'data.npz')!r})\n"
        "def stop(epoch, epochs, message):\n"
        "    if epoch == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"NeuralRouter(hidden=(8,), epochs={EPOCHS}, batch_size=16, lr=0.02, patience=4,\n"
        f"    checkpoint={str(path)!r}, progress=stop, device='cpu').fit(data['arr_0'], data['arr_1'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    seen = []
    resumed = router(path, progress=lambda *args: seen.append(args[0])).fit(*three_experts())
    assert seen[0] == 4
    assert_same(resumed, router().fit(*three_experts()))


def test_a_finished_run_is_read_and_not_trained_again(tmp_path):
    path = tmp_path / "run"
    first = router(path).fit(*three_experts())
    assert_same(router(path, progress=killer(EPOCHS)).fit(*three_experts()), first)


def test_more_epochs_go_on_from_a_finished_run(tmp_path):
    path = tmp_path / "run"
    router(path, epochs=3).fit(*three_experts())
    assert_same(router(path).fit(*three_experts()), router().fit(*three_experts()))


def test_it_is_safetensors_with_json_in_its_header_and_no_other_file_is_left(tmp_path):
    path = tmp_path / "new" / "folder" / "run.safetensors"
    start(path)
    assert [file.name for file in path.parent.iterdir()] == ["run.safetensors"]
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    stored = json.loads(header["__metadata__"]["mild_checkpoint"])
    assert stored["epoch"] == len(stored["history"]) == 3
    names = set(load_file(path))
    assert {"module.0.weight", "optimizer.0.exp_avg", "optimizer.0.step"} <= names


def test_resume_false_starts_over(tmp_path):
    path = tmp_path / "run"
    start(path, lr=0.5)
    seen = []
    again = router(path, resume=False, progress=lambda *args: seen.append(args[0]))
    assert_same(again.fit(*three_experts()), router().fit(*three_experts()))
    assert seen[0] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 0.5}, "with lr=0.02, not 0.5"),
        ({"optimizer": "sgd"}, "with optimizer='adamw', not 'sgd'"),
        ({"random_state": 1}, "with random_state=0, not 1"),
        ({"surrogate": 0.5}, r"with surrogate=\['comp_sum', 1.0\], not \['comp_sum', 0.5\]"),
        ({"margins": (1, 2, 3)}, r"with margins=\[.*\], not \[1.0, 2.0, 3.0\]"),
        ({"hidden": (9,)}, "with a network with other weights at the start"),
        ({"schedule": "onecycle"}, "with schedule=None, not 'onecycle'"),
        ({"epochs": 2}, "has finished 3 epochs, more than epochs=2. Raise epochs"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_checkpoint_of_another_run_is_refused_by_name(tmp_path, options, message):
    path = tmp_path / "run"
    start(path)
    before = path.read_bytes()
    with pytest.raises(ArtifactError, match=message) as caught:
        router(path, **options).fit(*three_experts())
    assert "resume=False to start over" in str(caught.value)
    assert path.read_bytes() == before


def test_the_checkpoint_of_other_data_is_refused(tmp_path):
    path = tmp_path / "run"
    start(path)
    X, costs = three_experts()
    costs[5, 1] += 1e-9
    for data in [
        (X, costs),
        (X + 1e-12, three_experts()[1]),
        (*three_experts(), np.arange(80) + 1.0),
    ]:
        with pytest.raises(
            ArtifactError, match=r"belongs to another run, with (other data|margins)"
        ):
            router(path).fit(*data)


DAMAGE = {
    "empty": lambda raw: b"",
    "truncated": lambda raw: raw[:-7],
    "flipped": lambda raw: raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:],
    "edited": lambda raw: raw.replace(rb"\"epoch\": 3, \"best", rb"\"epoch\": 2, \"best"),
    "longer": lambda raw: raw + b"x",
    "text": lambda raw: b"my notes\n",
    "pickle": lambda raw: pickle.dumps({"epoch": 3}),
}


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_and_foreign_files_are_refused_and_left_alone(tmp_path, damage, resume):
    path = tmp_path / "run"
    start(path)
    content = DAMAGE[damage](path.read_bytes())
    assert content != path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(ArtifactError) as caught:
        router(path, resume=resume).fit(*three_experts())
    assert str(caught.value) == (
        f"checkpoint {path} cannot be read: it is damaged, or not a checkpoint of NeuralRouter. "
        f"Delete it, or choose another path."
    )
    assert path.read_bytes() == content


def test_other_safetensors_and_folders_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({"weight": np.zeros(3)}, path)
    for place in (path, tmp_path):
        with pytest.raises(ArtifactError, match="not a checkpoint of NeuralRouter"):
            router(place).fit(*three_experts())


def test_a_write_that_fails_leaves_the_last_epoch_in_place(tmp_path, monkeypatch):
    path = tmp_path / "run"
    start(path)
    before = path.read_bytes()

    def fail(source, target):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        with pytest.raises(ArtifactError) as caught:
            router(path).fit(*three_experts())
    assert str(caught.value) == f"cannot write checkpoint {path}: No space left on device."
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    assert_same(router(path).fit(*three_experts()), router().fit(*three_experts()))


def test_a_place_that_cannot_be_written_is_said_before_the_first_epoch(tmp_path):
    (tmp_path / "file").write_text("")
    unused = killer(1)
    with pytest.raises(ArtifactError, match=r"cannot write checkpoint .*run: File exists\."):
        router(tmp_path / "file" / "run", progress=unused).fit(*three_experts())


@pytest.mark.parametrize("state", [None, np.random.RandomState(0)], ids=["none", "state"])
def test_a_run_that_cannot_be_repeated_takes_no_checkpoint(tmp_path, state):
    with pytest.raises(InvalidInputError, match="random_state must be an integer for a run with a"):
        router(tmp_path / "run", random_state=state).fit(*three_experts())
