"""``mild collect``: from questions and experts to a table, whatever happens on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pyarrow.parquet as parquet
import pytest

from fake_endpoint import FakeEndpoint
from waiting import PATIENCE, wait_until

pytest.importorskip("aiohttp")

SECRET = "sk-0123456789-secret"


def number_of(prompt):
    return prompt.split()[2].rstrip("?")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with questions, and a way to write the file of experts."""
    monkeypatch.setenv("SMALL_KEY", SECRET)
    rows = [{"query": f"What is {i}?", "answer": i, "subject": f"s{i % 3}"} for i in range(60)]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join(map(json.dumps, rows)) + "\n")
    experts = tmp_path / "experts.toml"

    def write(*endpoints, **settings):
        usual = {"model": "tiny", "api_key_env": "SMALL_KEY"}
        text = ""
        for name, endpoint in zip(("small", "large"), endpoints, strict=False):
            text += f'[experts.{name}]\nbase_url = "{endpoint.base_url}"\n'
            text += "".join(f"{k} = {json.dumps(v)}\n" for k, v in (usual | settings).items())
        experts.write_text(text)

    def start(*words):
        command = [sys.executable, "-m", "mild", "collect", str(questions), str(experts)]
        return subprocess.Popen(
            [*command, "--out", str(tmp_path / "t.parquet"), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    words = ["collect", questions, experts, "--out", tmp_path / "t.parquet"]
    return SimpleNamespace(
        folder=tmp_path, write=write, words=words, start=start, table=tmp_path / "t.parquet",
        questions=questions, experts=experts,
    )  # fmt: skip


def wait_for(endpoint, count):
    wait_until(lambda: len(endpoint.requests) >= count)


def read_to(process, words):
    """What a process says up to the line with these words."""
    said = ""
    while words not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_a_table_and_a_summary_come_out(mild, place):
    with FakeEndpoint(answer=number_of) as small, FakeEndpoint(answer=lambda _: "7") as large:
        place.write(small, large, price_in=100.0, price_out=100.0)
        done = mild(*place.words, "--json")
    assert done.code == 0, done.err
    assert "note: 60 questions, scored as numeric (every answer is a number)" in done.err
    result = done.json()
    assert result["experts"]["small"]["accuracy"] == 1
    assert result["experts"]["large"]["accuracy"] == pytest.approx(1 / 60)
    assert result["experts"]["small"]["answered"] == 60
    assert result["spent"] == pytest.approx(120 * 12 * 100 / 1e6)
    table = parquet.read_table(place.table)
    assert table.num_rows == 60
    assert table["subject"].to_pylist()[:3] == ["s0", "s1", "s2"]
    assert set(table["correct__small"].to_pylist()) == {1}
    assert table["cost__large"].to_pylist() == pytest.approx([12 * 100 / 1e6] * 60)
    assert min(table["latency_ms__small"].to_pylist()) > 0


def test_the_summary_for_people_shows_experts_spending_and_where_things_are(mild, place):
    with FakeEndpoint(answer=number_of) as small:
        place.write(small, price_per_query=0.01)
        done = mild(*place.words, "--limit", 5)
    assert done.code == 0, done.err
    assert "the first 5 of 60 questions, scored as numeric" in done.err
    assert "$0.0500" in done.out
    assert "Spent $0.0500 in this run." in done.out
    assert "t.ledger.sqlite" in done.out
    assert len(small.requests) == 5


def test_experts_are_chosen_and_a_dry_run_asks_nothing(mild, place):
    with FakeEndpoint() as small, FakeEndpoint() as large:
        place.write(small, large, price_out=1e6, max_tokens=10)
        plan = mild(*place.words, "--dry-run", "--json").json()
        assert plan["experts"]["small"] == {"to_ask": 60, "known": 0, "cost_at_most": 600.0}
        assert not place.table.exists()
        assert "$600.0000" in mild(*place.words, "--dry-run").out
        assert mild(*place.words, "--experts", "large", "--limit", 3).code == 0
        assert (len(small.requests), len(large.requests)) == (0, 3)
        plan = mild(*place.words, "--dry-run", "--json").json()
        assert plan["experts"]["large"] == {"to_ask": 57, "known": 3, "cost_at_most": 570.0}


def test_samples_are_an_option(mild, place):
    with FakeEndpoint() as small:
        place.write(small, price_out=1e6, max_tokens=10)
        words = [*place.words, "--limit", 2, "--samples", "small=2"]
        plan = mild(*words, "--dry-run", "--json").json()
        assert plan["experts"]["small#2"] == {"to_ask": 2, "known": 0, "cost_at_most": 20.0}
        result = mild(*words, "--json").json()
        assert list(result["experts"]) == ["small", "small#2"]
    assert set(small.asked().values()) == {2}


def test_a_killed_run_goes_on_and_only_what_was_in_flight_is_asked_twice(mild, place):
    with FakeEndpoint(answer=number_of, most_answers=20) as small:
        place.write(small, max_in_flight=4, price_per_query=0.01)
        process = place.start()
        wait_for(small, 21)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not place.table.exists()
        small.answer_all()
        result = mild(*place.words, "--json").json()
        twice = [prompt for prompt, count in small.asked().items() if count > 1]
        assert len(small.asked()) == 60
        assert max(small.asked().values()) <= 2
        assert len(twice) <= 4
        assert result["lost_in_flight"] <= 4
        assert result["lost_in_flight"] >= len(twice)
        # Never less than what the endpoint can have charged for.
        assert result["spent_by_ledger"] >= 0.01 * len(small.requests) - 1e-9
        assert result["experts"]["small"]["answered"] == 60
        assert result["experts"]["small"]["asked"] < 45


def test_killed_runs_together_stay_below_the_spending_limit(mild, place):
    with FakeEndpoint(answer=number_of, most_answers=5) as small:
        place.write(small, max_in_flight=4, price_per_query=0.01)
        for _ in range(2):
            process = place.start("--max-spend", "0.3")
            wait_for(small, small.most_answers + 1)
            process.kill()
            process.communicate()
            small.most_answers = len(small.requests) + 5
        small.answer_all()
        result = mild(*place.words, "--max-spend", "0.3", "--json").json()
        # What a killed run had reserved counts as spent, so that fewer than 30 may be asked.
        assert 20 <= len(small.requests) <= 30
        assert 0.01 * len(small.requests) - 1e-9 <= result["spent_by_ledger"] <= 0.3 + 1e-9
        assert result["experts"]["small"]["answered"] < 30


def test_ctrl_c_waits_for_what_is_in_flight_and_writes_the_table(mild, place):
    with FakeEndpoint(answer=number_of, most_answers=5) as small:
        place.write(small, max_in_flight=4)
        process = place.start()
        wait_for(small, 6)
        process.send_signal(signal.SIGINT)
        err = read_to(process, "interrupted: waiting for")
        small.answer_all()
        out, rest = process.communicate(timeout=PATIENCE)
        err += rest
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert "Written to" in out
        asked = len(small.requests)
        scores = parquet.read_table(place.table)["correct__small"].to_pylist()
        assert scores.count(1) == asked
        assert scores.count(None) == 60 - asked
        assert mild(*place.words).code == 0
        assert max(small.asked().values()) == 1


def test_a_second_ctrl_c_drops_what_is_in_flight_and_still_writes_the_table(place):
    with FakeEndpoint(answer=number_of, script=["answer"] * 4 + ["hang"] * 100) as small:
        place.write(small, max_in_flight=2, total_seconds=2 * PATIENCE)
        process = place.start()
        wait_for(small, 6)
        process.send_signal(signal.SIGINT)
        err = read_to(process, "interrupted: waiting for")
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE)
        err += rest
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert parquet.read_table(place.table)["correct__small"].to_pylist().count(1) == 4


def test_the_secret_is_sent_and_shows_up_in_no_error(mild, place):
    trouble = [
        ("status", 500, {}, f"bad key {SECRET}"),
        ("status", 400, {}, f"Authorization: Bearer {SECRET}"),
        ("body", {"error": f"{SECRET} again"}),
        ("body", {"choices": [], "echo": SECRET}),
    ]
    refuse = [("status", 401, {}, f"Incorrect API key provided: {SECRET}")]
    with FakeEndpoint(script=trouble) as small, FakeEndpoint(script=refuse) as large:
        place.write(small, large, max_in_flight=1)
        runs = [mild(*place.words), mild(*place.words, "--json")]
        process = place.start("--overwrite")
        out, err = process.communicate(timeout=PATIENCE)
    header = small.requests[0]["headers"]["Authorization"]
    assert header == f"Bearer {SECRET}"
    said = out + err + "".join(done.out + done.err for done in runs)
    assert "[secret]" in said
    files = [file for file in place.folder.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} >= {".parquet", ".sqlite"}
    for content in [said.encode(), *(file.read_bytes() for file in files)]:
        assert SECRET.encode() not in content
        assert b"0123456789-secret" not in content


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--score", "numerc"], "Did you mean 'numeric'?"),
        (["--experts", "big"], "experts must be among small; got 'big'"),
        (["--scorer", ""], "scorer must be a command"),
        (["--samples", "3"], "samples must be the name of an expert and a number"),
        (["--samples", "large=3"], "samples must name experts that are asked"),
        (["--dry-run", "--scorer", "no-such-program"], "there is no 'no-such-program'"),
        (["--max-spend", "inf"], "max_spend must be a number of at least 0; got inf"),
        (["--ledger", "{folder}/questions.jsonl"], "cannot be used as a ledger"),
    ],
)
def test_wrong_options_are_one_sentence_and_ask_nothing(mild, place, words, message):
    with FakeEndpoint() as small:
        place.write(small)
        words = [word.format(folder=place.folder) for word in words]
        done = mild(*place.words, *words)
    assert done.code == 1
    assert message in done.err
    assert small.requests == []


def test_a_dry_run_needs_no_key(mild, place, monkeypatch):
    with FakeEndpoint() as small:
        place.write(small)
        monkeypatch.delenv("SMALL_KEY")
        assert mild(*place.words, "--dry-run").code == 0
        asked = mild(*place.words)
        assert small.requests == []
    assert asked.code == 1
    assert "is not set; export it first" in asked.err
