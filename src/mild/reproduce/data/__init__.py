"""Image data sets from their official files, and where to fetch them.

>>> data = load_images("digits")
>>> data.train_images.shape, data.n_classes
((898, 8, 8, 1), 10)
"""

from mild.reproduce.data.images import ImageData
from mild.reproduce.data.people import PEOPLE, PeopleFile, check_people, read_people
from mild.reproduce.data.registry import DATASETS, Dataset, fetch_images, load_images

__all__ = [
    "DATASETS",
    "PEOPLE",
    "Dataset",
    "ImageData",
    "PeopleFile",
    "check_people",
    "fetch_images",
    "load_images",
    "read_people",
]
