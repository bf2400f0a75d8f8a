"""A process that is killed while it ends a request leaves cost and row to the next one, or none of them."""

import subprocess
import sys
import time

import pytest

import gateway_cases
import waiting
from gateway_cases import expert, priced_router
from ledger_cases import record
from mild_gateway.config import AccessSettings, LedgerSettings, Settings
from mild_gateway.ledger import read_ledger
from mild_gateway.server.worker import make_context

RESERVED, COST = 0.5, 0.125

# Ends one request, and is killed when it calls what is named.
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from test_killed_request import end_a_request

def kill(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(end_a_request(Path({folder!r}), {owner!r}, {method!r}, kill))
"""


def context_of(folder):
    settings = Settings(
        experts=(expert("one", "http://127.0.0.1:1/v1"),),
        store=str(folder / "mild.sqlite"),
        access=AccessSettings(budget_day=1.0),
        ledger=LedgerSettings(path=folder / "ledger.sqlite"),
    )
    return make_context(settings, priced_router(("one",)))


async def end_a_request(folder, owner, method, kill):
    context = context_of(folder)
    await context.start()
    reservation = await context.access.reserve(context.access.identify(None), RESERVED)
    setattr(getattr(context, owner), method, kill)
    settlement = context.access.end_reservation(reservation, COST)
    context.settle_and_record(settlement, record(time=time.time(), price=COST))


@pytest.mark.parametrize(
    ("owner", "method", "is_kept"),
    [
        ("spool", "append", False),
        ("access", "write", True),
        ("ledger", "enqueue", True),
    ],
)
async def test_cost_and_row_are_kept_together(tmp_path, owner, method, is_kept):
    paths = [str(module.__file__).rsplit("/", 1)[0] for module in (gateway_cases, waiting)]
    paths.append(__file__.rsplit("/", 1)[0])
    script = KILLED.format(paths=paths, folder=str(tmp_path), owner=owner, method=method)
    killed = subprocess.run([sys.executable, "-c", script], check=False, stderr=subprocess.PIPE)
    assert killed.returncode == -9, killed.stderr.decode()

    context = context_of(tmp_path)
    await context.start()
    await context.stop()
    spent, rows = 0.0, []
    if is_kept:
        spent, rows = COST, ["r0"]
    assert context.access.spend()["all"]["day"]["spent"] == spent
    assert [row.request_id for row in read_ledger(tmp_path / "ledger.sqlite")] == rows
