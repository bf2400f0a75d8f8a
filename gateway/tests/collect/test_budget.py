"""The spending limit."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mild_gateway.collect.budget import Budget
from waiting import PATIENCE


@given(st.integers(0, 2**32), st.floats(0, 5))
def test_spent_and_reserved_never_pass_the_limit(seed, limit):
    rng = random.Random(seed)
    budget = Budget(limit, spent=0.5)

    async def ask():
        reserved = rng.uniform(0, 1)
        if await budget.reserve(reserved):
            assert budget.spent + budget.reserved <= max(limit, 0.5) + 1e-9
            await asyncio.sleep(0)
            await budget.settle(reserved, rng.uniform(0, reserved))

    async def everything():
        await asyncio.wait_for(asyncio.gather(*[ask() for _ in range(20)]), PATIENCE)

    asyncio.run(everything())
    assert budget.spent <= max(limit, 0.5) + 1e-9
    assert budget.reserved == pytest.approx(0, abs=1e-9)


def test_a_request_waits_for_those_in_flight_before_it_gives_up():
    async def story():
        budget = Budget(1.0)
        assert await budget.reserve(0.8)
        waiting = asyncio.create_task(budget.reserve(0.5))
        await asyncio.sleep(0)
        assert not waiting.done()
        await budget.settle(0.8, 0.1)
        assert await waiting
        assert not await budget.reserve(0.95)
        assert await budget.reserve(0.0)

    asyncio.run(story())


def test_no_limit_allows_everything():
    async def story():
        budget = Budget(None)
        assert await budget.reserve(1e9)
        await budget.settle(1e9, 1e9)
        assert await budget.reserve(1e9)

    asyncio.run(story())
