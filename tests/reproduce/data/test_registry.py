"""The data sets by name: loaded and fetched."""

import dataclasses
import hashlib
import subprocess
import sys
import tarfile

import pytest

from mild.exceptions import DataFileError, MildWarning, OptionError
from mild.reproduce.data import DATASETS, fetch_images, load_images
from mild.reproduce.data.sources import SOURCES, UNPACKED, RemoteFile, Source


@pytest.fixture
def cifar10_source(tmp_path, server, make_cifar10):
    """A server with a small CIFAR-10, packed as the official one."""
    folder = make_cifar10(tmp_path / "made" / "cifar-10-batches-py")
    archive = tmp_path / "made" / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-py")
    content = archive.read_bytes()
    server.files[archive.name] = content
    file = RemoteFile(archive.name, hashlib.md5(content).hexdigest(), len(content))
    return Source(server.url, (file,), "cifar-10-batches-py", archive=True)


@pytest.fixture
def fashion_source(tmp_path, server, make_fashion):
    make_fashion(tmp_path / "made")
    files = []
    for path in sorted((tmp_path / "made").iterdir()):
        content = path.read_bytes()
        server.files[path.name] = content
        files.append(RemoteFile(path.name, hashlib.md5(content).hexdigest(), len(content)))
    return Source(server.url, tuple(files), "fashion-mnist")


def test_an_unknown_name_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(OptionError, match="Did you mean 'cifar10'"):
        load_images("cifar-10", tmp_path)
    with pytest.raises(OptionError, match="Did you mean 'svhn'"):
        fetch_images("svnh", tmp_path)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_every_data_set_but_the_digits_needs_a_folder(name, tmp_path):
    with pytest.raises(DataFileError, match=f"{name} needs a folder to be read from.*--data-dir"):
        load_images(name)
    with pytest.raises(DataFileError, match=f"{name} needs the file .*which is empty"):
        load_images(name, tmp_path)
    with pytest.raises(DataFileError, match="nowhere does not exist"):
        load_images(name, tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFileError, match="file is a file"):
        load_images(name, tmp_path / "file")


def test_a_folder_that_may_not_be_read_is_one_sentence(tmp_path, monkeypatch):
    def denied(place):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    small = dataclasses.replace(DATASETS["svhn"], load=denied)
    monkeypatch.setitem(DATASETS, "svhn", small)
    with pytest.raises(DataFileError, match=rf"{tmp_path} cannot be read \(Permission denied\)"):
        load_images("svhn", tmp_path)


def test_an_archive_is_fetched_and_unpacked_and_can_be_loaded(tmp_path, server, cifar10_source):
    data_dir = tmp_path / "new" / "data"
    calls = []
    home = fetch_images(
        "cifar10", data_dir, lambda *call: calls.append(call), source=cifar10_source
    )
    assert home == data_dir
    assert len(load_images("cifar10", data_dir).train_labels) == 15
    assert sorted(path.name for path in data_dir.iterdir()) == [
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
    ]
    size = cifar10_source.files[0].size
    assert calls[-1] == (size, size, "unpacking cifar-10-python.tar.gz")
    assert calls[-2] == (size, size, "cifar-10-python.tar.gz")


def test_what_is_there_is_not_fetched_again(
    tmp_path, server, cifar10_source, make_cifar10, monkeypatch
):
    make_cifar10(tmp_path / "data" / "cifar-10-batches-py", n=2)
    small = dataclasses.replace(DATASETS["cifar10"], n_train=10, n_test=2, digest=None)
    monkeypatch.setitem(DATASETS, "cifar10", small)
    fetch_images("cifar10", tmp_path / "data", source=cifar10_source)
    assert server.asked == []
    assert len(load_images("cifar10", tmp_path / "data").train_labels) == 10


def test_a_part_of_a_data_set_is_not_the_data_set(tmp_path, server, cifar10_source, make_cifar10):
    make_cifar10(tmp_path / "data" / "cifar-10-batches-py", n=2)
    fetch_images("cifar10", tmp_path / "data", source=cifar10_source)
    assert len(server.asked) == 1
    assert len(load_images("cifar10", tmp_path / "data").train_labels) == 15


def test_an_archive_placed_by_hand_is_unpacked_without_a_server(tmp_path, server, cifar10_source):
    (tmp_path / "data").mkdir()
    content = server.files["cifar-10-python.tar.gz"]
    (tmp_path / "data" / "cifar-10-python.tar.gz").write_bytes(content)
    fetch_images("cifar10", tmp_path / "data", source=cifar10_source)
    assert server.asked == []
    assert len(load_images("cifar10", tmp_path / "data").train_labels) == 15


