"""The gateway in processes of its own: workers, signals, new versions of the router."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import Client, ask, chat, priced_router, request_bytes
from mild.artifact import load
from mild_gateway.versions import rollback, write_version
from process_cases import served, write_files
from waiting import PATIENCE, PAUSE_BETWEEN_REQUESTS, until

pytestmark = pytest.mark.slow


def ledger_rows(folder):
    with sqlite3.connect(folder / "ledger.sqlite") as connection:
        (count,) = connection.execute("SELECT count(*) FROM decisions").fetchone()
    connection.close()
    return count


async def metrics(port):
    return (await ask(port, None, "/metrics", "GET")).body.decode()


def answers_of(page):
    """How many requests the metrics count that were answered."""
    lines = [line for line in page.splitlines() if line.startswith("mild_requests_total")]
    return sum(float(line.split()[-1]) for line in lines if '"ok"' in line)


async def counted(port, count):
    """The metrics, once they count so many answers: that is after their last bytes are sent."""

    async def look():
        page = await metrics(port)
        is_idle = "mild_in_flight 0.0" in page
        return page if answers_of(page) >= count and is_idle else None

    return await until(look, pause=PAUSE_BETWEEN_REQUESTS)


async def test_it_serves_drains_and_leaves_nothing_behind(tmp_path):
    async with FakeUpstream(delay=0.3) as up:
        write_files(tmp_path, [("small", up.base_url)])
        async with served(tmp_path) as g:
            task = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.in_flight)
            code = await g.stop()
            found = await task
    assert (found.status, found.whole, code) == (200, True, 0)
    assert ledger_rows(tmp_path) == 1


async def test_the_worker_holds_nothing_heavy(tmp_path):
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url)])
        async with served(tmp_path) as g:
            assert (await ask(g.port, chat())).status == 200
            assert (await ask(g.port, chat(), "/v1/route")).status == 200
            assert (await ask(g.port, None, "/", "GET")).status == 200
            assert (await ask(g.port, None, "/status.json", "GET")).status == 200
            (worker,) = g.workers()
            with open(f"/proc/{worker}/maps", encoding="utf-8") as maps:
                loaded = maps.read()
            with open(f"/proc/{worker}/status", encoding="utf-8") as status:
                memory = next(line for line in status if line.startswith("VmRSS"))
            await g.stop()
            megabytes = int(memory.split()[1]) / 1024
    for package in ("torch", "scipy", "sklearn", "pyarrow", "pandas"):
        assert f"/{package}/" not in loaded, package
    assert megabytes < 120


async def test_a_worker_imports_no_more_than_it_needs():
    code = (
        "import sys, mild_gateway.server.app, mild_gateway.server.process, mild.artifact.explanation;"
        "print([name for name in ('torch', 'sklearn', 'scipy', 'pyarrow', 'pandas', 'typer',"
        " 'rich') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0].strip() == b"[]"


def test_a_start_collects_no_garbage(tmp_path):
    code = """
import gc, json, runpy
from mild_gateway.server import worker
start = worker.start_worker
def start_worker(*parts):
    during = gc.isenabled()
    start(*parts)
    print(json.dumps([during, gc.isenabled(), gc.get_freeze_count() > 0]), flush=True)
    raise SystemExit(0)
