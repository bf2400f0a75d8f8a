"""``mild versions`` as it is typed."""

import json

import pytest

from mild import load
from mild.errors import MildError
from mild_gateway.versions import load_candidate, read_versions, rollback, write_version
from small_router_cases import priced_router


def router(*errors):
    return priced_router(("one", "two"), errors, (0.01, 0.01))


@pytest.fixture
def folder(tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "router")
    write_version(place, router(0.3, 0.1), why="it is surely better", reason="better")
    return place


def test_versions_say_what_served_when_and_why(mild, folder):
    done = mild("versions", folder)
    assert done.code == 0
    for words in (
        "2 │ serves",
        "version 1 saved, as it was saved",
        "version 2 promoted, it is surely better",
    ):
        assert words in " ".join(done.out.split())
    found = json.loads(mild("versions", folder, "--json").out)
    assert (found["serving"], found["candidate"], len(found["history"])) == (2, None, 2)
    assert found == json.loads(json.dumps(read_versions(folder).as_dict()))
    write_version(folder, router(0.2, 0.1), why="not clear yet", serve=False)
    assert "3 │ candidate" in " ".join(mild("versions", folder).out.split())


def test_versions_of_a_router_that_was_only_saved(mild, tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "plain")
    assert json.loads(mild("versions", place, "--json").out)["serving"] == 1
    done = mild("versions", place, "--rollback", 1, "--json")
    assert (done.code, json.loads(done.out)["code"]) == (1, "invalid_version")
    with pytest.raises(MildError) as caught:
        rollback(place)
    assert caught.value.code == "invalid_version"


def test_a_rollback_says_what_serves_and_how_a_gateway_takes_it(mild, folder):
    found = mild("versions", folder, "--rollback", 1, "--json", "--why", "complaints")
    assert json.loads(found.out) == {"folder": str(folder), "serving": 1}
    assert read_versions(folder).history[-1].why == "complaints"
    assert read_versions(folder).serving == 1
    assert load(folder).info.fingerprint == read_versions(folder)[1].fingerprint
    assert mild("versions", folder, "--rollback", "2").out == (
        f"Version 2 of {folder} serves. A running gateway takes it over by itself.\n"
    )
    refused = mild("versions", folder, "--rollback", "7")
    assert refused.err == (
        f"error: version must be one of 1, 2, the versions in {folder}; got 7.\n"
    )
    assert read_versions(folder).history[-1].why == "asked for by hand"
    assert rollback(folder).serving == 1
    assert mild("versions", folder, "--rollback", "7").code == 1


def test_a_candidate_can_be_dropped(mild, folder):
    number = write_version(folder, router(0.2, 0.1), why="not clear yet", serve=False)
    done = mild("versions", folder, "--drop-candidate", "--why", "nearly equal")
    assert done.out == f"Version 3 of {folder} is deleted; version 2 serves as before.\n"
    known = read_versions(folder)
    assert (known.serving, known.candidate, load_candidate(folder)) == (2, None, None)
    assert [one.version for one in known.versions] == [1, 2]
    last = known.history[-1]
    assert (last.version, last.event, last.why) == (number, "dropped", "nearly equal")
    assert not (folder / "versions" / "0003").exists()
    # Its number is not given to another version.
    assert write_version(folder, router(0.2, 0.1), why="again", serve=False) == 4
    report = json.loads(mild("versions", folder, "--drop-candidate", "--json").out)
    assert report == {"folder": str(folder), "serving": 2, "dropped": 4}
    refused = mild("versions", folder, "--drop-candidate", "--json")
    assert (refused.code, json.loads(refused.out)["code"]) == (1, "invalid_folder")


def test_a_candidate_is_not_dropped_in_a_rollback(mild, folder):
    write_version(folder, router(0.2, 0.1), why="not clear yet", serve=False)
    refused = mild("versions", folder, "--rollback", "1", "--drop-candidate")
    assert refused.code != 0
    assert "drop_candidate must be given without --rollback" in refused.err
    assert read_versions(folder).candidate == 3