def test_a_damaged_file_is_replaced(tmp_path, cifar10_source, make_cifar10):
    folder = make_cifar10(tmp_path / "data" / "cifar-10-batches-py")
    (folder / "data_batch_1").write_bytes(b"damaged")
    (folder / "mine").write_bytes(b"notes")
    # The folder itself may be named, as for loading.
    assert fetch_images("cifar10", folder, source=cifar10_source) == tmp_path / "data"
    assert len(load_images("cifar10", folder).train_labels) == 15
    assert (folder / "mine").read_bytes() == b"notes"


def test_a_damaged_archive_is_replaced_only_by_a_sound_one(tmp_path, server, cifar10_source):
    (tmp_path / "data").mkdir()
    archive = tmp_path / "data" / "cifar-10-python.tar.gz"
    archive.write_bytes(b"damaged")
    sound = server.files.pop(archive.name)
    with pytest.raises(DataFileError, match="where now there is another file"):
        fetch_images("cifar10", tmp_path / "data", source=cifar10_source)
    assert archive.read_bytes() == b"damaged"
    server.files[archive.name] = sound
    fetch_images("cifar10", tmp_path / "data", source=cifar10_source)
    assert archive.read_bytes() == sound


def test_files_without_an_archive_go_to_their_folder_one_by_one(tmp_path, server, fashion_source):
    lost = server.files.pop("train-labels-idx1-ubyte.gz")
    with pytest.raises(DataFileError, match="404"):
        fetch_images("fashion-mnist", tmp_path / "data", source=fashion_source)
    server.files["train-labels-idx1-ubyte.gz"] = lost
    before = len(server.asked)
    fetch_images("fashion-mnist", tmp_path / "data", source=fashion_source)
    # What had come is not asked for again: three had, the fourth had not.
    assert len(server.asked) == before + 1
    assert len(load_images("fashion-mnist", tmp_path / "data").train_labels) == 4
    assert len(list((tmp_path / "data" / "fashion-mnist").iterdir())) == 4


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, cifar10_source):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFileError, match="cannot write"):
        fetch_images("cifar10", tmp_path / "file" / "data", source=cifar10_source)


def test_digits_need_no_fetching_and_the_stand_in_has_no_source(tmp_path):
    assert fetch_images("digits", tmp_path) == tmp_path
    with pytest.raises(DataFileError, match=r"needs the file svhn_test_first5000\.npz"):
        fetch_images("svhn5000", tmp_path)
    with pytest.raises(DataFileError, match="svhn5000 has no official source"):
        fetch_images("svhn5000", tmp_path / "nowhere")


def test_sources_are_well_formed():
    assert set(SOURCES) == set(DATASETS) - {"svhn5000", "digits"}
    for source in SOURCES.values():
        assert source.url.startswith("http")
        assert source.url.endswith("/")
        assert len(source.files) == 1 or not source.archive
        assert source.folder or not source.archive
    sums = [file.md5 for source in SOURCES.values() for file in source.files]
    sums += [md5 for md5, _ in UNPACKED.values()]
    assert len(set(sums)) == len(sums)
    assert all(len(md5) == 32 and int(md5, 16) for md5 in sums)


def test_importing_the_data_sets_imports_nothing_heavy():
    code = (
        "import sys, mild.reproduce.data; "
        "print([m for m in ('torch', 'sklearn', 'scipy', 'PIL', 'pyarrow') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_altered_images_in_the_official_number_are_told_of(tmp_path, make_cifar10, monkeypatch):
    make_cifar10(tmp_path / "cifar-10-batches-py")
    part = load_images("cifar10", tmp_path)
    sizes = {"n_train": len(part.train_labels), "n_test": len(part.test_labels)}
    whole = dataclasses.replace(DATASETS["cifar10"], **sizes, digest=part.digest())
    monkeypatch.setitem(DATASETS, "cifar10", whole)
    # The right content says nothing: warnings are errors here.
    assert load_images("cifar10", tmp_path).note == ""
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(whole, digest="0" * 16))
    with pytest.warns(MildWarning, match=rf"other content \(digest {part.digest()}, not 0{{16}}\)"):
        altered = load_images("cifar10", tmp_path)
    assert altered.digest() == part.digest()


def test_a_part_of_a_data_set_is_noted_and_not_warned_of(tmp_path, make_cifar10):
    make_cifar10(tmp_path / "cifar-10-batches-py")
    assert "CIFAR-10 has 50,000 and 10,000" in load_images("cifar10", tmp_path).note
