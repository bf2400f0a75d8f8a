"""Where the data sets come from: the official files, their sizes and md5 sums."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SOURCES", "UNPACKED", "RemoteFile", "Source"]


@dataclass(frozen=True)
class RemoteFile:
    """A file on the official server: its name there and here, its md5 sum and size in bytes."""

    name: str
    md5: str
    size: int


@dataclass(frozen=True)
class Source:
    """The official home of a data set.

    Attributes
    ----------
    url : folder on the server, with its last slash
    files : what must be had from there
    folder : name of the folder under the data folder that holds the data in the end; "" if none
    archive : whether the one file is an archive that unpacks into ``folder``; otherwise the files
        themselves lie in ``folder``
    """

    url: str
    files: tuple[RemoteFile, ...]
    folder: str = ""
    archive: bool = False


SOURCES = {
    "cifar10": Source(
        "https://www.cs.toronto.edu/~kriz/",
        (RemoteFile("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
        "cifar-10-batches-py",
        archive=True,
    ),
    "cifar100": Source(
        "https://www.cs.toronto.edu/~kriz/",
        (RemoteFile("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
        "cifar-100-python",
        archive=True,
    ),
    "svhn": Source(
        "http://ufldl.stanford.edu/housenumbers/",
        (
            RemoteFile("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            RemoteFile("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        ),
    ),
    "tiny-imagenet": Source(
        "http://cs231n.stanford.edu/",
        (RemoteFile("tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043),),
        "tiny-imagenet-200",
        archive=True,
    ),
    "fashion-mnist": Source(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        (
            RemoteFile(
                "train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880
            ),
            RemoteFile("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            RemoteFile("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            RemoteFile("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        # A folder of its own: the files of MNIST have the same names.
        "fashion-mnist",
    ),
}

#: md5 sum, and size where it is known, of files inside the official archives. They are told in
#: messages and not demanded: the same content pickled anew has other sums.
UNPACKED: dict[str, tuple[str, int | None]] = {
    "cifar-10-batches-py/data_batch_1": ("c99cafc152244af753f735de768cd75f", 31_035_704),
    "cifar-10-batches-py/data_batch_2": ("d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
    "cifar-10-batches-py/data_batch_3": ("54ebc095f3ab1f0389bbae665268c751", 31_035_999),
    "cifar-10-batches-py/data_batch_4": ("634d18415352ddfa80567beed471001a", 31_035_696),
    "cifar-10-batches-py/data_batch_5": ("482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
    "cifar-10-batches-py/test_batch": ("40351d587109b95175f43aff81a1287e", 31_035_526),
    "cifar-10-batches-py/batches.meta": ("5ff9c542aee3614f3951f8cda6e48888", 158),
    "cifar-100-python/train": ("16019d7e3df5f24257cddd939b257f8d", 155_249_918),
    "cifar-100-python/test": ("f0ef6b0ae62326f3e7ffdfab6717acfc", None),
    "cifar-100-python/meta": ("7973b15100ade9c7d40fb424638fde48", None),
}
