"""CIFAR-10 and CIFAR-100 from the official python files."""

import os
import pickle

import numpy as np
import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data import load_images


def batch(n=3, **changed):
    content = {"labels": [0] * n, "data": np.zeros((n, 3072), np.uint8)}
    return {**content, **changed}


def modern(value):
    return pickle.dumps(value, protocol=2)


def test_cifar10_is_read_however_it_was_pickled(tmp_path, make_cifar10, dump):
    make_cifar10(tmp_path / "cifar-10-batches-py", dump)
    data = load_images("cifar10", tmp_path)
    assert data.name == "cifar10"
    assert data.train_images.shape == (15, 32, 32, 3)
    assert data.test_images.shape == (3, 32, 32, 3)
    # Batch b holds the labels b, b + 1, b + 2; the test batch is the sixth.
    assert data.train_labels.tolist() == [b + i for b in range(1, 6) for i in range(3)]
    assert data.test_labels.tolist() == [6, 7, 8]
    assert data.class_names == tuple(f"class {k}" for k in range(10))
    assert data.flip


def test_rows_are_three_planes_of_red_green_and_blue(tmp_path, make_cifar10):
    row = np.zeros((1, 3072), np.uint8)
    row[0, 32 * 4 + 5] = 10  # red, line 4, column 5
    row[0, 1024 + 32 * 6 + 7] = 20  # green, line 6, column 7
    row[0, 2048 + 32 * 8 + 9] = 30  # blue, line 8, column 9
    content = batch(1, data=row)
    make_cifar10(tmp_path / "cifar-10-batches-py", modern, test_batch=content)
    image = load_images("cifar10", tmp_path).test_images[0]
    assert (image[4, 5, 0], image[6, 7, 1], image[8, 9, 2]) == (10, 20, 30)
    assert image.sum() == 60


def test_images_can_be_written_to_and_lie_in_order(tmp_path, make_cifar10):
    # torch warns of arrays that cannot be written to.
    make_cifar10(tmp_path / "cifar-10-batches-py")
    data = load_images("cifar10", tmp_path)
    for array in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_cifar100_has_its_fine_labels(tmp_path, make_cifar100, dump):
    make_cifar100(tmp_path / "cifar-100-python", dump)
    data = load_images("cifar100", tmp_path)
    assert data.train_labels.tolist() == [0, 99, 7]
    assert data.test_labels.tolist() == [50, 3]
    assert data.class_names[99] == "fine 99"
    assert data.n_classes == 100


def test_the_folder_itself_may_be_named(tmp_path, make_cifar10):
    folder = make_cifar10(tmp_path / "cifar-10-batches-py")
    renamed = make_cifar10(tmp_path / "under another name")
    inside = load_images("cifar10", folder)
    assert inside.digest() == load_images("cifar10", tmp_path).digest()
    assert inside.digest() == load_images("cifar10", renamed).digest()


def test_a_part_of_the_data_set_is_labelled_as_such(tmp_path, make_cifar10):
    make_cifar10(tmp_path / "cifar-10-batches-py")
    note = load_images("cifar10", tmp_path).note
    assert note == "15 training and 3 test images; CIFAR-10 has 50,000 and 10,000"


def test_a_missing_file_is_named_with_the_command_that_fetches_it(tmp_path, make_cifar10):
    folder = make_cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_4").unlink()
    with pytest.raises(DataFileError) as caught:
        load_images("cifar10", tmp_path)
    assert str(caught.value) == (
        f"cifar10 needs the file {os.path.join('cifar-10-batches-py', 'data_batch_4')}, which is not "
        f"in {tmp_path} (which holds cifar-10-batches-py); fetch it with `mild reproduce fetch "
        f"cifar10 --data-dir {tmp_path}`."
    )


def test_the_command_names_the_folder_above_where_the_data_folder_was_named(tmp_path, make_cifar10):
    folder = make_cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "test_batch").unlink()
    with pytest.raises(DataFileError, match=f"--data-dir {tmp_path}`"):
        load_images("cifar10", folder)


def test_a_folder_of_something_else_is_told_by_what_it_holds(tmp_path, make_cifar100):
    folder = make_cifar100(tmp_path / "cifar-100-python")
    said = r"needs the file cifar-10-batches-py.data_batch_1.*which holds meta, test, train"
    with pytest.raises(DataFileError, match=said):
        load_images("cifar10", folder)


