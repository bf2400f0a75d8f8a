"""A hundred thousand requests within their budget: none is refused, and every dollar is counted."""

from __future__ import annotations

import asyncio

import pytest

from mild_gateway.access import Access, AccessStore
from mild_gateway.config import AccessSettings, Settings

REQUESTS = 100_000
CLIENTS = 512


@pytest.mark.slow
def test_a_hundred_thousand_requests_with_an_ample_budget_are_not_refused(tmp_path):
    settings = Settings(
        store=str(tmp_path / "mild.sqlite"),
        access=AccessSettings(budget_day=1_000_000, budget_month=1_000_000),
    )
    access = Access(settings, AccessStore(settings.store))
    left = iter(range(REQUESTS))

    async def client(caller):
        # Each reserves far more than it costs; a refusal would end the test.
        for _ in left:
            await access.admit(caller)
            access.settle(await access.reserve(caller, 1.0), 0.5)

    async def run():
        await access.start()
        try:
            caller = access.identify(None)
            await asyncio.gather(*(client(caller) for _ in range(CLIENTS)))
        finally:
            await access.close()

    asyncio.run(run())

    async def totals():
        again = Access(settings, AccessStore(settings.store))
        await again.start()
        try:
            return again.spend()["all"]["day"]
        finally:
            await again.close()

    day = asyncio.run(totals())
    assert (day["spent"], day["held"]) == (REQUESTS * 0.5, 0.0)