worker.start_worker = start_worker
runpy.run_module("mild_gateway.server", run_name="__main__")
"""
    write_files(tmp_path, [("small", "http://127.0.0.1:9/v1")])
    options = json.dumps({"config": str(tmp_path / "mild.toml")})
    command = [sys.executable, "-c", code, options]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert json.loads(done.stdout.splitlines()[-1]) == [False, True, True]


async def test_several_workers_share_one_port_metrics_and_the_ledger(tmp_path):
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url), ("large", up.base_url)], workers=3)
        async with served(tmp_path) as g:
            await until(lambda: with_workers(g.port, 3), pause=PAUSE_BETWEEN_REQUESTS)
            assert len(g.workers()) == 3
            found = [await ask(g.port, chat()) for _ in range(60)]
            await counted(g.port, 60)
            pages = [await metrics(g.port) for _ in range(5)]
            code = await g.stop()
    assert ({answer.status for answer in found}, code) == ({200}, 0)
    for page in pages:
        assert answers_of(page) == 60
        assert "mild_workers 3.0" in page.splitlines()
    assert ledger_rows(tmp_path) == 60


async def test_a_dead_worker_is_replaced_and_its_counts_stay(tmp_path):
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            await ask(g.port, chat())
            await counted(g.port, 1)
            first = g.workers()
            for pid in first:
                os.kill(pid, signal.SIGKILL)
            await until(lambda: len(g.workers()) == 2 and not set(first) & set(g.workers()))
            found = await asyncio.wait_for(ask(g.port, chat()), PATIENCE)
            page = await counted(g.port, 2)
            await g.stop()
    assert found.status == 200
    assert 'mild_requests_total{expert="small",outcome="ok"} 2.0' in page.splitlines()


async def test_one_killed_worker_is_replaced_while_the_other_serves(tmp_path):
    """Its gauges are gone with it, and its counters stay."""
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            await until(lambda: with_workers(g.port, 2), pause=PAUSE_BETWEEN_REQUESTS)
            killed, other = g.workers()
            found = [await ask(g.port, chat()) for _ in range(4)]
            await counted(g.port, 4)
            os.kill(killed, signal.SIGKILL)
            async with asyncio.timeout(PATIENCE):
                while killed in g.workers() or len(g.workers()) < 2:
                    found.append(await ask(g.port, chat()))
            await until(lambda: with_workers(g.port, 2), pause=PAUSE_BETWEEN_REQUESTS)
            page = await counted(g.port, len(found))
            stayed = other in g.workers()
            code = await g.stop()
    assert {answer.status for answer in found} == {200}
    assert (stayed, code) == (True, 0)
    assert answers_of(page) == len(found)


async def with_workers(port, count):
    """Whether the metrics know so many workers."""
    return f"mild_workers {count:.1f}" in (await metrics(port)).splitlines()


async def test_a_worker_that_cannot_start_ends_the_gateway_with_its_reason(tmp_path):
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            await until(lambda: with_workers(g.port, 2), pause=PAUSE_BETWEEN_REQUESTS)
            file = tmp_path / "mild.toml"
            file.write_text(file.read_text().replace("base_url", "no_url"))
            os.kill(g.workers()[0], signal.SIGKILL)
            code = await asyncio.wait_for(g.process.wait(), PATIENCE)
            said = (await g.process.stderr.read()).decode()
    assert code == 1
    assert "error: " in said
    assert "base_url" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("workers", [1, 2])
def test_a_store_that_cannot_be_used_is_said_in_one_line(tmp_path, workers):
    write_files(
        tmp_path,
        [("small", "http://127.0.0.1:9/v1")],
        workers=workers,
        extra='store = "none/x.sqlite"',
    )

    async def run():
        async with served(tmp_path):
            pass

    with pytest.raises(RuntimeError, match=r"exit 1: error: .*x\.sqlite") as caught:
        asyncio.run(run())
    assert "Traceback" not in str(caught.value)


async def test_workers_end_when_their_supervisor_is_killed(tmp_path):
    async with FakeUpstream() as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            workers = g.workers()
            g.process.kill()
            await g.process.wait()
            await until(lambda: not any(map(is_alive, workers)))


async def test_after_a_kill_the_next_gateway_starts_though_an_old_worker_still_ends(tmp_path):
    async with FakeUpstream(delay=3600.0) as up:
        extra = "[limits]\ndrain_seconds = 3600"
        write_files(tmp_path, [("small", up.base_url)], workers=2, extra=extra)
        async with served(tmp_path) as g:
            task = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.asked)
            workers = g.workers()
            g.process.kill()
            # Its end, not that of its pipes, which the worker holds, too.
            await until(lambda: not is_alive(g.process.pid) and not is_open(g.port))
            up.delay = 0.0
            try:
                async with served(tmp_path, port=g.port) as again:
                    found = await ask(again.port, chat())
                    assert any(map(is_alive, workers))
            finally:
                for worker in workers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)
                await asyncio.wait([task])
                task.exception()
            assert found.status == 200


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_open(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def serving(port):
    """The routers of the workers, as the dashboard shows them, and what is wrong."""
    status = json.loads((await ask(port, None, "/status.json", "GET")).body)
    return {worker["router"] for worker in status["workers"]}, status["troubles"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_new_version_in_the_folder_serves_in_every_worker_and_a_broken_one_does_not(
    tmp_path, workers
):
    names = ("small", "large")
    async with FakeUpstream(delay=0.01) as up:
        experts = [(name, up.base_url) for name in names]
        write_files(tmp_path, experts, priced_router(names, (0.1, 0.5)), workers=workers)
        async with served(tmp_path) as g:
            stop = False
            answers = []

            async def press():
                while not stop:
                    answers.append(await ask(g.port, chat()))

            tasks = [asyncio.create_task(press()) for _ in range(3)]
            await until(lambda: len(answers) >= 20)
            before, _ = await serving(g.port)
            folder = tmp_path / "router"
            write_version(folder, priced_router(names, (0.5, 0.1)), why="a test")
            new = load(folder).info.fingerprint

            async def is_new():
                return (await serving(g.port))[0] == {new}

            await until(is_new, pause=PAUSE_BETWEEN_REQUESTS)
            after = [(await ask(g.port, chat())).headers["x-mild-expert"] for _ in range(8)]
            (folder / "versions" / "0002" / "router.json").write_text("{}")

            async def is_refused():
                troubles = (await serving(g.port))[1]
                return [text for text in troubles if "router.json" in text]

            (trouble,) = await until(is_refused, pause=PAUSE_BETWEEN_REQUESTS)
            page = await metrics(g.port)
            routers, _ = await serving(g.port)
            after += [(await ask(g.port, chat())).headers["x-mild-expert"] for _ in range(8)]
            rollback(folder, 1)

            async def is_old():
                return await serving(g.port) == (before, [])

            await until(is_old, pause=PAUSE_BETWEEN_REQUESTS)
            after.append((await ask(g.port, chat())).headers["x-mild-expert"])
            stop = True
            await asyncio.gather(*tasks)
            code = await g.stop()
    assert {answer.status for answer in answers} == {200}
    assert after == ["large"] * 16 + ["small"]
    assert "the old one still serves" in trouble
    assert "mild_router_trouble 1.0" in page.splitlines()
    assert (routers, code) == ({new}, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: (folder / "router" / "router.json").unlink(), "router.json is missing"),
        (lambda folder: (folder / "mild.toml").write_text("port = 'x'"), "mild.toml: "),
        (lambda folder: (folder / "mild.toml").unlink(), "mild.toml"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(tmp_path, change, says):
    write_files(tmp_path, [("small", "http://127.0.0.1:9/v1")])
    change(tmp_path)

    async def run():
        async with served(tmp_path):
            pass

    with pytest.raises(RuntimeError, match=f"exit 1: error: .*{says}") as caught:
        asyncio.run(run())
    assert "Traceback" not in str(caught.value)


def test_a_port_that_is_taken_is_named(tmp_path):
    async def run():
        async with FakeUpstream() as up:
            write_files(tmp_path, [("small", up.base_url)], port=up.port)
            async with served(tmp_path):
                pass

    with pytest.raises(RuntimeError, match=r"must be able to listen on .*--port"):
        asyncio.run(run())


def test_an_address_that_is_not_ours_is_named(tmp_path):
    async def run():
        write_files(tmp_path, [("small", "http://127.0.0.1:9/v1")])
        async with served(tmp_path, host="203.0.113.7"):
            pass

    with pytest.raises(RuntimeError, match=r"must be able to listen on 203.0.113.7:0; .*--host"):
        asyncio.run(run())


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_ctrl_c_ends_requests_at_once_and_their_rows_are_written(tmp_path, workers):
    async with FakeUpstream(delay=3600.0) as up:
        extra = "[limits]\ndrain_seconds = 3600"
        write_files(tmp_path, [("small", up.base_url)], workers=workers, extra=extra)
        async with served(tmp_path) as g:
            tasks = [asyncio.create_task(ask(g.port, chat())) for _ in range(3)]
            await until(lambda: up.in_flight == 3)

            def interrupt():
                for pid in {*g.workers(), g.process.pid}:
                    os.kill(pid, signal.SIGINT)

            interrupt()
            await until(lambda: not is_open(g.port))
            # The first waits for running requests.
            waited = up.in_flight
            interrupt()
            # The experts, and the end of the first signal's patience, are an hour away.
            code = await asyncio.wait_for(g.process.wait(), PATIENCE)
            await asyncio.gather(*tasks, return_exceptions=True)
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        found = connection.execute("SELECT outcome FROM decisions").fetchall()
    connection.close()
    assert (waited, code, found) == (3, 0, [("cancelled",)] * 3)


async def test_several_sigterms_are_one(tmp_path):
    """Some service managers send it to every process, and the parent passes it on."""
    async with FakeUpstream(delay=1.0) as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            task = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.in_flight)
            for pid in (*g.workers(), g.process.pid):
                os.kill(pid, signal.SIGTERM)
            found = await asyncio.wait_for(task, PATIENCE)
            code = await asyncio.wait_for(g.process.wait(), PATIENCE)
    assert (found.status, found.whole, code) == (200, True, 0)
    assert ledger_rows(tmp_path) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_end_waits_for_nobody_where_nothing_runs(tmp_path, number):
    write_files(tmp_path, [("small", "http://127.0.0.1:9/v1")])
    async with served(tmp_path) as g, Client(g.port) as kept:
        await kept.ask(None, "/health", "GET")
        g.process.send_signal(number)
        rest = await asyncio.wait_for(kept.reader.read(), PATIENCE)
        code = await asyncio.wait_for(g.process.wait(), PATIENCE)
    assert (rest, code) == (b"", 0)


async def test_ctrl_c_in_a_terminal_reaches_the_workers_once(tmp_path):
    """It goes to the whole group, and the parent passes it on: that is one signal, not two."""
    async with FakeUpstream(delay=1.0) as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            task = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.in_flight)
            for pid in (*g.workers(), g.process.pid):
                os.kill(pid, signal.SIGINT)
            found = await asyncio.wait_for(task, PATIENCE)
            code = await asyncio.wait_for(g.process.wait(), PATIENCE)
    assert (found.status, found.whole, code) == (200, True, 0)
    assert ledger_rows(tmp_path) == 1


async def test_what_outlasts_the_drain_is_cut_and_written_down(tmp_path):
    async with FakeUpstream(held=True) as up:
        write_files(tmp_path, [("small", up.base_url)], extra="[limits]\ndrain_seconds = 0.5")
        async with served(tmp_path) as g, Client(g.port) as client:
            client.send(request_bytes(chat(stream=True)))
            head = await client.reader.readuntil(b"data: ")
            start = time.monotonic()
            code = await g.stop()
            seconds = time.monotonic() - start
            rest = await client.reader.read()
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"[DONE]" not in rest
    assert not rest.endswith(b"0\r\n\r\n")
    assert code == 0
    assert seconds >= 0.5
    assert ledger_rows(tmp_path) == 1


async def test_who_comes_while_it_drains_is_refused_at_once(tmp_path):
    async with FakeUpstream(held=True) as up:
        write_files(tmp_path, [("small", up.base_url)], workers=2)
        async with served(tmp_path) as g:
            task = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.asked)
            g.process.send_signal(signal.SIGTERM)
            await until(lambda: not is_open(g.port))
            is_running = not task.done()
            up.held = False
            found = await task
            code = await g.stop()
    assert is_running
    assert (found.status, found.whole, code) == (200, True, 0)
