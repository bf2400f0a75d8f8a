"""The supervisor's books, without its processes."""

import os
import signal
import socket
import time

import pytest

from mild.gateway.server import supervisor as supervisor_module
from mild.gateway.server.supervisor import LONGEST_PAUSE, Supervisor

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")


def supervised():
    supervisor = Supervisor(1, lambda place, channel: 0, 1, 1.0, lambda: None, lambda: None)
    return supervisor, supervisor._workers[0]


def test_a_worker_that_began_before_a_reload_reloads_when_it_is_ready(monkeypatch):
    sent = []
    monkeypatch.setattr(
        supervisor_module.os, "kill", lambda pid, number: sent.append((pid, number))
    )
    supervisor, worker = supervised()
    worker.channel, theirs = socket.socketpair()
    worker.pid = 12345
    supervisor._hangups = 1
    supervisor._forward()
    assert sent == []
    theirs.send(b'{"ready": "old"}\n')
    supervisor._hear(worker)
    assert sent == [(12345, signal.SIGHUP)]
    assert worker.told["generation"] == 0
    theirs.send(b'{"reloaded": "new"}\n')
    supervisor._hear(worker)
    assert worker.told == {"reloaded": "new", "generation": 1}
    assert len(sent) == 1
    worker.channel.close()
    theirs.close()


def test_a_worker_that_dies_again_and_again_is_replaced_at_a_bounded_pace(capsys):
    supervisor, worker = supervised()
    supervisor._announced = True
    worker.started, worker.deaths = time.monotonic(), 100_000
    worker.pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], {})
    end = time.monotonic() + 10
    while worker.pid and time.monotonic() < end:
        supervisor._reap()
        time.sleep(0.01)
    assert worker.pid == 0
    assert 0 < worker.due - time.monotonic() <= LONGEST_PAUSE
    assert "(3)" in capsys.readouterr().err
