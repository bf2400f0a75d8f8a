"""``mild check``: what is understood, what does not fit, and nothing secret."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from mild.artifact import load, save
from mild.cli.console import MildCommand
from mild.errors import MildError
from mild.features import HashingFeatures
from mild.features.vectors import VectorFeatures
from mild.routers import LinearRouter
from mild_gateway.cli.check import check
from mild_gateway.config import read_settings
from mild_gateway.config_checks import check_against

SECRET = "sk-never-on-a-screen"
CONFIG = """\
router = "router"
[experts.small]
base_url = "https://api.example.com/v1"
model = "tiny"
api_key_env = "SMALL_KEY"
price_in = 0.15
price_out = 0.6
[experts.large]
base_url = "http://127.0.0.1:8080/v1"
model = "big"
price_per_query = 0.01
[access]
budget_day = 20
requests_per_minute = 60
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_KEY", SECRET)
    monkeypatch.setenv("COLUMNS", "100")
    texts = [f"question {i % 7} about {i % 3}" for i in range(60)]
    features = HashingFeatures().fit(texts)
    costs = np.where(np.arange(60)[:, None] % 2 == np.arange(2), 0.1, 0.9)
    router = LinearRouter().fit(features.transform(texts), costs)
    save(router, tmp_path / "router", experts=["small", "large"], text=features)

    def run(*words, config=CONFIG, name="mild.toml"):
        (tmp_path / name).write_text(config)
        app = typer.Typer(rich_markup_mode=None)
        app.command(cls=MildCommand)(check)
        result = CliRunner().invoke(app, [str(tmp_path / name), *map(str, words)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert SECRET not in result.output
        return SimpleNamespace(
            code=result.exit_code,
            out=result.stdout.replace(str(tmp_path), "."),
            err=result.stderr.replace(str(tmp_path), "."),
        )

    return SimpleNamespace(run=run, folder=tmp_path)


def test_what_was_understood_fits_one_screen(place):
    done = place.run()
    assert done.code == 0
    for words in (
        "small",
        "https://api.example.com/v1",
        "variable SMALL_KEY",
        "0.15",
        "0.01 each",
        "Router   ./router, trained on small, large",
        "Listens  http://127.0.0.1:6060, 1 worker",
        "Access   no key is required, $20 per day, 60 requests per minute and key",
        "Store    ./mild.sqlite; while it is unavailable, requests are refused",
        "Ledger   ./ledger.sqlite, 30 days",
    ):
        assert words in done.out
    assert len((done.out + done.err).splitlines()) <= 24


def test_traces_are_named_and_their_extra_is_missed(place, monkeypatch):
    config = CONFIG + '[tracing]\nendpoint = "http://127.0.0.1:4318/v1/traces"\n'
    assert "Traces   http://127.0.0.1:4318/v1/traces" in place.run(config=config).out
    assert "Traces" not in place.run().out
    name = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, name, None)
    done = place.run("--json", config=config)
    assert done.code == 1
    result = json.loads(done.out)
    assert result["tracing"] is True
    assert "gateway[otel]" in result["findings"][0]["text"]


def test_a_mismatch_with_the_router_ends_with_1_and_names_it(place):
    config = CONFIG.replace("experts.small", "experts.smal").replace("experts.large", "experts.big")
    done = place.run(config=config)
    assert done.code == 1
    assert done.err.count("error: ") == 1
    assert "must have an endpoint for at least one expert of the router (small, large)" in done.err
    assert "Is 'small' the one called 'smal' (./mild.toml, line 2)?" in done.err
    assert "Listens" in done.out


def test_a_mistake_in_the_file_is_one_line_with_its_line(place):
    done = place.run(config=CONFIG.replace("price_out", "price_uot"))
    assert done.code == 1
    assert done.err == (
        "error: ./mild.toml, line 7: experts.small.price_uot is unknown; did you mean price_out?\n"
    )
    assert done.out == ""


def test_as_json_it_is_one_document(place):
    done = place.run("--json")
    result = json.loads(done.out)
    assert result["ok"] is True
    assert result["experts"]["small"]["key"] == "the variable SMALL_KEY"
    assert result["router_experts"] == ["small", "large"]
    assert (result["experts"]["large"]["role"], result["experts"]["large"]["context"]) == (
        "routed",
        None,
    )
    assert {finding["kind"] for finding in result["findings"]} <= {"warning", "note"}


def test_without_a_router_the_file_alone_is_checked(place):
    done = place.run(config=CONFIG.replace('router = "router"\n', ""))
    assert done.code == 0
    assert "no router is given" in done.err
    named = place.run(
        "--router", place.folder / "router", config=CONFIG.replace('router = "router"\n', "")
    )
    assert "trained on small, large" in named.out


def test_a_router_that_is_not_there_is_named(place):
    done = place.run("--router", place.folder / "none")
    assert done.code == 1
    assert "none" in done.err


def test_two_efforts_of_one_model_are_told_apart(place):
    config = CONFIG.replace('model = "big"', 'model = "big"\nextra = { reasoning_effort = "high" }')
    assert '"high"' in place.run(config=config).out
    found = json.loads(place.run("--json", config=config).out)["experts"]
    assert found["large"]["extra"] == {"reasoning_effort": "high"}
    assert (found["small"]["extra"], found["small"]["system"]) == ({}, None)


def test_a_router_of_vectors_is_refused_as_it_is_by_the_server(place, tmp_path):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 4))
    costs = np.where(vectors[:, :1] > 0, [[0.1, 0.9]], [[0.9, 0.1]])
    features = VectorFeatures().fit(vectors)
    router = LinearRouter().fit(features.transform(vectors), costs)
    save(router, tmp_path / "vectors", experts=["small", "large"], text=features)
    found = place.run("--router", tmp_path / "vectors")
    assert found.code == 1
    assert "must read texts, but it was fitted on vectors" in found.err
    settings = read_settings(tmp_path / "mild.toml")
    with pytest.raises(MildError, match="fitted on vectors"):
        check_against(settings, load(tmp_path / "vectors"))
