"""Fixtures of the journeys: a router, a database, a day that does not end."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from journeys import adapter
from journeys.accounts import outcomes
from journeys.processes import mild
from waiting import wait_until

# Seconds that a test takes at most on a busy machine.
LONGEST_TEST = 600


@pytest.fixture(scope="session")
def router(tmp_path_factory):
    """Folder of a saved router that always chooses ``small``, to be copied."""
    folder = tmp_path_factory.mktemp("router")
    pq.write_table(pa.table(outcomes(best="small")), folder / "log.parquet")
    mild(folder, adapter.fit("log.parquet", adapter.ROUTER, "constant", 50))
    return folder / adapter.ROUTER


@pytest.fixture(params=["sqlite", "postgres"])
def database(request):
    """Where a gateway keeps what it has to remember: None for SQLite, else an address."""
    if request.param == "sqlite":
        return None
    server = request.getfixturevalue("postgres_server")
    server.empty("journey")
    return server.url("journey")


@pytest.fixture
def whole_day():
    """Accounts are those of a day: a test that could run past midnight (UTC) begins after it."""
    wait_until(lambda: time.time() % 86_400 < 86_400 - LONGEST_TEST, patience=2 * LONGEST_TEST)
