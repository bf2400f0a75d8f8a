"""What tests of several rooms share."""

import signal
from types import SimpleNamespace

import pytest
from hypothesis import settings

import postgres_cases

# On a busy machine an example may take its time.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# A shell that starts us in the background has us ignore Ctrl-C, and with us all that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres_server():
    """A PostgreSQL server of our own, for the whole run."""
    if reason := postgres_cases.why_not():
        pytest.skip(reason)
    server = postgres_cases.Server()
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_server):
    """An empty database: ``url``, ``address``, ``server``, ``query(sql)``."""
    from mild.gateway.database import read_address

    name = "test"
    postgres_server.empty(name)
    url = postgres_server.url(name)

    def query(sql, *values):
        with postgres_server.connect(name) as connection:
            connection.execute("SET search_path TO mild")
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    return SimpleNamespace(url=url, address=read_address(url), server=postgres_server, query=query)


@pytest.fixture(params=["sqlite", "postgres"])
def store_place(request, tmp_path):
    """Where a store may be: a file, or a database."""
    if request.param == "sqlite":
        return str(tmp_path / "mild.sqlite")
    return request.getfixturevalue("postgres").address


@pytest.fixture(params=["sqlite", "postgres"])
def ledger_place(request, tmp_path):
    """Where a ledger may be: a file, or a database."""
    if request.param == "sqlite":
        return tmp_path / "l.db"
    return request.getfixturevalue("postgres").address
