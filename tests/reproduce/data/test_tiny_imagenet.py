"""Tiny ImageNet from its folder of JPEG files."""

import sys

import numpy as np
import pytest

from mild.exceptions import DataFileError, MissingExtraError
from mild.reproduce.data import load_images

Image = pytest.importorskip("PIL.Image")

WNIDS = ("n03", "n01", "n02")


def colour(value, mode="RGB", side=64):
    shape = (side, side) if mode == "L" else (side, side, 3)
    return Image.fromarray(np.full(shape, value, np.uint8), mode=None)


@pytest.fixture
def folder(tmp_path):
    """Three classes with two training images each, four validation images; one of them grey."""
    root = tmp_path / "tiny-imagenet-200"
    for k, wnid in enumerate(WNIDS):
        images = root / "train" / wnid / "images"
        images.mkdir(parents=True)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text("")
        for i in range(2):
            colour(40 * k + 100 * i).save(images / f"{wnid}_{i}.JPEG", quality=100)
    (root / "wnids.txt").write_text("\n".join(WNIDS))
    (root / "words.txt").write_text("n01\tgoldfish, Carassius\nn02\tsalamander\nn99\tnone\n")
    validation = root / "val" / "images"
    validation.mkdir(parents=True)
    lines = []
    for i, wnid in enumerate(["n02", "n03", "n01", "n02"]):
        mode = "L" if i == 3 else "RGB"
        colour(60 * i, mode).save(validation / f"val_{i}.JPEG", quality=100)
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62")
    (root / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return root


def test_classes_are_in_the_order_of_sorted_ids(tmp_path, folder):
    data = load_images("tiny-imagenet", tmp_path)
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert data.class_names == ("goldfish", "salamander", "n03")
    # n01 is the second in the file, so its first image has the colour 40.
    assert data.train_images[[0, 1, 2, 3, 4, 5], 0, 0, 0].tolist() == [40, 140, 80, 180, 0, 100]
    assert data.flip


def test_validation_images_are_the_test_images_in_the_order_of_their_names(tmp_path, folder):
    data = load_images("tiny-imagenet", tmp_path)
    assert data.test_labels.tolist() == [1, 2, 0, 1]
    assert data.test_images[:, 5, 5, 1].tolist() == [0, 60, 120, 180]


def test_grey_images_become_colour(tmp_path, folder):
    grey = load_images("tiny-imagenet", folder).test_images[3]
    assert grey.shape == (64, 64, 3)
    assert (grey == 180).all()


def test_words_are_not_needed(tmp_path, folder):
    (folder / "words.txt").unlink()
    assert load_images("tiny-imagenet", tmp_path).class_names == ("n01", "n02", "n03")


def test_the_reason_of_a_missing_pillow_is_told(tmp_path, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match=r'pip install "mild-learn\[images\]"'):
        load_images("tiny-imagenet", tmp_path)


@pytest.mark.parametrize("lost", ["wnids.txt", "val/val_annotations.txt"])
def test_a_missing_file_is_named(tmp_path, folder, lost):
    (folder / lost).unlink()
    with pytest.raises(DataFileError, match=rf"needs the file tiny-imagenet-200.{lost}"):
        load_images("tiny-imagenet", tmp_path)


def test_an_image_of_another_size_is_refused(tmp_path, folder):
    colour(1, side=63).save(folder / "train" / "n02" / "images" / "n02_0.JPEG")
    with pytest.raises(
        DataFileError, match=r"n02_0\.JPEG must have 64 x 64 pixels; it has 63 x 63"
    ):
        load_images("tiny-imagenet", tmp_path)


@pytest.mark.parametrize("kept", [0, 10, 400])
def test_a_truncated_image_is_refused(tmp_path, folder, kept):
    file = folder / "val" / "images" / "val_1.JPEG"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(DataFileError, match=r"val_1\.JPEG is not a readable JPEG"):
        load_images("tiny-imagenet", tmp_path)


def test_an_image_in_another_format_is_refused(tmp_path, folder):
    colour(1).save(folder / "val" / "images" / "val_1.JPEG", format="PNG")
    with pytest.raises(DataFileError, match=r"val_1\.JPEG is not a readable JPEG"):
        load_images("tiny-imagenet", tmp_path)


def test_a_missing_image_and_an_empty_class_are_refused(tmp_path, folder):
    (folder / "val" / "images" / "val_2.JPEG").unlink()
    with pytest.raises(DataFileError, match=r"val_2\.JPEG is not a readable JPEG"):
        load_images("tiny-imagenet", tmp_path)
    for file in (folder / "train" / "n03" / "images").iterdir():
        file.unlink()
    with pytest.raises(DataFileError, match=r"must hold \.JPEG files; it holds none"):
        load_images("tiny-imagenet", tmp_path)


def test_a_class_without_a_folder_is_refused(tmp_path, folder):
    (folder / "wnids.txt").write_text("n01\nn02\nn03\nn04\n")
    with pytest.raises(DataFileError, match=r"n04.images cannot be read"):
        load_images("tiny-imagenet", tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must list different WordNet ids; got 0 lines"),
        ("n01\nn01\n", "must list different WordNet ids"),
        ("n01\n../../secret\n", r"such as n01443537; got '\.\./\.\./secret'"),
        ("..\n", "such as n01443537"),
    ],
)
def test_ids_that_are_none_are_refused(tmp_path, folder, text, said):
    (folder / "wnids.txt").write_text(text)
    with pytest.raises(DataFileError, match=rf"wnids\.txt .*{said}"):
        load_images("tiny-imagenet", tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must name at least one image"),
        ("val_0.JPEG n01\n", "line 1 is 'val_0.JPEG n01'"),
        ("val_0.JPEG\tn01\nval_1.JPEG\tn77\n", "line 2"),
        ("../../secret\tn01\n", "line 1"),
        ("val_0.JPEG\tn01\nval_0.JPEG\tn01\n", "line 2 repeats"),
    ],
)
def test_annotations_that_are_none_are_refused(tmp_path, folder, text, said):
    (folder / "val" / "val_annotations.txt").write_text(text)
    with pytest.raises(DataFileError, match=rf"val_annotations\.txt .*{said}"):
        load_images("tiny-imagenet", tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path, folder):
    (folder / "wnids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataFileError, match=r"wnids\.txt must be text"):
        load_images("tiny-imagenet", tmp_path)
