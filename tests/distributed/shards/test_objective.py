"""Evaluations that were written down are not made again, and a fit that was killed goes on."""

from __future__ import annotations

import numpy as np
import pytest

from mild.distributed.shards import fitting as module
from shard_cases import make_rows, sharded


class KilledError(Exception):
    """The driver is gone."""


@pytest.fixture
def killed_after(monkeypatch):
    """Let the driver die in the middle of an evaluation."""

    def arm(count):
        whole = module.ShardedObjective._summed

        def summed(self, W):
            if self.evaluations > count:
                raise KilledError
            return whole(self, W)

        monkeypatch.setattr(module.ShardedObjective, "_summed", summed)
        return lambda: monkeypatch.setattr(module.ShardedObjective, "_summed", whole)

    return arm


def test_a_fit_that_was_killed_goes_on_and_ends_in_the_same_bits(shards, tmp_path, killed_after):
    data = shards(make_rows(900))
    folder = tmp_path / "evaluations"
    folder.mkdir()
    expected = sharded(data.folder)
    revive = killed_after(3)
    with pytest.raises(KilledError):
        sharded(data.folder, folder_of_evaluations=folder)
    revive()
    found = sharded(data.folder, folder_of_evaluations=folder)
    assert found.remembered == 3
    assert found.evaluations == expected.evaluations > 3
    np.testing.assert_array_equal(found.model[-1].coef_, expected.model[-1].coef_)


def test_a_damaged_evaluation_is_made_again(shards, tmp_path):
    data = shards(make_rows(300))
    folder = tmp_path / "evaluations"
    folder.mkdir()
    first = sharded(data.folder, folder_of_evaluations=folder)
    files = sorted(folder.iterdir())
    files[0].write_bytes(files[0].read_bytes()[:40])
    content = bytearray(files[1].read_bytes())
    content[content.index(b"gradient.npy") + 200] ^= 1
    files[1].write_bytes(bytes(content))
    again = sharded(data.folder, folder_of_evaluations=folder)
    assert again.remembered == again.evaluations - 2
    np.testing.assert_array_equal(again.model[-1].coef_, first.model[-1].coef_)
