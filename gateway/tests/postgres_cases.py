"""A PostgreSQL server of the tests' own, on loopback, in a temporary folder."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

USER = "mild"
PASSWORD = "s3cret/with@signs%"
SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
port = {port}
fsync = {fsync}
full_page_writes = off
max_connections = 60
shared_buffers = 16MB
"""


def programs():
    """Folder of ``initdb`` and ``pg_ctl``, the newest; None if they are not installed."""
    found = [os.path.dirname(path) for path in glob.glob("/usr/lib/postgresql/*/bin/initdb")]
    on_path = shutil.which("initdb")
    places = sorted(found, key=lambda path: float(path.split("/")[-2])) or (
        [os.path.dirname(on_path)] if on_path else []
    )
    return Path(places[-1]) if places else None


def why_not():
    """Why there is no server to be had; None if there is."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    return None if programs() else "PostgreSQL's initdb and pg_ctl are not installed"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Server:
    """A server that can be stopped, started again and put to sleep; it refuses to run as root."""

    def __init__(self, fsync="off"):
        self.folder = Path(tempfile.mkdtemp(prefix="mild-postgres-", dir="/tmp"))
        self.data = self.folder / "data"
        self.port = free_port()
        self._held_port = None
        self._as = {}
        if os.getuid() == 0:
            somebody = pwd.getpwnam("nobody")
            os.chown(self.folder, somebody.pw_uid, somebody.pw_gid)
            self._as = {"user": somebody.pw_uid, "group": somebody.pw_gid, "extra_groups": []}
        words = self.folder / "words"
        words.write_text(PASSWORD)
        words.chmod(0o644)
        self._run(
            "initdb", "-D", self.data, "-U", USER, f"--pwfile={words}",
            "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        with open(self.data / "postgresql.conf", "a", encoding="ascii") as file:
            file.write(SETTINGS.format(folder=self.folder, port=self.port, fsync=fsync))
        self.start()

    def start(self):
        self._release_port()
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.folder / "log", "start")

    def stop(self, how="fast"):
        self._run("pg_ctl", "-D", self.data, "-w", "-m", how, "stop")
        self._hold_port()

    def _hold_port(self):
        """Keep the port of a stopped server from other processes: nobody listens, so it refuses."""
        self._held_port = socket.socket()
        self._held_port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held_port.bind(("127.0.0.1", self.port))

    def _release_port(self):
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def restart(self, away=0.0, how="immediate"):
        self.stop(how)
        time.sleep(away)
        self.start()

    def is_running(self):
        return (self.data / "postmaster.pid").exists()

    def signal(self, number):
        """Send a signal to the server and to all of its processes."""
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        path = f"/proc/{main}/task/{main}/children"
        for pid in [main, *map(int, Path(path).read_text().split())]:
            # A process may have ended since it was listed.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def url(self, database="postgres", password=PASSWORD):
        word = quote(password, safe="")
        return f"postgresql://{USER}:{word}@127.0.0.1:{self.port}/{database}"

    def connect(self, database="postgres"):
        import psycopg

        return psycopg.connect(self.url(database), autocommit=True)

    def empty(self, name="test"):
        """A database with nothing in it; who is still connected to it is sent away."""
        with self.connect() as connection:
            if not connection.execute(
                "SELECT 1 FROM pg_database WHERE datname = %s", [name]
            ).rowcount:
                connection.execute(f"CREATE DATABASE {name}")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
        with self.connect(name) as connection:
            connection.execute("SET client_min_messages TO error")
            connection.execute("DROP SCHEMA IF EXISTS mild CASCADE")

    def close(self):
        self._release_port()
        subprocess.run(
            [programs() / "pg_ctl", "-D", self.data, "-m", "immediate", "stop"],
            cwd="/",
            capture_output=True,
            **self._as,
        )
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program, *words):
        command = [str(programs() / program), *map(str, words)]
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        # A server keeps what it inherits: a pipe would never end.
        with open(self.folder / "said", "ab") as said:
            done = subprocess.run(
                command, cwd="/", env=environment, stdout=said, stderr=said, **self._as
            )
        if done.returncode:
            raise RuntimeError(f"{program}: {(self.folder / 'said').read_text()[-2000:]}")
