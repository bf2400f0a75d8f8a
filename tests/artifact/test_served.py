"""A folder in which a gateway keeps versions of a router: the one that serves is loaded."""

import json

import numpy as np
import pytest

from mild.artifact import Router, load
from mild.artifact.served import VERSIONS_FILE, VERSIONS_FOLDER
from mild.errors import OutputExistsError, RouterFileError
from mild.policies import ConstantPolicy


def router(*costs):
    return Router(ConstantPolicy(np.array(costs), 2), ["a", "b"])


@pytest.fixture
def folder(tmp_path):
    place = router(0.1, 0.5).save(tmp_path / "router")
    router(0.1, 0.5).save(place / VERSIONS_FOLDER / "0001")
    router(0.5, 0.1).save(place / VERSIONS_FOLDER / "0002")
    return place


@pytest.mark.parametrize("serving", [1, 2])
def test_the_serving_version_is_loaded(folder, serving):
    (folder / VERSIONS_FILE).write_text(json.dumps({"serving": serving}))
    assert load(folder).predict([[0.0, 0.0]]) == [serving - 1]
    assert load(folder / VERSIONS_FOLDER / "0001").predict([[0.0, 0.0]]) == [0]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"serving": "../x"}', '{"serving": 1.5}', '{"serving": 3}']
)
def test_a_damaged_pointer_is_refused(folder, content):
    (folder / VERSIONS_FILE).write_text(content)
    with pytest.raises(RouterFileError):
        load(folder)


def test_a_router_in_place_of_another_one_replaces_its_versions_too(folder):
    (folder / VERSIONS_FILE).write_text('{"serving": 1}')
    with pytest.raises(OutputExistsError):
        router(0.5, 0.1).save(folder)
    router(0.5, 0.1).save(folder, overwrite=True)
    assert load(folder).predict([[0.0, 0.0]]) == [1]
    assert not (folder / VERSIONS_FOLDER).exists()
