"""What the guide to collecting shows works: the endpoint of a program, the file of experts, the call."""

from __future__ import annotations

import asyncio
import contextlib
import re
import textwrap
import threading
from pathlib import Path

import pytest
import uvicorn

from mild_gateway.collect.config import read_experts
from waiting import wait_until

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "collect.md"


def block(language, containing):
    """The block of code with these words."""
    text = GUIDE.read_text(encoding="utf-8")
    for code in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL):
        if containing in code:
            return code
    raise AssertionError(f"no block with {containing}")


@contextlib.contextmanager
def served(app):
    """The address of an application that is served in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()


def test_the_program_is_asked_through_its_endpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(block("python", "Starlette("), names)
    rows = ['{"query": "2 + 2?", "answer": "4"}', '{"query": "3 + 4?", "answer": "7"}']
    Path("questions.jsonl").write_text("\n".join(rows) + "\n")
    with served(names["app"]) as address:
        file = block("toml", "[experts.rules]").partition("[experts.rules]")
        experts = "".join(file[1:]).replace("http://127.0.0.1:8133/v1", address)
        Path("experts.toml").write_text(experts)
        call = textwrap.dedent(block("python", "collect_outcomes("))
        exec(call, names)
    found = names["found"]
    assert found.table.scores.tolist() == [[1.0], [0.0]]
    assert found.spent == pytest.approx(0.0002)
    assert Path("outcomes.parquet").exists()


def test_the_file_of_experts_is_read(tmp_path):
    file = tmp_path / "experts.toml"
    file.write_text(block("toml", "[experts.small]"))
    names = [expert.name for expert in read_experts(file, {"EXAMPLE_KEY": "sk-x"}).experts]
    assert names == ["small", "rules"]
