"""The process that holds the socket and keeps the workers alive.

It is small on purpose: no thread, no event loop, nothing of the router. Workers are forked from it, so
that all of them, also those that replace a dead one, serve with the same settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mild.gateway.server.state import StateFile

__all__ = ["Supervisor"]

# The first wait before a dead worker is replaced; it doubles up to the longest.
PAUSE = 0.1
LONGEST_PAUSE = 30.0
# After so many seconds of life a worker's death is a new misfortune.
STEADY = 60.0
# Beyond the time that draining may take, before workers are killed.
GRACE = 10.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass
class Worker:
    """A place for a worker, and who holds it."""

    place: int
    pid: int = 0
    channel: socket.socket | None = None
    ready: bool = False
    started: float = 0.0
    # The reload whose router it serves at least.
    generation: int = 0
    deaths: int = 0
    due: float = 0.0
    told: dict[str, Any] = field(default_factory=dict)
    heard: bytes = b""


class Supervisor:
    """Starts workers and replaces those that die.

    Parameters
    ----------
    count : of workers
    start : runs a worker in a forked process, given its place and its channel; returns its exit status
    port : served, for the state file
    drain_seconds : that a worker may take to end
    announce : called once, when all workers are ready
    close : called when the end begins; gives up what the workers' clients connect to
    """

    def __init__(
        self,
        count: int,
        start: Callable[[int, socket.socket], int],
        port: int,
        drain_seconds: float,
        announce: Callable[[], None],
        close: Callable[[], None],
    ) -> None:
        self._workers = [Worker(place) for place in range(count)]
        self._start = start
        self._port = port
        self._drain_seconds = drain_seconds
        self._announce = announce
        self._close = close
        self._announced = False
        self._stopping = 0
        self._hangups = 0
        self._generation = 0
        self._failed = False
        self._started = time.time()

    def run(self) -> int:
        """Serve until a signal says to stop; the exit status."""
        wake_in, wake_out = os.pipe()
        for descriptor in (wake_in, wake_out):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        state = self._state = StateFile(self._port)
        self._wakers = (wake_in, wake_out)
        try:
            for worker in self._workers:
                self._fork(worker)
            while not (self._stopping or self._failed):
                self._wait(wake_in, self._until_due())
                self._reap()
                self._forward()
                self._revive()
                self._say(state)
                # Only now: whoever reads the line may look at the state.
                if not self._announced and all(worker.ready for worker in self._workers):
                    self._announced = True
                    self._announce()
            return self._end()
        finally:
            state.close()
            signal.set_wakeup_fd(-1)

    def _on_stop(self, *_: object) -> None:
        self._stopping += 1

    def _on_hangup(self, *_: object) -> None:
        self._hangups += 1

    def _fork(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        # A signal must not find the child with the supervisor's handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                # Ctrl-C reaches the whole group; the supervisor passes it on.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                for other in self._workers:
                    if other.channel is not None:
                        other.channel.close()
                for descriptor in self._wakers:
                    os.close(descriptor)
                self._state.leave()
                ours.close()
                theirs.setblocking(False)
                status = self._start(worker.place, theirs)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                # Nothing of the supervisor's may run in its child.
                os._exit(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        ours.setblocking(False)
        worker.pid, worker.channel, worker.ready = pid, ours, False
        worker.started, worker.heard = time.monotonic(), b""
        worker.generation = self._generation

    def _wait(self, wake: int, seconds: float) -> None:
        known = {
            worker.channel.fileno(): worker
            for worker in self._workers
            if worker.channel is not None
        }
        ready, _, _ = select.select([wake, *known], [], [], seconds)
        for one in ready:
            if one == wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 4096)
            else:
                self._hear(known[one])

    def _hear(self, worker: Worker) -> None:
        assert worker.channel is not None
        try:
            data = worker.channel.recv(65_536)
        except (BlockingIOError, ConnectionError):
            return
        if not data:
            worker.channel.close()
            worker.channel = None
            return
        *lines, worker.heard = (worker.heard + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "ready" in message:
                worker.ready = True
                if worker.generation < self._generation and worker.pid:
                    # It may have read the router before it was to be read again.
                    os.kill(worker.pid, signal.SIGHUP)
            else:
                worker.generation = self._generation
            worker.told = {**message, "generation": worker.generation}

    def _reap(self) -> None:
        for worker in self._workers:
            if not worker.pid:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid == 0:
                continue
            lived = time.monotonic() - worker.started
            worker.pid = 0
            if worker.channel is not None:
                self._hear(worker)
            if worker.channel is not None:
                worker.channel.close()
                worker.channel = None
            if not self._announced and not worker.ready:
                # What fails at the first start fails again: say it and end.
                self._failed = True
                return
            worker.deaths = 0 if lived > STEADY else worker.deaths + 1
            pause = min(PAUSE * 2 ** min(max(worker.deaths - 1, 0), 30), LONGEST_PAUSE)
            worker.due = time.monotonic() + pause
            how = os.waitstatus_to_exitcode(status)
            print(
                f"warning: worker {worker.place} ended ({how}); another starts in {pause:.1f} s",
                file=sys.stderr,
                flush=True,
            )

    def _forward(self) -> None:
        if self._hangups:
            self._hangups = 0
            self._generation += 1
            for worker in self._workers:
                if worker.pid and worker.ready:
                    os.kill(worker.pid, signal.SIGHUP)

    def _revive(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if not worker.pid and now >= worker.due and not (self._failed or self._stopping):
                self._fork(worker)

    def _until_due(self) -> float:
        waits = [worker.due - time.monotonic() for worker in self._workers if not worker.pid]
        return max(0.0, min([*waits, 60.0]))

    def _say(self, state: StateFile) -> None:
        state.write(
            {
                "pid": os.getpid(),
                "port": self._port,
                "started": self._started,
                "generation": self._generation,
                "workers": [{**worker.told, "ready": worker.ready} for worker in self._workers],
            }
        )

    def _end(self) -> int:
        """Let the workers drain; kill those that do not end."""
        # Who comes now would wait in line for nobody.
        self._close()
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, signal.SIGTERM)
        end = time.monotonic() + self._drain_seconds + GRACE
        asked = self._stopping
        while any(worker.pid for worker in self._workers):
            if time.monotonic() > end or self._stopping > asked:
                for worker in self._workers:
                    if worker.pid:
                        os.kill(worker.pid, signal.SIGKILL)
            for worker in self._workers:
                if worker.pid and os.waitpid(worker.pid, os.WNOHANG)[0]:
                    worker.pid = 0
            time.sleep(0.01)
        return 1 if self._failed else 0
