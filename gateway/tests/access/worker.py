"""The workers of ``test_processes``, each a process that spends and writes down what it spent.

The program forks them behind its imports, which take longer than all the rest. It prints their process ids,
then each of them prints its name when it is ready, and after all have ended their exit statuses follow.

A worker spends until it is refused for good. That is when it has met the status ``last`` often enough, or
when it is told to stop, by the end of its standard input.

What it spent goes to a file before the till knows, as money at an endpoint does: a worker that is killed in
between has spent it all the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback

from mild_gateway.access import Access
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.database import is_address, read_address
from mild_gateway.refusals import Refusal

ENOUGH = 20


async def spend(name, plan):
    rng = random.Random(plan["seed"])
    limits = AccessSettings(
        budget_day=plan.get("budget_day"), requests_per_minute=plan.get("requests_per_minute")
    )
    store = plan["store"]
    place = read_address(store) if is_address(store) else store
    access = Access(Settings(store=place, workers=plan["workers"], access=limits))
    await access.start()
    book = os.open(plan["book"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    caller = access.identify(plan.get("key"))
    stop, refusals = asyncio.Event(), 0
    asyncio.get_running_loop().add_reader(sys.stdin, stop.set)

    async def client():
        nonlocal refusals
        while not stop.is_set() and refusals < ENOUGH:
            try:
                await access.admit(caller)
                most = rng.randrange(1, plan["most"])
                reservation = await access.reserve(caller, most / 1e9)
            except Refusal as refusal:
                os.write(book, b"%d 0\n" % refusal.status)
                refusals += refusal.status == plan["last"]
                await asyncio.sleep(rng.random() * 0.02)
                continue
            await asyncio.sleep(rng.random() * plan["pause"])
            cost = rng.randrange(most + 1)
            os.write(book, b"200 %d\n" % cost)
            access.settle(reservation, cost / 1e9)

    os.write(sys.stdout.fileno(), f"{name}\n".encode())
    await asyncio.gather(*(client() for _ in range(plan["clients"])))
    await access.close()


def start_worker(name, plan):
    """The id of a process that spends by this plan."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        asyncio.run(spend(name, plan))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Of the program itself, nothing is left to do here.
        os._exit(status)


def main(plans):
    pids = {name: start_worker(name, plan) for name, plan in plans.items()}
    print(json.dumps(pids), flush=True)
    statuses = {}
    for name, pid in pids.items():
        _, status = os.waitpid(pid, 0)
        statuses[name] = os.waitstatus_to_exitcode(status)
    print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
