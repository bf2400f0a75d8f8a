"""A deadline ends its block with TimeoutError, and takes no cancellation of others for its own."""

from __future__ import annotations

import asyncio
import time

import pytest

from mild.endpoints.deadline import Deadline


async def sleeps(seconds, limit):
    with Deadline(limit) as deadline:
        await asyncio.sleep(seconds)
    return deadline.expired


async def test_what_ends_in_time_is_left_alone():
    found = await sleeps(0.0, 0.01)
    # The timer is gone: nothing is cancelled later.
    await asyncio.sleep(0.03)
    assert (found, asyncio.current_task().cancelling()) == (False, 0)


@pytest.mark.parametrize("limit", [0.01, 0.0, -1.0])
async def test_what_takes_too_long_is_ended(limit):
    deadline = Deadline(limit)
    with pytest.raises(TimeoutError), deadline:
        await asyncio.sleep(10)
    assert (deadline.expired, asyncio.current_task().cancelling()) == (True, 0)


@pytest.mark.parametrize("both", [False, True])
async def test_a_cancellation_from_outside_stays_one(both):
    task = asyncio.create_task(sleeps(10, 0.01 if both else 10))
    await asyncio.sleep(0)
    if both:
        # Both happen before the task runs again.
        asyncio.get_running_loop().call_later(0.01, task.cancel)
        await asyncio.sleep(0)
        time.sleep(0.02)
    else:
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_an_inner_deadline_does_not_end_the_outer_one():
    with Deadline(10) as outer:
        with pytest.raises(TimeoutError), Deadline(0.01):
            await asyncio.sleep(10)
        await asyncio.sleep(0)
    assert outer.expired is False
