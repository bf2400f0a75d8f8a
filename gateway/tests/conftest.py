"""Fixtures of the gateway's tests: databases, and what both suites share."""

import functools
from types import SimpleNamespace

import pytest

import postgres_cases
from browser import browser  # noqa: F401
from command_runner import mild  # noqa: F401
from common_hooks import (  # noqa: F401
    anyio_backend,
    pytest_collection_modifyitems,
    pytest_terminal_summary,
)


@pytest.fixture(scope="session", autouse=True)
def entry_points_are_read_once():
    """To read those of all installed packages takes longer than most commands."""
    from mild.cli import extensions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extensions, "entry_points", functools.cache(extensions.entry_points))
        yield


@pytest.fixture
def no_retry(monkeypatch):
    """An expert that fails is not tried again; the next one is asked."""
    monkeypatch.setattr("mild_gateway.server.calls.RETRIES", 0)


@pytest.fixture
def short_pauses(monkeypatch):
    """Half a second without a byte ends an answer."""
    monkeypatch.setattr("mild_gateway.experts.client.IDLE_SECONDS", 0.5)


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
    from mild_gateway.database import read_address

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
