"""A connection to Ray: quick, or refused in a sentence."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from mild.batch import ray_connection
from mild.batch.ray_connection import connect
from mild.errors import InvalidInputError, MissingExtraError


def refuse(address):
    with connect(address):
        raise AssertionError("connected")


def test_an_address_without_a_server_is_refused_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(
        InvalidInputError, match=f"no Ray cluster answers at 127.0.0.1:{port} .*ray start"
    ):
        refuse(f"127.0.0.1:{port}")
    with pytest.raises(InvalidInputError, match="no Ray cluster answers at ray://"):
        refuse(f"ray://127.0.0.1:{port}")


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_address_of_another_server_is_refused(monkeypatch, greeting):
    monkeypatch.setattr(ray_connection, "TIMEOUT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def answer():
            wire, _ = server.accept()
            held.append(wire)
            wire.sendall(greeting)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(InvalidInputError, match="no Ray cluster answers at"):
            refuse(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
        held[0].close()


@pytest.mark.parametrize("address", ["nowhere", "host:port", "ftp://host:1", ":6379", ""])
def test_an_invalid_address_is_refused(address):
    with pytest.raises(InvalidInputError, match="address must be HOST:PORT"):
        refuse(address)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[ray\]"):
        refuse(None)


def test_importing_engines_imports_no_ray():
    code = "import mild.batch.routing, sys; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
