"""Connections need files: the limit is raised, or what is missing is said."""

import resource

import pytest

from mild_gateway.config import LimitSettings
from mild_gateway.server import process

LIMITS = LimitSettings(max_in_flight=1000)
NEEDED = 4096 + 1000 + process.SPARE_FILES
FREE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after", "warns"),
    [
        ((1024, FREE), (NEEDED, FREE), False),
        ((1024, 1_000_000), (NEEDED, 1_000_000), False),
        ((1024, 2048), (2048, 2048), True),
        ((NEEDED, NEEDED), None, False),
        ((FREE, FREE), None, False),
    ],
)
def test_the_limit_of_files_is_raised_as_far_as_it_may(before, after, warns, monkeypatch, caplog):
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    process.raise_file_limit(LIMITS)
    assert asked == ([] if after is None else [after])
    assert (str(NEEDED) in caplog.text and "2048" in caplog.text) is warns
