"""Training on images: feeds, decay, divergence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from experiments.images.network import make_network
from experiments.images.training import (
    PROTOCOLS,
    ImageFeed,
    Protocol,
    best_device,
    train_network,
)
from experiments.records import DivergedError
from mild.errors import InvalidInputError

SMALL = PROTOCOLS["fast"].changed(epochs=4, width=4, batch_size=32)


def make_problem(n=96, seed=0):
    """Bright and dark images, in noise: two classes that a small network tells apart."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=n)
    images = rng.integers(0, 100, size=(n, 8, 8, 1)) + 120 * labels[:, None, None, None]
    return images.astype(np.uint8), torch.as_tensor(labels)


def train(images, labels, protocol=SMALL, seed=0, factor=1.0, **more):
    def loss(scores, rows):
        return factor * cross_entropy(scores, labels[rows], reduction="none")

    return train_network(images, 2, loss, protocol, seed, flip=False, **more)


def test_a_network_learns_what_its_loss_asks_for_and_the_seed_decides_its_bits():
    images, labels = make_problem()
    first, again = (train(images, labels, SMALL.changed(epochs=6, lr=5e-3)) for _ in range(2))
    new, truth = make_problem(seed=1)
    assert (first.scores(new).argmax(axis=1) == truth.numpy()).mean() > 0.95
    np.testing.assert_array_equal(first.scores(new), again.scores(new))
    assert not np.array_equal(first.scores(new), train(images, labels, seed=1).scores(new))
    head = first.network.head
    expected = first.features(new) @ head.weight.detach().numpy().T + head.bias.detach().numpy()
    np.testing.assert_allclose(first.scores(new), expected, atol=1e-5)


@pytest.mark.parametrize("decay", ["coupled", "decoupled"])
def test_only_decoupled_decay_is_independent_of_the_scale_of_the_loss(decay):
    """Adam divides by the size of the gradient; coupled decay is part of that gradient."""
    images, labels = make_problem()
    protocol = SMALL.changed(decay=decay, weight_decay=0.5, epochs=3)
    one, large = (train(images, labels, protocol, factor=f).scores(images) for f in (1.0, 64.0))
    distance = np.linalg.norm(one - large) / np.linalg.norm(one)
    assert (distance < 0.05) == (decay == "decoupled")


def test_divergence_and_a_single_image_are_errors():
    images, labels = make_problem()
    with pytest.raises(DivergedError) as caught:
        train(images, labels, factor=float("nan"))
    assert caught.value.code == "training_diverged"
    with pytest.raises(InvalidInputError, match="at least 2"):
        train(images[:1], labels)
    small = train(images[:10], labels, SMALL.changed(batch_size=1024))
    assert np.isfinite(small.scores(images)).all()


def test_an_epoch_shows_every_image_once_and_depends_on_seed_and_epoch():
    images, _ = make_problem()
    feed = ImageFeed(images, augment=True, flip=True, device=torch.device("cpu"))
    plan = feed.plan(seed=3, epoch=1, batch_size=32)
    assert plan.shape == (3, 4, 32)
    assert sorted(plan[:, 0].flatten().tolist()) == list(range(96))
    assert torch.equal(plan, feed.plan(3, 1, 32))
    assert not torch.equal(plan, feed.plan(3, 2, 32))


def test_batches_are_crops_and_mirror_images_of_normalised_images():
    images, _ = make_problem()
    device = torch.device("cpu")
    plain = ImageFeed(images, augment=False, flip=True, device=device)
    (whole,) = plain.batches(images)
    assert float(whole.mean()) == pytest.approx(0, abs=1e-4)
    assert float(whole.std()) == pytest.approx(1, abs=1e-2)
    feed = ImageFeed(images, augment=True, flip=True, device=device)
    plan = torch.tensor([[5, 5, 5], [1, 1, 2], [1, 1, 1], [0, 1, 0]])
    as_is, mirrored, lower = feed.batch(plan)
    torch.testing.assert_close(as_is, whole[5])
    torch.testing.assert_close(mirrored, whole[5].flip(-1))
    torch.testing.assert_close(lower[:, :-1], whole[5][:, 1:])


def test_protocols_are_checked_and_changes_are_named():
    fast = PROTOCOLS["fast"]
    assert fast.changed(epochs=fast.epochs) is fast
    assert fast.changed(epochs=2).changed(lr=1.0).name == "fast, changed"
    assert Protocol(**fast.as_dict()) == fast
    assert not {"decay", "stride"} & set(fast.as_dict())
    assert Protocol(**fast.changed(stride=2).as_dict()).stride == 2
    for change in ({"epochs": 0}, {"lr": 0.0}, {"weight_decay": -1.0}, {"batch_size": 1}):
        with pytest.raises(InvalidInputError, match=next(iter(change))):
            fast.changed(**change)


def test_first_weights_depend_on_the_seed_alone_and_leave_torch_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first = make_network(3, 2, width=4, seed=1)
    assert torch.equal(torch.rand(1), expected)
    again = make_network(3, 2, width=4, seed=1)
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )


def test_a_first_stride_of_2_sees_an_image_of_twice_the_size_as_one_of_the_usual_size():
    usual, strided = (make_network(3, 2, width=4, seed=1, stride=stride) for stride in (1, 2))
    assert strided.backbone.stem(torch.zeros(1, 3, 16, 16)).shape == (1, 4, 8, 8)
    assert usual.backbone.stem(torch.zeros(1, 3, 8, 8)).shape == (1, 4, 8, 8)
    protocol = SMALL.changed(stride=2, epochs=1)
    images, labels = make_problem()
    assert train(images, labels, protocol).network.backbone.stem.stride == (2, 2)


@pytest.mark.skipif(best_device() == "cpu", reason="needs a CUDA GPU")
def test_a_recorded_step_is_the_plain_one():
    protocol = SMALL.changed(width=16)
    images, labels = make_problem()
    on_gpu = train(images, labels.to("cuda"), protocol, device="cuda").scores(images)
    plain = train(images, labels, protocol).scores(images)
    assert np.linalg.norm(on_gpu - plain) / np.linalg.norm(plain) < 0.25
