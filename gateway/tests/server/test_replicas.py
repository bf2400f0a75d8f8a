"""Two gateways on one PostgreSQL: one budget, one ledger, and a server that is killed in between."""

import asyncio
import json
import os
import time
from collections import Counter

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat
from mild_gateway.access import AccessStore
from mild_gateway.access.periods import periods_at
from process_cases import served, write_files
from waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
]

# Dollars: what a request costs at most, and costs.
EACH = 0.001
REQUESTS, CLIENTS = 600, 10


@pytest.fixture
def replicas(tmp_path, postgres):
    """Folders of two replicas that share a database; the server runs again when the test is over."""
    folders = [tmp_path / name for name in ("one", "two")]

    def write(up, extra="", workers=1):
        for folder in folders:
            folder.mkdir(exist_ok=True)
            write_files(
                folder,
                [("small", up.base_url, f"price_per_query = {EACH}")],
                extra=f'store = "{postgres.url}"\n[access]\n{extra}',
                workers=workers,
            )
            (folder / "mild.toml").chmod(0o600)
        return folders

    yield write
    if not postgres.server.is_running():
        postgres.server.start()


async def spend_all(ports, requests=REQUESTS, meanwhile=None):
    """Every request until it is answered 200 or 402; all answers that came."""
    left, answers, ended = iter(range(requests)), Counter(), Counter()

    async def client(port):
        async with Client(port) as connection:
            for _ in left:
                while True:
                    found = await connection.ask(chat())
                    answers[found.status] += 1
                    if found.status not in (429, 503):
                        break
                    await asyncio.sleep(0.05)
                ended[found.status] += 1

    work = asyncio.gather(*(client(ports[place % len(ports)]) for place in range(CLIENTS)))
    if meanwhile is not None:
        while ended[200] < requests // 4:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(meanwhile)
    await work
    return answers, ended


def spent(postgres):
    store = AccessStore(postgres.address)
    store.open()
    day = periods_at(time.time())[0].name
    total = store.totals([day])["*", day]
    store.close()
    return total


@pytest.mark.parametrize(("killed", "workers"), [(False, 2), (True, 1)])
async def test_a_budget_that_ends_half_way_is_spent_by_both_and_every_answer_has_a_row(
    replicas, postgres, killed, workers
):
    budget = REQUESTS // 2
    async with FakeUpstream() as up:
        one, two = replicas(up, f"budget_day = {budget * EACH}", workers)
        async with served(one) as a, served(two) as b:
            meanwhile = (lambda: postgres.server.restart(0.5)) if killed else None
            found = await spend_all([a.port, b.port], meanwhile=meanwhile)
            codes = await a.stop(), await b.stop()
            answers, ended, codes = *found, codes
    assert codes == (0, 0)
    assert ended == {200: budget, 402: REQUESTS - budget}
    assert set(answers) <= {200, 402, 429, 503}
    assert bool(answers[503]) == killed
    assert spent(postgres) == (round(budget * EACH * 1e9), 0, 0)
    rows = dict(postgres.query("SELECT status, count(*) FROM decisions GROUP BY status"))
    # Without the store, most are refused before their body is read, and have no row.
    assert rows.pop(503, 0) <= answers.pop(503, 0)
    assert rows == answers
    assert postgres.query("SELECT count(*) FROM processes") == [(0,)]


async def test_without_its_store_a_gateway_refuses_with_a_time_to_retry(replicas, postgres):
    async with FakeUpstream() as up:
        one, _ = replicas(up)
        async with served(one) as g:
            assert (await ask(g.port, chat())).status == 200
            await asyncio.to_thread(postgres.server.stop, "immediate")
            await until(lambda: has_line(g.port, "mild_store_trouble 1"))
            during = [await ask(g.port, chat()) for _ in range(5)]
            await asyncio.to_thread(postgres.server.start)
            await until(lambda: has_line(g.port, "mild_store_trouble 0"))
            assert (await ask(g.port, chat())).status == 200
            assert await g.stop() == 0
    assert {answer.status for answer in during} == {503}
    assert {answer.headers["retry-after"] for answer in during} == {"1"}
    assert postgres.query("SELECT count(*) FROM decisions") == [(2,)]
    assert spent(postgres).spent == round(2 * EACH * 1e9)


async def has_line(port, start):
    """Whether a line of the metrics starts so."""
    page = (await ask(port, None, "/metrics", "GET")).body.decode()
    return any(line.startswith(start) for line in page.splitlines())


async def test_requests_per_minute_hold_over_replicas(replicas, postgres):
    async with FakeUpstream() as up:
        one, two = replicas(up, "requests_per_minute = 40")
        async with served(one) as a, served(two) as b:
            found = Counter()
            for turn in range(120):
                port = (a, b)[turn % 2].port
                found[(await ask(port, chat())).status] += 1
            await asyncio.gather(a.stop(), b.stop())
    assert set(found) == {200, 429}
    assert 30 <= found[200] <= 40


async def test_both_replicas_are_on_the_page_of_each_and_the_driver_is_small(replicas, postgres):
    async with FakeUpstream() as up:
        folders = replicas(up)
        async with served(folders[0]) as a, served(folders[1]) as b:
            await ask(a.port, chat())
            await ask(b.port, chat())

            async def both_replicas():
                """The status, once it has the rows, the sums and the workers of both."""
                status = json.loads((await ask(a.port, None, "/status.json", "GET")).body)
                sums = status["spend"]["all"]["day"]["spent"]
                is_whole = len(status["workers"]) == 2 and sums >= 1.5 * EACH
                return status if is_whole and status["traffic"]["requests"] == 2 else None

            found = await until(both_replicas)
            metrics = (await ask(b.port, None, "/metrics", "GET")).body.decode()
            with open(f"/proc/{a.workers()[0]}/status", encoding="utf-8") as status:
                memory = next(line for line in status if line.startswith("VmRSS"))
            await asyncio.gather(a.stop(), b.stop())
            megabytes = int(memory.split()[1]) / 1024
    assert len(found["workers"]) == 2
    assert found["traffic"]["requests"] == 2
    assert found["troubles"] == []
    assert found["spend"]["all"]["day"]["spent"] == pytest.approx(2 * EACH)
    assert "mild_ledger_trouble 0" in metrics
    assert "mild_store_trouble 0" in metrics
    assert megabytes < 120
