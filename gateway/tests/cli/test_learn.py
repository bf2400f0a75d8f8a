"""``mild learn`` as it is typed."""

import json
import sys
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace

import pytest

from gateway_cases import priced_router
from mild_gateway.versions import write_version

PRICES = (0.01, 0.01)


def router(*errors):
    return priced_router(("one", "two"), errors, PRICES)


@pytest.fixture
def folder(tmp_path):
    place = router(0.1, 0.3).save(tmp_path / "router")
    write_version(place, router(0.3, 0.1), why="it is surely better", reason="better")
    return place


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
    said = mild("learn", folder, "--ledger", "l.sqlite")
    assert (said.code, said.out) == (code, f"{result.sentence}\n")
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
    assert mild("learn", folder, "--json").code == 0
    assert learning.calls[0][0] == (folder, "mild.toml")