def test_an_archive_that_is_not_unpacked_is_seen(tmp_path):
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    said = "its archive cifar-10-python.tar.gz is there, not yet unpacked"
    with pytest.raises(DataFileError, match=said):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 500, -1])
def test_a_truncated_file_is_named_with_what_was_expected(tmp_path, make_cifar10, kept):
    file = make_cifar10(tmp_path / "cifar-10-batches-py") / "data_batch_2"
    content = file.read_bytes()[:kept]
    file.write_bytes(content)
    with pytest.raises(DataFileError) as caught:
        load_images("cifar10", tmp_path)
    said = str(caught.value)
    assert said.startswith(
        f"{file} is not a complete pickle, or it is damaged (it has {len(content):,}"
    )
    assert "the official file has 31,035,320 bytes, md5 d4bba439e000b95fd0a9bffe97cbabec" in said
    assert said.endswith(f"fetch it with `mild reproduce fetch cifar10 --data-dir {tmp_path}`.")


class Attack:
    def __reduce__(self):
        return os.system, ("true",)


def test_a_file_that_tries_to_run_code_is_refused_by_name(tmp_path, make_cifar10):
    folder = make_cifar10(tmp_path / "cifar-10-batches-py", modern, data_batch_3=Attack())
    with pytest.raises(DataFileError) as caught:
        load_images("cifar10", tmp_path)
    said = str(caught.value)
    assert said.startswith(f"{folder / 'data_batch_3'} must be a pickle of uint8 arrays")
    assert "system, so it was refused and nothing in it was run" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (batch(labels=[0, 1, 10]), r"labels must lie in \[0, 10\); got 10"),
        (batch(labels=[0, 1, -1]), r"labels must lie in \[0, 10\); got -1"),
        (batch(labels=[0, 1]), r"does not fit its 3 images: labels must have shape"),
        (batch(labels=[0, 1, "2"]), "labels must be integers"),
        (batch(labels=[0, 1, 2.0]), "labels must be integers"),
        (batch(labels=[[0], [1, 2], 3]), "flat lists of these; 'labels' is a list with a list"),
        (batch(labels=7), "labels must have shape"),
        (batch(data=np.zeros((3, 3071), np.uint8)), r"shape \(n, 3072\); got shape \(3, 3071\)"),
        (batch(data=np.zeros((3, 32, 32, 3), np.uint8)), r"shape \(n, 3072\)"),
        (batch(data=[1, 2, 3]), r"shape \(n, 3072\); got list"),
        (batch(data=np.zeros((3, 3072), np.int64)), "arrays of type uint8"),
        ({"data": np.zeros((3, 3072), np.uint8)}, "must have the key 'labels'; it has data"),
        ({"labels": [0]}, "must have the key 'data'; it has labels"),
        ([1], "must hold a dictionary"),
    ],
)
def test_content_that_is_not_a_batch_is_refused_with_its_file(
    tmp_path, make_cifar10, content, said
):
    make_cifar10(tmp_path / "cifar-10-batches-py", modern, data_batch_5=content)
    with pytest.raises(DataFileError, match=rf"data_batch_5 .*{said}.*mild reproduce fetch"):
        load_images("cifar10", tmp_path)


def test_a_batch_without_images_is_refused(tmp_path, make_cifar10, old_pickle):
    empty = {b"labels": [], b"data": np.zeros((0, 3072), np.uint8)}
    make_cifar10(tmp_path / "cifar-10-batches-py", old_pickle, test_batch=empty)
    with pytest.raises(DataFileError, match=r"test_batch .*got shape \(0, 3072\)"):
        load_images("cifar10", tmp_path)


@pytest.mark.parametrize("names", [["one"], "ten", [1] * 10])
def test_class_names_must_be_as_many_as_classes(tmp_path, make_cifar10, names):
    meta = {"batches.meta": {"label_names": names}}
    make_cifar10(tmp_path / "cifar-10-batches-py", modern, **meta)
    with pytest.raises(DataFileError, match=r"batches\.meta must have 10 class names"):
        load_images("cifar10", tmp_path)
