"""Loaders on small files in the official formats."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from experiments.images import data
from experiments.images.data import DATASETS, ImageData, fetch_images, load_images, read_people
from mild.errors import DataFileError, InvalidInputError, MildError, MildWarning


def python2_pickle(value):
    """Bytes that Python 2 and an old NumPy wrote for a value, protocol 2."""
    return b"\x80\x02" + _python2(value) + b"."


def _python2(value):
    if isinstance(value, np.ndarray):
        dtype = (
            b"cnumpy\ndtype\n" + _python2(b"u1") + b"K\x00K\x01\x87R"
            b"(K\x03" + _python2(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        )
        return (
            b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
            b"(K\x01(" + b"".join(_python2(size) for size in value.shape) + b"t"
            + dtype + b"\x89" + _python2(value.tobytes()) + b"tb"
        )  # fmt: skip
    if isinstance(value, bytes):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<i", len(value)) + value
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, list):
        return b"](" + b"".join(map(_python2, value)) + b"e"
    return b"}(" + b"".join(_python2(part) for item in value.items() for part in item) + b"u"


def make_cifar10(folder, dump=python2_pickle, n=3):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 7):
        name = f"data_batch_{number}" if number < 6 else "test_batch"
        rows = np.random.default_rng(number).integers(0, 256, (n, 3072), dtype=np.uint8)
        content = {b"labels": [(number + i) % 10 for i in range(n)], b"data": rows}
        (folder / name).write_bytes(dump(content))
    meta = {b"label_names": [f"class {k}".encode() for k in range(10)]}
    (folder / "batches.meta").write_bytes(dump(meta))


@pytest.mark.parametrize("dump", [python2_pickle, lambda value: pickle.dumps(value, 4)])
def test_cifar_batches_are_read_in_order_as_height_width_channels(tmp_path, dump):
    make_cifar10(tmp_path / "cifar-10-batches-py", dump)
    images = load_images("cifar10", tmp_path)
    assert images.train_images.shape == (15, 32, 32, 3)
    assert images.train_labels.tolist()[:6] == [1, 2, 3, 2, 3, 4]
    row = np.random.default_rng(1).integers(0, 256, (3, 3072), dtype=np.uint8)[0]
    np.testing.assert_array_equal(images.train_images[0], row.reshape(3, 32, 32).transpose(1, 2, 0))
    assert images.class_names[3] == "class 3"
    assert "CIFAR-10 has 50,000" in images.note


def test_cifar100_has_its_fine_labels(tmp_path):
    for name, labels in {"train": [0, 99, 7], "test": [50, 3]}.items():
        rows = np.zeros((len(labels), 3072), np.uint8)
        content = {b"fine_labels": labels, b"coarse_labels": [1] * len(labels), b"data": rows}
        (tmp_path / name).write_bytes(python2_pickle(content))
    names = [f"fine {k}".encode() for k in range(100)]
    (tmp_path / "meta").write_bytes(python2_pickle({b"fine_label_names": names}))
    images = load_images("cifar100", tmp_path)
    assert (images.train_labels.tolist(), images.test_labels.tolist()) == ([0, 99, 7], [50, 3])


@pytest.mark.parametrize("call", [b"cos\nsystem\n", b"cbuiltins\neval\n", b"cnumpy\nload\n"])
def test_a_pickle_that_calls_anything_is_refused_and_not_run(tmp_path, call):
    folder = tmp_path / "cifar-10-batches-py"
    make_cifar10(folder)
    target = tmp_path / "made"
    text = f"touch {target}" if b"system" in call else f"open({str(target)!r}, 'w')"
    (folder / "data_batch_3").write_bytes(call + b"(V" + text.encode() + b"\ntR.")
    with pytest.raises(DataFileError, match="never loaded"):
        load_images("cifar10", tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("damage", [lambda raw: raw[:-20], lambda raw: b"", lambda raw: b"notes"])
def test_a_damaged_or_absent_file_is_an_error_that_says_how_to_fetch_it(tmp_path, damage):
    folder = tmp_path / "cifar-10-batches-py"
    make_cifar10(folder)
    file = folder / "data_batch_1"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataFileError, match="cifar10"):
        load_images("cifar10", tmp_path)
    file.unlink()
    with pytest.raises(DataFileError, match=r"experiments\.images fetch cifar10"):
        load_images("cifar10", tmp_path)


def test_svhn_has_images_last_and_writes_zero_as_ten(tmp_path):
    rng = np.random.default_rng(0)
    for part, n in (("train", 4), ("test", 2)):
        pixels = rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
        savemat(
            tmp_path / f"{part}_32x32.mat", {"X": pixels, "y": np.arange(10, 10 - n, -1)[:, None]}
        )
    images = load_images("svhn", tmp_path)
    np.testing.assert_array_equal(images.test_images[1], pixels[..., 1])
    assert images.train_labels.tolist() == [0, 9, 8, 7]
    savemat(tmp_path / "train_32x32.mat", {"X": pixels, "y": np.array([[11], [1]])})
    with pytest.raises(DataFileError, match="1 to 10"):
        load_images("svhn", tmp_path)


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", n) for n in array.shape)
    return head + array.astype(np.uint8).tobytes()


def make_fashion(folder, labels, packed=True):
    for part, rows in (("train", labels), ("t10k", np.arange(2))):
        files = {"images-idx3": np.full((len(rows), 2, 2), 7), "labels-idx1": np.asarray(rows)}
        for name, array in files.items():
            file = folder / f"{part}-{name}-ubyte"
            if packed:
                file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                file.write_bytes(idx(array))


@pytest.mark.parametrize("packed", [True, False])
def test_fashion_mnist_is_read_packed_or_not(tmp_path, packed):
    make_fashion(tmp_path, [3, 0, 9], packed)
    images = load_images("fashion-mnist", tmp_path)
    assert images.train_images.shape == (3, 2, 2, 1)
    names = [images.class_names[k] for k in images.train_labels]
    assert names == ["dress", "t-shirt/top", "ankle boot"]


def test_mnist_under_the_names_of_fashion_mnist_is_refused(tmp_path):
    make_fashion(tmp_path, np.repeat(np.arange(10), data.MNIST_COUNTS))
    with pytest.raises(DataFileError, match="digits of MNIST"):
        load_images("fashion-mnist", tmp_path)


def test_tiny_imagenet_orders_classes_by_id_and_tests_on_the_validation_images(tmp_path):
    image = pytest.importorskip("PIL.Image")

    def save(path, brightness, size=64):
        path.parent.mkdir(parents=True, exist_ok=True)
        image.new("L", (size, size), brightness).save(path)

    (tmp_path / "wnids.txt").write_text("n2\nn1\n")
    (tmp_path / "words.txt").write_text("n1\tcat, pet\nn2\tdog\n")
    for k, wnid in enumerate(["n1", "n2"]):
        save(tmp_path / "train" / wnid / "images" / f"{wnid}_0.JPEG", 50 + 100 * k)
        save(tmp_path / "val" / "images" / f"val_{k}.JPEG", 50 + 100 * k)
    lines = "val_1.JPEG\tn2\t0\t0\t1\t1\nval_0.JPEG\tn1\t0\t0\t1\t1\n"
    (tmp_path / "val" / "val_annotations.txt").write_text(lines)
    images = load_images("tiny-imagenet", tmp_path)
    assert images.class_names == ("cat", "dog")
    assert images.train_images.mean(axis=(1, 2, 3)).tolist() == pytest.approx([50, 150], abs=1)
    assert images.test_labels.tolist() == [0, 1]
    save(tmp_path / "val" / "images" / "val_0.JPEG", 5, size=32)
    with pytest.raises(DataFileError, match="64 x 64"):
        load_images("tiny-imagenet", tmp_path)


def test_images_must_be_uint8_with_one_label_each(make_images):
    good = make_images()
    labels = good.train_labels
    rest = (good.test_images, good.test_labels, good.class_names, False)
    for images in (good.train_images.astype(float), good.train_images[..., 0], [[1]]):
        with pytest.raises(InvalidInputError, match="train_images must be a uint8 array"):
            ImageData("x", images, labels, *rest)
    with pytest.raises(MildError):
        ImageData("x", good.train_images, labels[1:], *rest)


def test_digests_change_with_any_pixel_and_the_official_one_is_checked(make_images, monkeypatch):
    one, other = make_images(), make_images()
    assert one.digest() == other.digest()
    other.train_images[3, 2, 1, 0] ^= 1
    assert one.digest() != dataclasses.replace(other).digest()
    official = data.Dataset("digits", lambda folder: one, "", 300, 100, digest="0" * 16)
    monkeypatch.setitem(DATASETS, "digits", official)
    with pytest.warns(MildWarning, match="other content"):
        load_images("digits")


def people_arrays(images, **changed):
    truth = images.train_labels
    usual = {"c10_clean_label": truth, "c10_random_label1": (truth + 1) % 10, "other": truth}
    return usual | changed


def test_annotations_are_read_in_the_order_of_the_images(make_images, tmp_path):
    images = make_images(name="cifar10")
    file = tmp_path / "p.npz"
    np.savez(file, **people_arrays(images))
    people = read_people(file, images)
    assert list(people.columns) == ["random_label1"]
    assert (people.columns["random_label1"] != people.truth).all()
    np.savez(file, **people_arrays(images, c10_random_label2=people.truth))
    assert read_people(file, images).digest(("random_label1",)) == people.digest(("random_label1",))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"c10_clean_label": np.zeros(300, int)}, "order of the images; .* row 30"),
        ({"c10_random_label1": np.full(300, 10)}, r"classes in \[0, 10\)"),
        ({"c10_random_label1": np.zeros(5, int)}, "one per training image"),
        ({"c10_random_label1": np.array([None] * 300)}, "must be a .npz file"),
    ],
)
def test_annotations_that_do_not_fit_the_images_are_refused(
    make_images, tmp_path, changed, message
):
    images = make_images(name="cifar10")
    np.savez(tmp_path / "p.npz", **people_arrays(images, **changed))
    with pytest.raises(DataFileError, match=message):
        read_people(tmp_path / "p.npz", images)


def test_a_data_set_is_fetched_from_a_partial_file_checked_and_unpacked(tmp_path, monkeypatch):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("folder/file")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"hello"))
    content = buffer.getvalue()
    (tmp_path / "there").mkdir()
    source = tmp_path / "there" / "made.tar.gz"
    source.write_bytes(content)
    md5 = data._md5(source)

    def dataset(md5):
        remote = data.RemoteFile(source.as_uri(), md5, len(content))
        return data.Dataset("made", lambda folder: None, "folder", 1, 1, files=(remote,))

    monkeypatch.setitem(DATASETS, "made", dataset("0" * 32))
    here = tmp_path / "here"
    with pytest.raises(DataFileError, match="md5"):
        fetch_images("made", here)
    assert not (here / "folder").exists()
    monkeypatch.setitem(DATASETS, "made", dataset(md5))
    here.mkdir(exist_ok=True)
    (here / "made.tar.gz.part").write_bytes(content[:10])
    fetch_images("made", here)
    assert (here / "folder" / "file").read_bytes() == b"hello"
    assert sorted(os.listdir(here)) == ["folder", "made.tar.gz"]
    source.unlink()
    fetch_images("made", here)
