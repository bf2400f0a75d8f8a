"""Sums that are followed agree with those that are read."""

from __future__ import annotations

from mild.gateway.access.owners import new_owner
from mild.gateway.access.sqlite import SqliteStore
from mild.gateway.access.store import AccountKey, Draw, Exchange, Report, Totals, Transacted
from mild.gateway.access.totals import follow

DAY = "2026-11-15"
ACCOUNT, OTHER = AccountKey("*", DAY), AccountKey("key:a", DAY)


def test_sums_are_followed_as_the_store_would_read_them():
    store = SqliteStore(":memory:")
    store.open()
    owner, totals = new_owner(), {}
    steps = [
        {"draws": [Draw(ACCOUNT, 100, 60, 0), Draw(OTHER, 10, 10, 0)]},
        {"reports": [Report(ACCOUNT, 25, 40, 0)]},
        {"reports": [Report(ACCOUNT, 5, 5, 0), Report(OTHER, 3, 10, 0)]},
        {"reports": [Report(OTHER, 2, 0, 2)], "draws": [Draw(ACCOUNT, 100, 200, 0)]},
    ]
    for number, step in enumerate(steps):
        asked = Exchange(owner, 1.0, number=number, **step)
        totals = follow(totals, asked, store.exchange(asked))
        assert totals == store.totals([DAY])
    assert totals == {ACCOUNT: (30, 70, 0), OTHER: (5, 0, 0)}
    store.close()


def test_sums_that_were_read_take_the_place_of_all_others():
    read = {OTHER: Totals(1, 2, 3)}
    asked = Exchange(new_owner(), 1.0, totals_of=[DAY], reports=[Report(ACCOUNT, 1, 1, 0)])
    assert follow({ACCOUNT: Totals(9, 9, 9)}, asked, Transacted(1, totals=read)) == read
