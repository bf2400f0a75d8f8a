"""What a gateway that serves has imported: of a router with hashing features, NumPy and little else.

scikit-learn, SciPy, torch, pandas, pyarrow and joblib belong to fitting and to tables. Each of them would
take memory in every worker, and time at every start.
"""

import json
import os
from contextlib import AsyncExitStack

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import ask, cascade_router, chat, events, knowing, trading_router
from mild.artifact import load
from mild_gateway.versions import write_version
from process_cases import served, write_files
from waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked"),
]

PACKAGES_OF_FITS = {"sklearn", "scipy", "torch", "pandas", "pyarrow", "joblib"}
# Python runs a module of this name at its start.
SITECUSTOMIZE = """
import atexit
import os
import sys


@atexit.register
def write_names_of_imported_modules():
    with open(os.environ["IMPORTED_MODULES"], "w", encoding="utf-8") as file:
        file.write("\\n".join(sys.modules))
"""
TARGET_AND_GRADING = """
[routing]
explore = "auto"
[routing.target]
keep_quality = 0.9
[grading]
method = "rubric"
share = 1.0
expert = "large"
"""


@pytest.fixture
def imported_for_fits(tmp_path, monkeypatch):
    """A function that returns which packages of fits the last gateway had imported when it ended."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE, encoding="utf-8")
    names_file = tmp_path / "imported_modules"
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("IMPORTED_MODULES", str(names_file))

    def read_packages():
        names = names_file.read_text(encoding="utf-8").split()
        packages = {name.partition(".")[0] for name in names}
        # It is the list of a gateway that has served.
        assert "mild_gateway.server.completion" in names
        assert "numpy" in packages
        return packages & PACKAGES_OF_FITS

    return read_packages


async def get(port, path):
    answer = await ask(port, None, path, "GET")
    assert answer.status == 200
    return answer.body


async def chat_and_give_feedback(port):
    """A chat, a stream, a message, an explanation and a score."""
    answer = await ask(port, chat())
    assert answer.status == 200
    streamed = await ask(port, chat(stream=True))
    assert events(streamed.body)[-1] == "[DONE]"
    message = {"model": "mild", "max_tokens": 9, "messages": chat()["messages"]}
    assert (await ask(port, message, "/v1/messages")).status == 200
    explanation = await ask(port, chat(), "/v1/route")
    assert json.loads(explanation.body)["why"]["evidence"] is not None
    score = {"request_id": answer.headers["x-mild-request-id"], "correct": True}
    assert (await ask(port, score, "/v1/feedback")).status == 200


async def look_at_pages(port):
    assert b"<html" in await get(port, "/")
    assert json.loads(await get(port, "/status.json"))
    assert b"mild_requests_total" in await get(port, "/metrics")


async def serves(port, fingerprint):
    """Whether the gateway serves this router."""
    health = await ask(port, None, "/health", "GET")
    return json.loads(health.body)["router"] == fingerprint


async def test_a_gateway_with_a_target_needs_nothing_of_the_fits(tmp_path, imported_for_fits):
    router = knowing(trading_router())
    async with FakeUpstream() as up:
        experts = [("small", up.base_url), ("large", up.base_url)]
        write_files(tmp_path, experts, router, TARGET_AND_GRADING)
        write_version(tmp_path / "router", trading_router(), why="a candidate", serve=False)
        async with served(tmp_path) as g:
            await chat_and_give_feedback(g.port)
            other_router = knowing(trading_router(best=0.87))
            write_version(tmp_path / "router", other_router, why="a test")
            fingerprint = load(tmp_path / "router").info.fingerprint
            await until(lambda: serves(g.port, fingerprint))
            await chat_and_give_feedback(g.port)
            await look_at_pages(g.port)
            assert await g.stop() == 0
    assert imported_for_fits() == set()


async def test_a_cascade_needs_nothing_of_the_fits(tmp_path, imported_for_fits):
    answers = {"small": "4", "medium": "4", "large": "five"}
    async with AsyncExitStack() as stack:
        experts = []
        for name, text in answers.items():
            up = await stack.enter_async_context(FakeUpstream(name, text=text))
            experts.append((name, up.base_url))
        write_files(tmp_path, experts, cascade_router())
        async with served(tmp_path) as g:
            answer = await ask(g.port, chat())
            assert answer.headers["x-mild-path"] == "small,medium"
            await chat_and_give_feedback(g.port)
            await look_at_pages(g.port)
            assert await g.stop() == 0
    assert imported_for_fits() == set()
