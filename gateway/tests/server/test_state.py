"""Where a running gateway says who it is."""

import fcntl
import json
import os
import signal

import pytest

from mild_gateway.server.state import StateFile, read_state, reload_gateway, state_folder


def test_a_state_file_is_believed_only_while_its_gateway_lives(tmp_path):
    state = StateFile(1234, tmp_path)
    state.write({"pid": 1, "generation": 0})
    assert read_state(1234, tmp_path) == {"pid": 1, "generation": 0}
    with pytest.raises(ValueError, match="another gateway of yours"):
        StateFile(1234, tmp_path)
    state.close()
    (tmp_path / "1234.json").write_text(json.dumps({"pid": 1}))
    assert read_state(1234, tmp_path) is None
    with pytest.raises(ValueError, match="1234 is not"):
        reload_gateway(1234, 0.1, tmp_path)


def test_a_gateway_that_ends_while_the_next_one_starts_leaves_it_its_file(tmp_path, monkeypatch):
    old = StateFile(1234, tmp_path)

    def flock(descriptor, how):
        monkeypatch.undo()
        old.close()
        fcntl.flock(descriptor, how)

    monkeypatch.setattr("mild_gateway.server.state.fcntl.flock", flock)
    new = StateFile(1234, tmp_path)
    new.write({"pid": 1})
    assert read_state(1234, tmp_path) == {"pid": 1}
    with pytest.raises(ValueError, match="another gateway of yours"):
        StateFile(1234, tmp_path)
    new.close()


def test_a_lock_ends_with_the_gateway_though_its_workers_live(tmp_path):
    state = StateFile(1234, tmp_path)
    ready, told = os.pipe()
    worker = os.fork()
    if worker == 0:
        state.leave()
        os.write(told, b"x")
        signal.pause()
        os._exit(0)
    try:
        os.read(ready, 1)
        state.write({"pid": 1})
        # The worker's leaving is not the gateway's end,
        assert read_state(1234, tmp_path) == {"pid": 1}
        # and a gateway that is killed leaves no lock behind.
        os.close(state._descriptor)
        StateFile(1234, tmp_path).close()
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        os.close(ready)
        os.close(told)


def test_the_state_folder_is_ones_own(tmp_path):
    folder = state_folder({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)
    with pytest.raises(ValueError, match="only you can use"):
        state_folder({"XDG_RUNTIME_DIR": str(tmp_path)})


def test_a_gateway_that_was_killed_and_whose_workers_still_end_is_not_reloaded(tmp_path):
    state = StateFile(1234, tmp_path)
    dead = os.posix_spawn("/bin/sh", ["sh", "-c", "exit"], {})
    os.waitpid(dead, 0)
    state.write({"pid": dead, "workers": 1})
    with pytest.raises(ValueError, match="has been stopped"):
        reload_gateway(1234, 1.0, tmp_path)
    state.close()
