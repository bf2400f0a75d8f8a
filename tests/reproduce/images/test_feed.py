import numpy as np
import pytest
import torch

from mild.exceptions import InvalidInputError
from mild.reproduce.images.feed import ImageFeed

CPU = torch.device("cpu")


def make_images(n=10, size=16, channels=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(n, size, size, channels), dtype=np.uint8)


def test_a_batch_is_the_crop_by_hand():
    images = make_images()
    feed = ImageFeed(images, augment=True, flip=True, device=CPU)
    plan = feed.plan(seed=1, epoch=2, batch_size=5)[1]
    batch = feed.batch(plan).numpy()
    mean = images.reshape(-1, 3).mean(axis=0)
    std = images.reshape(-1, 3).std(axis=0)
    shift = feed.shift
    assert shift == 2
    assert plan[3].unique().tolist() == [0, 1]
    for i, (row, top, left, mirror) in enumerate(plan.T.tolist()):
        padded = np.pad(images[row], ((shift, shift), (shift, shift), (0, 0)))
        crop = padded[top : top + 16, left : left + 16].astype(float)
        crop = crop[:, ::-1] if mirror else crop
        expected = ((crop - mean) / std).transpose(2, 0, 1)
        np.testing.assert_allclose(batch[i], expected, atol=1e-4)


def test_without_augmentation_a_batch_is_the_images():
    images = make_images()
    feed = ImageFeed(images, augment=False, flip=True, device=CPU)
    plan = feed.plan(seed=0, epoch=0, batch_size=10)[0]
    plain = torch.cat(list(feed.batches(images[plan[0].numpy()], 3)))
    torch.testing.assert_close(feed.batch(plan), plain)


def test_an_epoch_shows_every_image_at_most_once_in_full_batches():
    feed = ImageFeed(make_images(n=11), augment=True, flip=False, device=CPU)
    plan = feed.plan(seed=0, epoch=0, batch_size=4)
    assert plan.shape == (2, 4, 4)
    assert len(plan[:, 0].flatten().unique()) == 8
    assert plan[:, 3].sum() == 0


def test_plans_depend_on_seed_and_epoch_alone():
    feed = ImageFeed(make_images(), augment=True, flip=True, device=CPU)
    assert torch.equal(feed.plan(3, 4, 5), feed.plan(3, 4, 5))
    assert not torch.equal(feed.plan(3, 4, 5), feed.plan(3, 5, 5))
    assert not torch.equal(feed.plan(3, 4, 5), feed.plan(4, 4, 5))


def test_a_constant_channel_gives_finite_inputs():
    images = make_images()
    images[..., 1] = 7
    feed = ImageFeed(images, augment=False, flip=False, device=CPU)
    assert torch.isfinite(next(feed.batches(images, 10))).all()


@pytest.mark.parametrize(
    "images",
    [np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 1)), np.zeros((0, 4, 4, 1), np.uint8)],
)
def test_what_is_no_image_array_is_refused(images):
    with pytest.raises(InvalidInputError, match="uint8 array"):
        ImageFeed(images, augment=False, flip=False, device=CPU)


def test_images_of_another_size_are_refused():
    feed = ImageFeed(make_images(size=16), augment=False, flip=False, device=CPU)
    with pytest.raises(InvalidInputError, match="training images' shape"):
        next(feed.batches(make_images(size=8), 4))
