import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from mild.exceptions import ArtifactError, InvalidInputError, MildWarning
from mild.reproduce.images import training
from mild.reproduce.images.network import make_network
from mild.reproduce.images.protocol import PROTOCOLS
from mild.reproduce.images.training import train_network
from mild.reproduce.routing import forget_checkpoint

SMALL = PROTOCOLS["fast"].changed(epochs=4, width=4, batch_size=32)


def make_problem(n=96, seed=0):
    """Bright and dark images, in noise: two classes that a small network tells apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=n)
    images = rng.integers(0, 100, size=(n, 8, 8, 1)) + 120 * labels[:, None, None, None]
    return images.astype(np.uint8), torch.as_tensor(labels)


def train(images, labels, protocol=SMALL, seed=0, **more):
    def loss(scores, rows):
        return cross_entropy(scores, labels[rows], reduction="none")

    return train_network(images, 2, loss, protocol, seed, flip=False, **more)


def test_a_network_learns_what_its_loss_asks_for():
    images, labels = make_problem()
    network = train(images, labels, SMALL.changed(epochs=12, lr=5e-3))
    new, truth = make_problem(seed=1)
    assert network.scores(new).shape == (96, 2)
    assert (network.scores(new).argmax(axis=1) == truth.numpy()).mean() > 0.95
    assert network.history[-1]["loss"] < network.history[0]["loss"]
    assert network.images_per_second > 0


def test_scores_are_the_head_on_the_features():
    images, labels = make_problem()
    network = train(images, labels, SMALL.changed(epochs=1))
    features = network.features(images)
    assert features.shape == (96, 32)
    head = network.network.head
    expected = features @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(network.scores(images), expected, atol=1e-5)


def test_the_same_seed_gives_the_same_scores_and_another_does_not():
    images, labels = make_problem()
    first, again, other = (train(images, labels, seed=seed).scores(images) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("killed_after", [1, 3])
def test_a_killed_run_resumed_is_the_unbroken_one(tmp_path, killed_after):
    images, labels = make_problem()
    unbroken = train(images, labels)

    def kill(done, total, message):
        if done == killed_after:
            raise KeyboardInterrupt

    file = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(images, labels, checkpoint=file, progress=kill, checkpoint_seconds=0)
    seen = []
    resumed = train(
        images,
        labels,
        checkpoint=file,
        progress=lambda done, total, message: seen.append(done),
        checkpoint_seconds=0,
    )
    assert seen[0] == killed_after + 1
    np.testing.assert_array_equal(resumed.scores(images), unbroken.scores(images))
    assert without_seconds(resumed.history) == without_seconds(unbroken.history)


def without_seconds(history):
    return [{**record, "seconds": None} for record in history]


def test_a_resumed_run_adds_up_the_seconds_of_all_its_epochs(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"

    def kill(done, total, message):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(images, labels, checkpoint=file, progress=kill, checkpoint_seconds=0)
    resumed = train(images, labels, checkpoint=file, checkpoint_seconds=0)
    each = [record["seconds"] for record in resumed.history]
    assert len(each) == 4
    assert min(each) > 0
    assert resumed.seconds == pytest.approx(sum(each))
    # All epochs in all of their time, whichever process they were run in.
    assert resumed.images_per_second == pytest.approx(4 * 96 / sum(each))


def test_a_long_training_is_kept_after_its_last_epoch_until_it_is_forgotten(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    first = train(images, labels, checkpoint=file, checkpoint_seconds=0)
    seen = []
    again = train(images, labels, checkpoint=file, progress=lambda *said: seen.append(said))
    assert seen == []
    np.testing.assert_array_equal(again.scores(images), first.scores(images))
    assert again.history == first.history
    assert again.seconds == first.seconds


def test_a_checkpoint_of_another_run_is_not_continued(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    train(images, labels, checkpoint=file, checkpoint_seconds=0, identity={"key": "a"})
    with pytest.raises(ArtifactError, match="another run"):
        train(images, labels, checkpoint=file, identity={"key": "b"})


def test_a_checkpoint_of_another_recipe_is_not_continued(tmp_path, monkeypatch):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    train(images, labels, checkpoint=file, checkpoint_seconds=0)
    monkeypatch.setattr("mild.reproduce.images.protocol.RECIPE", 2)
    with pytest.raises(ArtifactError, match="another run, with recipe=None, not 2"):
        train(images, labels, checkpoint=file)


def test_checkpoints_are_no_more_frequent_than_asked(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    train(images, labels, checkpoint=file, checkpoint_seconds=1000)
    assert not file.exists()


def test_a_folder_that_another_process_removed_is_made_again(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "checkpoints" / "run.safetensors"

    def remove(done, total, message):
        if done == 2:
            forget_checkpoint(file.parent, file.stem)
            assert not file.parent.exists()

    train(images, labels, checkpoint=file, progress=remove, checkpoint_seconds=0)
    assert file.exists()


def test_a_damaged_checkpoint_is_told_of_and_the_training_starts_over(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    unbroken = train(images, labels)
    file.write_bytes(b"notes")
    with pytest.warns(MildWarning, match=r"run\.safetensors is damaged .* starts over"):
        again = train(images, labels, checkpoint=file, checkpoint_seconds=0)
    np.testing.assert_array_equal(again.scores(images), unbroken.scores(images))
    assert file.read_bytes() != b"notes"


def test_what_is_said_of_checkpoints_names_no_router(tmp_path):
    images, labels = make_problem()
    file = tmp_path / "run.safetensors"
    train(images, labels, checkpoint=file, checkpoint_seconds=0, identity={"key": "a"})
    with pytest.raises(ArtifactError, match="another path, or delete it to start over"):
        train(images, labels, checkpoint=file, identity={"key": "b"})


def test_one_image_is_too_few():
    images, labels = make_problem(n=1)
    with pytest.raises(InvalidInputError, match="images must be at least 2 to train on"):
        train(images, labels)


def test_divergence_is_said_in_one_sentence():
    images, _ = make_problem()

    def loss(scores, rows):
        return scores.sum(dim=1) * float("nan")

    with pytest.raises(InvalidInputError, match="diverged in epoch 1"):
        train_network(images, 2, loss, SMALL, 0, flip=False)


def test_fewer_images_than_a_batch_are_one_batch():
    images, labels = make_problem(n=10)
    network = train(images, labels, SMALL.changed(batch_size=1024))
    assert np.isfinite(network.scores(images)).all()


def test_first_weights_depend_on_the_seed_alone_and_leave_torch_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = make_network(3, 2, width=4, seed=1)
    assert torch.equal(torch.rand(1), expected)
    again = make_network(3, 2, width=4, seed=1)
    pairs = zip(first.parameters(), again.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_first_weights_leave_the_generators_of_gpus_alone(monkeypatch):
    def touched(seed):
        raise AssertionError

    monkeypatch.setattr(torch.cuda, "manual_seed_all", touched)
    make_network(3, 2, width=4, seed=1)


def test_features_are_pooled_in_float32_under_autocast_too():
    network = make_network(1, 2, width=4).eval()
    images = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        features = network.backbone(images)
    assert features.dtype == torch.float32
    # Means of several bfloat16 numbers are no bfloat16 numbers, unless they were rounded to them.
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        features = network.backbone(images)
    assert not torch.equal(features, features.to(torch.bfloat16).float())


needs_gpu = pytest.mark.skipif(training.best_device() == "cpu", reason="needs a CUDA GPU")


def distance(found, wanted):
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted)


@needs_gpu
def test_a_recorded_step_is_the_plain_one():
    # Wide enough for the fused kernels; bfloat16 by torch's own layers is 0.1 away from float32.
    protocol = SMALL.changed(width=16)
    images, labels = make_problem()
    on_gpu = train(images, labels.to("cuda"), protocol, device="cuda")
    plain = train(images, labels, protocol)
    assert distance(on_gpu.scores(images), plain.scores(images)) < 0.25
    losses = [[record["loss"] for record in network.history] for network in (on_gpu, plain)]
    # The last losses are 0.003, of which bfloat16 moves an eighth.
    np.testing.assert_allclose(*losses, rtol=0.1, atol=0.001)


@needs_gpu
def test_a_killed_run_resumed_on_a_gpu_is_the_unbroken_one(tmp_path):
    images, labels = make_problem()
    where = {"protocol": SMALL.changed(width=16), "device": "cuda", "checkpoint_seconds": 0}
    labels = labels.to("cuda")
    unbroken = train(images, labels, **where)

    def kill(done, total, message):
        if done == 2:
            raise KeyboardInterrupt

    file = tmp_path / "run.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train(images, labels, checkpoint=file, progress=kill, **where)
    seen = []
    resumed = train(
        images, labels, checkpoint=file, progress=lambda done, *rest: seen.append(done), **where
    )
    assert seen == [3, 4]
    # Without Adam's moments it would be 0.2 away.
    assert distance(resumed.scores(images), unbroken.scores(images)) < 0.1
    assert [record["epoch"] for record in resumed.history] == [1, 2, 3, 4]
    assert resumed.history[-1]["loss"] == pytest.approx(unbroken.history[-1]["loss"], rel=0.05)
