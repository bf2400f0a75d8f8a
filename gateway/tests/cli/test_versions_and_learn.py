"""``mild versions`` and ``mild learn`` as they are typed."""

import asyncio
import json
import sys
import urllib.request
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

import mild as package
from gateway_cases import priced_router
from mild.artifact import load, rollback, write_version
from mild.cli.console import MildCommand
from mild.cli.versions import versions
from mild.errors import MildError
from mild_gateway.cli.learn import learn
from process_cases import served, write_files

COMMANDS = {"versions": versions, "learn": learn}
PRICES = (0.01, 0.01)


def router(*errors):
    return priced_router(("one", "two"), errors, PRICES)


@pytest.fixture
def mild(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    app = typer.Typer(pretty_exceptions_enable=False)
    for name, command in COMMANDS.items():
        app.command(name, cls=MildCommand)(command)

    def run(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return SimpleNamespace(code=result.exit_code, out=result.stdout, err=result.stderr)

    return run


@pytest.fixture
def folder(tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "router")
    write_version(place, router(0.3, 0.1), why="it is surely better", reason="better")
    return place


def test_versions_say_what_served_when_and_why(mild, folder):
    done = mild("versions", folder)
    assert done.code == 0
    for words in (
        "2 │ serves",
        "version 1 saved, as it was saved",
        "version 2 promoted, it is surely better",
    ):
        assert words in " ".join(done.out.split())
    found = json.loads(mild("versions", folder, "--json").out)
    assert (found["serving"], found["candidate"], len(found["history"])) == (2, None, 2)
    assert found == json.loads(json.dumps(package.versions(folder).as_dict()))
    write_version(folder, router(0.2, 0.1), why="not clear yet", serve=False)
    assert "3 │ candidate" in " ".join(mild("versions", folder).out.split())


def test_versions_of_a_router_that_was_only_saved(mild, tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "plain")
    assert json.loads(mild("versions", place, "--json").out)["serving"] == 1
    done = mild("versions", place, "--rollback", 1, "--json")
    assert (done.code, json.loads(done.out)["code"]) == (1, "invalid_to")
    with pytest.raises(MildError) as caught:
        rollback(place)
    assert caught.value.code == "invalid_to"


def test_rollback_without_a_gateway(mild, folder):
    found = mild("versions", folder, "--rollback", 1, "--json", "--why", "complaints")
    gateway = {"port": 6060, "reloaded": False, "error": None}
    assert json.loads(found.out) == {"folder": str(folder), "serving": 1, "gateway": gateway}
    assert package.versions(folder).history[-1].why == "complaints"
    assert load(folder).info.version == 1
    assert mild("versions", folder, "--rollback", "2").out.startswith("Version 2 of ")
    refused = mild("versions", folder, "--rollback", "7")
    assert refused.err == (
        f"error: --rollback must be one of 1, 2, the versions in {folder}; got 7.\n"
    )
    assert package.versions(folder).history[-1].why == "asked for by hand"
    assert rollback(folder).serving == 1
    assert mild("versions", folder, "--rollback", "7").code == 1


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
            done = await asyncio.to_thread(
                mild, "versions", place, "--rollback", 1, "--port", g.port, "--json"
            )
            assert json.loads(done.out)["gateway"] == {
                "port": g.port,
                "reloaded": True,
                "error": None,
            }
            assert fingerprint(g.port) == known[0]
            # A version that cannot be served: the old one stays, and this is said.
            strange = priced_router(("one", "three"), (0.1, 0.2), PRICES)
            write_version(place, strange, why="by mistake")
            words = ("--port", g.port, "--json")
            done = await asyncio.to_thread(mild, "versions", place, "--rollback", 1, *words)
            assert json.loads(done.out)["gateway"]["reloaded"]
            done = await asyncio.to_thread(mild, "versions", place, "--rollback", 3, *words)
            assert "three" in json.loads(done.out)["gateway"]["error"]
            assert "was not reloaded" in done.err
            assert fingerprint(g.port) == known[0]
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
