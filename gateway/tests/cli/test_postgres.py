"""The verbs on a store in PostgreSQL, and what they say when there is none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from gateway_cases import priced_router
from ledger_cases import record, write_all
from mild.artifact import save
from mild.cli.app import build_app
from mild_gateway.access import AccessStore
from mild_gateway.access.keys import digest_of
from postgres_cases import PASSWORD, free_port
from waiting import PATIENCE

CONFIG = """\
router = "router"
store = "env:STORE"
port = 0
[experts.small]
base_url = "http://127.0.0.1:1/v1"
model = "s"
[experts.large]
base_url = "http://127.0.0.1:1/v1"
model = "l"
"""


@pytest.fixture
def place(tmp_path, postgres, monkeypatch):
    save(priced_router(), tmp_path / "router")
    (tmp_path / "mild.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("STORE", postgres.url)

    def run(*words):
        done = CliRunner().invoke(build_app(), list(map(str, words)))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return told(done.exit_code, done.stdout, done.stderr)

    return SimpleNamespace(run=run, folder=tmp_path, postgres=postgres)


def told(code, out, err):
    assert PASSWORD not in out + err
    assert "s3cret" not in out + err
    return SimpleNamespace(code=code, out=out, err=err)


def started(*words):
    """The command in a process of its own, which ends by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "mild", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    return told(done.returncode, done.stdout, done.stderr)


def test_keys_are_made_listed_and_revoked(place):
    made = place.run("keys", "add", "alice", "--budget-day", 5)
    assert made.code == 0, made.err
    store = AccessStore(place.postgres.address)
    store.open()
    assert store.read_keys()[0].digest == digest_of(made.out.strip(), store.salt())
    store.close()
    assert "of $5" in place.run("keys", "list", "--store", place.postgres.url).out
    assert place.run("keys", "revoke", "alice").code == 0
    assert "alice (revoked)" in place.run("keys", "list").out


def test_a_ledger_is_shown_exported_and_replayed(place):
    rows = [
        record(
            i,
            time=time.time(),
            expert="small",
            chosen="small" if i % 2 else "large",
            propensity=0.5,
            text="2 + 2 = ?",
            price=0.001,
        )
        for i in range(60)
    ]
    write_all(place.postgres.address, rows, keep_text=True)
    for ledger in ("mild.toml", place.postgres.url):
        shown = json.loads(place.run("ledger", "show", ledger, "--json").out)
        assert (shown["requests"], shown["path"]) == (60, place.postgres.address.shown)
    out = place.folder / "traffic.parquet"
    done = place.run("ledger", "export", "mild.toml", "--out", out)
    assert (done.code, pq.read_table(out).num_rows) == (0, 60), done.err
    replayed = place.run("replay", "mild.toml", "--router", "router", "--json")
    assert replayed.code == 0, replayed.err
    assert json.loads(replayed.out)["rows"] == 60


def test_check_looks_at_the_store_and_changes_nothing(place):
    done = place.run("check", "mild.toml")
    assert done.code == 0, done.err
    assert f"Store    {place.postgres.address.shown}" in done.out
    assert f"Ledger   {place.postgres.address.shown}, 30 days" in done.out
    assert "its tables are created at the first start" in done.err
    schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'mild'"
    assert place.postgres.query(schemas) == [(0,)]
    found = json.loads(place.run("check", "mild.toml", "--json").out)
    assert found["store"] == place.postgres.address.shown


def newer(postgres):
    store = AccessStore(postgres.address)
    store.open()
    store.close()
    postgres.query("UPDATE mild_schema SET number = 9999")
    return postgres.url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (lambda p: f"postgresql://mild:s3cret@127.0.0.1:{free_port()}/x", "Connection refused"),
        (lambda p: p.server.url("test", "wrong"), "password authentication failed"),
        (lambda p: p.server.url("nowhere"), 'database "nowhere" does not exist'),
        (lambda p: p.url + "?sslmod=off", "unknown option 'sslmod'"),
        (lambda p: p.url.replace("postgresql", "postgersql"), "begin with postgresql://"),
        (newer, "it was written by another version of mild (schema 9999"),
    ],
    ids=["unreachable", "password", "database", "option", "typo", "newer"],
)
def test_a_store_that_cannot_be_used_is_one_sentence_and_an_error(place, monkeypatch, url, said):
    monkeypatch.setenv("STORE", url(place.postgres))
    for done in (
        place.run("check", "mild.toml"),
        place.run("keys", "list"),
        place.run("ledger", "show", "mild.toml"),
        # One start of a server is enough: the sentence is the same.
        *([started("serve", "--config", "mild.toml")] if url is newer else []),
    ):
        assert done.code == 1
        lines = [line for line in done.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, done.err
        assert said in " ".join(done.err.split()), done.err
        assert "Traceback" not in done.err


def test_a_gateway_serves(place):
    process = subprocess.Popen(
        [sys.executable, "-m", "mild", "serve", "--config", "mild.toml"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        port = line.split("http://127.0.0.1:")[1].split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready") as answer:
            assert answer.status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert place.postgres.query("SELECT count(*) FROM processes") == [(0,)]
