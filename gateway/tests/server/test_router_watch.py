"""A new version in the router's folder is taken over; a broken one is refused, and the old one serves."""

import asyncio

from fake_upstream import FakeUpstream
from gateway_cases import ask, chat, expert, gateway, priced_router
from mild.artifact import load
from mild_gateway.server.router_watch import RouterWatch, folder_state
from mild_gateway.versions import read_versions, rollback, write_version
from waiting import until

NAMES = ("small", "large")


def make_folder(tmp_path):
    return priced_router(NAMES, (0.1, 0.5)).save(tmp_path / "router")


def fingerprint(folder, version):
    return read_versions(folder)[version].fingerprint


async def test_versions_are_swapped_refused_and_rolled_back(tmp_path, caplog):
    folder = make_folder(tmp_path)
    async with FakeUpstream() as up:
        experts = [expert(name, up) for name in NAMES]
        async with gateway(experts, load(folder)) as g:
            watch = RouterWatch(g.app, folder, lambda: load(folder))
            await watch.look()
            assert g.app.metrics.value("mild_reloads_total", result="ok") == 0
            write_version(folder, priced_router(NAMES, (0.5, 0.1)), why="a test")
            await watch.look()
            assert g.app.serving.fingerprint == fingerprint(folder, 2)
            assert (await ask(g.port, chat())).headers["x-mild-expert"] == "large"
            # It names no expert that the settings have.
            write_version(folder, priced_router(("none", "other"), (0.5, 0.1)), why="a mistake")
            await watch.look()
            assert g.app.serving.fingerprint == fingerprint(folder, 2)
            assert "none" in g.app.router_trouble
            assert "the old one still serves" in caplog.text
            assert g.app.metrics.value("mild_reloads_total", result="failed") == 1
            # It is said once, not with every look.
            await watch.look()
            assert g.app.metrics.value("mild_reloads_total", result="failed") == 1
            rollback(folder, 1)
            await watch.look()
            assert g.app.serving.fingerprint == fingerprint(folder, 1)
            assert g.app.router_trouble is None


async def test_a_version_that_came_before_the_watch_began_is_taken_over(tmp_path):
    folder = make_folder(tmp_path)
    async with FakeUpstream() as up:
        async with gateway([expert(name, up) for name in NAMES], load(folder)) as g:
            write_version(folder, priced_router(NAMES, (0.5, 0.1)), why="a test")
            await RouterWatch(g.app, folder, lambda: load(folder)).look()
            assert g.app.serving.fingerprint == fingerprint(folder, 2)


async def test_a_folder_that_is_being_written_is_looked_at_again(tmp_path):
    folder = make_folder(tmp_path)
    async with FakeUpstream() as up:
        async with gateway([expert(name, up) for name in NAMES], load(folder)) as g:
            manifest = folder / "router.json"
            content = manifest.read_bytes()

            def load_while_it_is_written():
                manifest.write_bytes(content + b"\n")
                return load(folder / "none")

            watch = RouterWatch(g.app, folder, load_while_it_is_written)
            manifest.write_bytes(content[:100])
            await watch.look()
            assert g.app.router_trouble is None
            assert g.app.metrics.value("mild_reloads_total", result="failed") == 0


async def test_a_running_request_ends_with_the_router_that_it_began_with(tmp_path):
    folder = make_folder(tmp_path)
    async with FakeUpstream(held=True) as up:
        async with gateway([expert(name, up) for name in NAMES], load(folder)) as g:
            watch = RouterWatch(g.app, folder, lambda: load(folder))
            old = asyncio.create_task(ask(g.port, chat()))
            await until(lambda: up.in_flight)
            write_version(folder, priced_router(NAMES, (0.5, 0.1)), why="a test")
            await watch.look()
            up.held = False
            answers = [await old, await ask(g.port, chat())]
            await until(lambda: len(g.ledger.records) == 2)
            routers = [record.router for record in g.ledger.records]
    assert [answer.headers["x-mild-expert"] for answer in answers] == ["small", "large"]
    assert routers == [fingerprint(folder, 1), fingerprint(folder, 2)]


def test_the_state_of_a_folder_leaves_out_temporary_files(tmp_path):
    (tmp_path / "router.json").write_text("{}")
    before = folder_state(tmp_path)
    (tmp_path / ".versions.lock").write_text("")
    (tmp_path / ".router.12345678.new").mkdir()
    (tmp_path / ".router.12345678.new" / "router.json").write_text("{}")
    assert folder_state(tmp_path) == before
    (tmp_path / "router.json").write_text("{ }")
    assert folder_state(tmp_path) != before
    assert folder_state(tmp_path / "none") == frozenset()
