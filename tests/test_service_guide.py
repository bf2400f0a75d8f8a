"""The services of docs/guides/service.md: they route, take over new routers, and run a cascade."""

from __future__ import annotations

import asyncio
import doctest
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import mild
from cascade_cases import EASY, HARD, cascade_router
from text_router_cases import text_router
from waiting import until

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "service.md"
QUERY = "What is 17 * 23?"


def file_in_the_guide(title):
    """The code of a file that the guide shows."""
    text = GUIDE.read_text(encoding="utf-8")
    (code,) = re.findall(rf'```python title="{re.escape(title)}"\n(.*?)```', text, re.DOTALL)
    return code


def names_of(title):
    """What a file of the guide defines."""
    names = {"__name__": title}
    exec(compile(file_in_the_guide(title), title, "exec"), names)
    return names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a router, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return text_router().save("router")


async def post(app, path, body):
    """Status and JSON of the answer of an ASGI application."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": headers,
        "query_string": b"",
    }
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(answer)


async def test_the_service_in_starlette_routes(folder):
    pytest.importorskip("starlette")
    app = names_of("service.py")["app"]
    (expert,) = text_router().route([QUERY])
    assert await post(app, "/route", {"query": QUERY}) == (200, {"expert": expert})


async def test_the_service_in_fastapi_routes(folder):
    pytest.importorskip("fastapi")
    app = names_of("service_fastapi.py")["app"]
    (expert,) = text_router().route([QUERY])
    assert await post(app, "/route", {"query": QUERY}) == (200, {"expert": expert})


@pytest.fixture
def watching(folder, monkeypatch):
    """What the examples of the guide define, without their outputs."""
    pytest.importorskip("starlette")
    page = GUIDE.read_text(encoding="utf-8")
    names = {}
    for example in doctest.DocTestParser().get_examples(page):
        if example.source.startswith(("import", "from", "class", "async def", "@")):
            exec(example.source, names)
    return names


async def test_a_new_router_is_taken_over_in_the_background(folder, watching):
    serving = watching["ServingRouter"](folder)
    task = asyncio.create_task(watching["watch"](serving, seconds=0.01))
    before = serving.router
    text_router().with_prices(price_weight=500).save(folder, overwrite=True)
    await until(lambda: serving.router is not before)
    task.cancel()
    assert serving.router.info.fingerprint == mild.load(folder).info.fingerprint


async def test_a_router_that_cannot_be_read_leaves_the_old_one_serving(folder, watching):
    serving = watching["ServingRouter"](folder)
    router = serving.router
    for file in folder.iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(mild.errors.MildError):
        serving.reload()
    assert serving.router is router


async def test_the_lifespan_loads_the_router(folder, watching):
    app = watching["Starlette"]()
    async with watching["lifespan"](app):
        assert app.state.serving.router.route([QUERY]) == text_router().route([QUERY])


@contextmanager
def endpoint(answers):
    """The address of an OpenAI-compatible endpoint: the answer of each model, None for an error."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content = answers[body["model"]]
            message = {"role": "assistant", "content": content}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            completion = {"id": "1", "object": "chat.completion", "created": 0,
                          "model": body["model"], "choices": [choice]}  # fmt: skip
            reply = json.dumps(completion).encode()
            self.send_response(200 if content is not None else 400)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("answers", "accepted"),
    [
        ({"small": "391", "medium": "391"}, ("medium", "391")),
        ({"small": "391", "medium": "392", "large": "391"}, ("large", "391")),
        ({"small": None, "medium": None, "large": "391"}, ("large", "391")),
    ],
)
async def test_the_cascade_asks_the_experts_and_gives_the_accepted_answer(
    tmp_path, monkeypatch, answers, accepted
):
    openai = pytest.importorskip("openai")
    monkeypatch.chdir(tmp_path)
    cascade_router().save("router")
    names = names_of("cascade.py")
    with endpoint(answers) as address:
        for expert in names["clients"]:
            names["clients"][expert] = openai.AsyncOpenAI(base_url=address, api_key="none")
        try:
            assert await names["complete"](EASY) == accepted
        finally:
            for client in names["clients"].values():
                await client.close()


def test_threads_get_the_decisions_of_one_thread(folder):
    router = mild.load(folder)
    queries = [QUERY, HARD, "Who wrote Faust?", ""] * 50
    expected = router.route(queries)
    found = [None] * len(queries)

    def work(start):
        for row in range(start, len(queries), 8):
            (found[row],) = router.route([queries[row]])

    threads = [threading.Thread(target=work, args=(start,)) for start in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
