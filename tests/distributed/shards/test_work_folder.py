"""One fit at a time per router, and nothing left where nothing can be continued."""

from __future__ import annotations

from contextlib import suppress

import pytest

from mild.distributed.shards.fitting import work_folder
from mild.errors import DataFileError, OutputExistsError


def stop():
    raise KeyboardInterrupt


def test_two_fits_do_not_write_one_router(tmp_path):
    target = tmp_path / "router"
    with work_folder(target, None, {"a": 1}):
        second = work_folder(target, None, {"a": 1})
        with pytest.raises(OutputExistsError, match="another fit is about to write to"):
            second.__enter__()
        assert (tmp_path / ".router.fit").is_dir()
    assert not (tmp_path / ".router.fit").exists()


def test_bad_input_leaves_nothing(tmp_path):
    with pytest.raises(DataFileError), work_folder(tmp_path / "router", None, {}):
        raise DataFileError("cut off")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_what_the_same_fit_continues(tmp_path):
    target = tmp_path / "router"
    with suppress(KeyboardInterrupt), work_folder(target, None, {"a": 1}) as work:
        (work.evaluations / "one").write_text("1")
        (work.features / "two").write_text("2")
        stop()
    with suppress(KeyboardInterrupt), work_folder(target, None, {"a": 1}) as again:
        found = [(again.evaluations / "one").exists(), (again.features / "two").exists()]
        stop()
    assert found == [True, False]
    with work_folder(target, None, {"a": 2}) as other:
        assert list(other.evaluations.iterdir()) == []


def test_scratch_is_elsewhere(tmp_path):
    elsewhere = tmp_path / "big" / "disk"
    with work_folder(tmp_path / "router", str(elsewhere), {}) as work:
        assert work.path.parent == elsewhere
