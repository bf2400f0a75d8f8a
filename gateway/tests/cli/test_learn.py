"""``mild learn`` and ``mild reload`` as they are typed."""

import asyncio
import json
import sys
import urllib.request
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace

import pytest

from gateway_cases import priced_router
from mild.artifact import load, rollback, write_version
from process_cases import served, write_files

PRICES = (0.01, 0.01)


def router(*errors):
    return priced_router(("one", "two"), errors, PRICES)


@pytest.fixture(autouse=True)
def no_gateway_of_this_user(tmp_path, monkeypatch):
    """Gateways that run on this machine, but not in the test, are not found."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def folder(tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "router")
    write_version(place, router(0.3, 0.1), why="it is surely better", reason="better")
    return place


def fingerprint(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/readiness") as answer:
        return json.load(answer)["router"]


def test_a_gateway_serves_the_version_that_it_is_told_of(mild, tmp_path):
    experts = [(name, "http://127.0.0.1:9/v1") for name in ("one", "two")]
    prices = ("price_in = 1.0", "price_out = 1.0")
    write_files(tmp_path, [(*expert, *prices) for expert in experts], router=router(0.1, 0.3))
    place = tmp_path / "router"
    write_version(place, router(0.3, 0.1), why="better")
    known = [load(place, version=n).info.fingerprint for n in (1, 2)]

    async def play():
        async with served(tmp_path) as g:
            assert fingerprint(g.port) == known[1]
            rollback(place, 1)
            done = await asyncio.to_thread(mild, "reload", "--port", g.port, "--json")
            assert (done.code, done.json()["router"]) == (0, known[0])
            assert fingerprint(g.port) == known[0]
            # A version that cannot be served: the old one stays, and this is said.
            strange = priced_router(("one", "three"), (0.1, 0.2), PRICES)
            write_version(place, strange, why="by mistake")
            done = await asyncio.to_thread(mild, "reload", "--port", g.port)
            assert done.code == 1
            assert "three" in done.err
            assert f"The old router {known[0]} stays in use." in done.err
            assert fingerprint(g.port) == known[0]
            await g.stop()

    asyncio.run(play())


def test_a_gateway_that_runs_here_takes_what_was_learned(mild, learning, tmp_path):
    write_files(
        tmp_path, [(name, "http://127.0.0.1:9/v1") for name in ("one", "two")], router(0.1, 0.3)
    )
    place = tmp_path / "router"

    async def play():
        async with served(tmp_path) as g:
            words = ("learn", place, "--ledger", "l.sqlite", "--port", g.port)
            write_version(place, router(0.3, 0.1), why="better")
            done = await asyncio.to_thread(mild, *words, "--json")
            assert done.json()["gateway"] == {"port": g.port, "reloaded": True, "error": None}
            assert fingerprint(g.port) == load(place, version=2).info.fingerprint
            said = await asyncio.to_thread(mild, *words)
            assert said.out.endswith(f" The gateway on port {g.port} uses it.\n")
            # A version that cannot be served: the old one stays, and this is said.
            write_version(place, priced_router(("one", "three"), (0.1, 0.2), PRICES), why="wrong")
            done = await asyncio.to_thread(mild, *words, "--json")
            assert "three" in done.json()["gateway"]["error"]
            assert "was not reloaded" in done.err
            assert fingerprint(g.port) == load(place, version=2).info.fingerprint
            await g.stop()

    asyncio.run(play())


@dataclass
class Learned:
    promoted: bool = True
    reason: str = "better"
    sentence: str = "The new router is surely better."
    version: int | None = 3
    left_out: dict = field(default_factory=lambda: {"without a query": 2})
    notes: tuple = ("no table of outcomes was given.",)

    def as_dict(self):
        return asdict(self)


@pytest.fixture
def learning(monkeypatch):
    """Stands for ``mild_gateway.learning.learn``; what it was called with."""
    told = SimpleNamespace(result=Learned(), calls=[])

    def call(*arguments, **options):
        told.calls.append((arguments, options))
        return told.result

    monkeypatch.setitem(sys.modules, "mild_gateway.learning.learn", SimpleNamespace(learn=call))
    return told


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (Learned(), 0),
        (Learned(False, "not_clear", "It is not clear.", None), 3),
        (Learned(False, "worse", "It is worse.", None), 3),
        (Learned(False, "too_few", "Too few.", None), 4),
    ],
)
def test_learn_prints_a_line_and_exits_with_its_code(mild, learning, folder, result, code):
    learning.result = result
    done = mild("learn", folder, "--ledger", "l.sqlite", "--json")
    assert done.code == code
    assert len(done.out.splitlines()) == 1
    found = json.loads(done.out)
    assert found["reason"] == result.reason
    assert ("gateway" in found) == result.promoted
    said = mild("learn", folder, "--ledger", "l.sqlite")
    told = " No gateway on port 6060 was reloaded." * result.promoted
    assert (said.code, said.out) == (code, f"{result.sentence}{told}\n")
    assert "2 rows left out: without a query" in said.err
    assert "no table of outcomes was given." in said.err


def test_learn_passes_its_options_on(mild, learning, folder):
    done = mild(
        "learn", folder, "--ledger", "l.sqlite", "--table", "t.parquet", "--accept", "cheaper", "--since",
        "7d", "--until", "1h", "--min-judged", 50, "--trust-feedback", "--dry-run", "--all-versions",
    )  # fmt: skip
    assert done.code == 0
    assert learning.calls == [
        (
            (folder, "l.sqlite"),
            {
                "table": "t.parquet",
                "accept": "cheaper",
                "trust_feedback": True,
                "min_judged": 50,
                "since": "7d",
                "until": "1h",
                "dry_run": True,
                "all_versions": True,
            },
        )
    ]


def test_learn_reads_the_ledger_of_the_configuration_here(mild, learning, folder):
    done = mild("learn", folder, "--port", "7070", "--json")
    assert learning.calls[0][0] == (folder, "mild.toml")
    assert json.loads(done.out)["gateway"]["port"] == 7070


def test_learn_tells_the_gateway_on_the_port_of_the_configuration(mild, learning, folder, tmp_path):
    (tmp_path / "mild.toml").write_text("port = 7171\n")
    done = mild("learn", folder, "--ledger", tmp_path / "mild.toml", "--json")
    assert json.loads(done.out)["gateway"]["port"] == 7171
    done = mild("learn", folder, "--ledger", tmp_path / "mild.toml", "--port", 7070, "--json")
    assert json.loads(done.out)["gateway"]["port"] == 7070
