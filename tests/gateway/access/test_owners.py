"""Who is gone: by number and start on one machine, by silence elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mild.gateway.access.owners import is_gone, new_owner

LINUX = sys.platform.startswith("linux")


def test_this_process_is_here_under_different_names():
    one, two = new_owner(), new_owner()
    assert one.name != two.name
    assert one[1:] == two[1:]
    assert not is_gone(one, 10.0, two.host)


def test_after_long_silence_anyone_is_gone():
    assert is_gone(new_owner(), 301.0, "elsewhere")


def test_of_another_machine_nobody_knows():
    assert not is_gone(new_owner()._replace(pid=2**22 + 1), 10.0, "elsewhere")


def test_a_process_that_ended_is_gone():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    owner = new_owner()
    assert is_gone(owner._replace(pid=child.pid), 0.0, owner.host)


@pytest.mark.skipif(not LINUX, reason="by /proc")
def test_a_killed_process_that_nobody_asked_for_is_gone():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = new_owner()._replace(pid=child.pid, started=0)
    assert not is_gone(owner, 0.0, owner.host)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(owner, 0.0, owner.host)
    child.communicate()


@pytest.mark.skipif(not LINUX, reason="by /proc")
def test_a_later_process_with_the_same_number_is_another_one():
    owner = new_owner()
    assert owner.started > 0
    assert is_gone(owner._replace(started=owner.started - 1), 0.0, owner.host)
