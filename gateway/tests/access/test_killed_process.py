"""The next process settles what a killed one has not written, and counts nothing twice."""

import json

import pytest

from mild_gateway.access import Access, AccessStore
from mild_gateway.access.accounts import ALL, Account, Batch, Claim, Settlement
from mild_gateway.access.periods import periods_at
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.database.spool import SETTLEMENT, Spool, spool_place

RESERVED, COST, OTHERS = 5_000, 1_200, 300
NOW = 1_700_000_000.0


def accounts():
    return [Account(ALL, period.name) for period in periods_at(NOW)]


def store_of_a_killed_process(path, *, is_settled):
    """A store with money that was held for one request, and what the spool says of it."""
    store = AccessStore(path, lambda: NOW)
    store.open()
    claim = Claim("claim", accounts(), (None, None), RESERVED)
    store.apply(Batch("first", claims=[claim]), 660.0)
    parts = [("claim", RESERVED)]
    settlements = [Settlement((), accounts(), OTHERS)]
    if is_settled:
        settlements.append(Settlement(parts, accounts(), COST))
    store.apply(Batch("second", "first", settlements=settlements), 660.0)
    store.close()
    line = json.dumps({"settlement": [parts, accounts(), COST]})
    path.with_name(f"{path.name}.spool-1").write_text(f"{line}\n")


async def run_briefly(path, **options):
    """The next process, which takes over what is in the spool."""
    spool = Spool(spool_place(None, path, None))
    access = Access(Settings(store=str(path), **options), clock=lambda: NOW, spool=spool)
    await access.start()
    spool.open({SETTLEMENT: access.take_over})
    await access.close()
    spool.close()


@pytest.mark.parametrize("is_settled", [False, True])
async def test_what_was_spent_is_counted_once(tmp_path, is_settled):
    path = tmp_path / "mild.sqlite"
    store_of_a_killed_process(path, is_settled=is_settled)
    await run_briefly(path, access=AccessSettings(budget_day=1.0))
    store = AccessStore(path, lambda: NOW)
    store.open()
    totals = store.totals([period.name for period in periods_at(NOW)])
    store.close()
    assert set(totals) == set(accounts())
    assert set(totals.values()) == {(OTHERS + COST, 0, 0)}
    assert list(tmp_path.glob("*.spool*")) == []


async def test_a_damaged_line_is_left_out(tmp_path):
    path = tmp_path / "mild.sqlite"
    lines = b'{"settlement": [1]}\n{"settlement": null}\n{"other": 1}\n[1]\nnothing\n'
    path.with_name(f"{path.name}.spool-1").write_bytes(lines)
    await run_briefly(path)
    assert list(tmp_path.glob("*.spool*")) == []
