"""docs/reference/openapi.json describes the gateway as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from fake_upstream import FakeUpstream
from gateway_cases import ask, cascade_router, chat, expert, gateway, priced_router
from ledger_cases import EXPERTS
from mild_gateway.config import LedgerSettings, Settings
from mild_gateway.dashboard import Dashboard
from mild_gateway.ledger import LedgerWriter
from mild_gateway.server.endpoints import Endpoints

DOCUMENT = json.loads(
    (Path(__file__).parents[2] / "docs" / "reference" / "openapi.json").read_text("utf-8")
)
HI = {"role": "user", "content": "What is 2 + 2?"}
# A request that is served, by path; feedback needs the id of another one.
SERVED = {
    "/v1/chat/completions": chat(),
    "/v1/completions": {"model": "mild", "prompt": "What is 2 + 2?"},
    "/v1/responses": {"model": "mild", "input": "What is 2 + 2?"},
    "/v1/messages": {"model": "mild", "max_tokens": 10, "messages": [HI]},
    "/v1/messages/count_tokens": {"model": "mild", "messages": [HI]},
    "/v1/embeddings": {"model": "mild", "input": "What is 2 + 2?"},
    "/v1/route": {"messages": [HI]},
    "/v1/models": None,
    "/v1/models/{name}": None,
    "/health": None,
    "/health/live": None,
    "/health/ready": None,
    "/metrics": None,
    "/": None,
    "/status.json": None,
}


def problems(part, value):
    """What is wrong with a value by a schema of the document."""
    validator = Draft202012Validator({**part, "components": DOCUMENT["components"]})
    return [error.message for error in validator.iter_errors(value)]


def check_answer(path, method, answer):
    """An answer has the status, the headers, the type and the content that the document states."""
    responses = DOCUMENT["paths"][path][method]["responses"]
    found = responses.get(str(answer.status), responses["default"])
    if "$ref" in found:
        found = DOCUMENT["components"]["responses"][found["$ref"].rsplit("/", 1)[1]]
    kind = answer.headers["content-type"].partition(";")[0]
    schema = found["content"][kind]["schema"]
    value = json.loads(answer.body) if kind == "application/json" else answer.body.decode()
    assert problems(schema, value) == [], (path, answer.status)
    return value


def test_the_document_is_valid():
    validate(DOCUMENT)


async def test_every_path_answers_as_the_document_says(tmp_path):
    settings = LedgerSettings(tmp_path / "ledger.sqlite")
    router = priced_router()
    async with FakeUpstream() as up:
        experts = [expert("small", up, embeddings=True), expert("large", up)]
        writer = LedgerWriter(settings, EXPERTS)
        board = Dashboard(Settings(experts=tuple(experts), ledger=settings), router, ledger=writer)
        async with gateway(
            experts, router, board=board, ledger_writer=writer, ledger=settings
        ) as g:
            routes = {
                (one.path.replace(":path", ""), method.lower())
                for one in Endpoints(g.app).routes()
                for method in one.methods - {"HEAD"}
            }
            documented = {(path, m) for path, one in DOCUMENT["paths"].items() for m in one}
            assert routes == documented
            assert {path for path, _ in documented} == {*SERVED, "/v1/feedback"}
            answers = {}
            for path, body in SERVED.items():
                method = "get" if body is None else "post"
                if body is not None:
                    stated = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]
                    assert problems(stated["application/json"]["schema"], body) == []
                asked = path.replace("{name}", "small")
                answer = await ask(g.port, body, asked, method.upper())
                assert answer.status == 200, (path, answer.body)
                answers[path] = check_answer(path, method, answer), answer.headers
                # Refused: another method, and for bodies one that is none.
                wrong = "GET" if method == "post" else "POST"
                refused = await ask(g.port, {}, asked, wrong)
                assert refused.status == 405
                check_answer(path, method, refused)
                if body is not None:
                    refused = await ask(g.port, b"[]", asked)
                    assert refused.status == 400
                    assert check_answer(path, method, refused)["error"]["code"] == "invalid_body"
            named = set(DOCUMENT["components"]["headers"]) - {"x-mild-path"}
            assert named <= set(answers["/v1/chat/completions"][1])
            assert answers["/v1/messages/count_tokens"][1]["x-mild-estimate"] == "input_tokens"

            request = answers["/v1/chat/completions"][1]["x-mild-request-id"]
            schema = DOCUMENT["paths"]["/v1/feedback"]["post"]["requestBody"]["content"]
            schema = schema["application/json"]["schema"]
            for body, status in (
                ({"request_id": request, "score": 1}, 200),
                ({"request_id": request, "correct": False, "comment": "no"}, 200),
                ({"request_id": request}, 400),
                ({"request_id": request, "score": 2}, 400),
                ({"request_id": request, "score": 1, "correct": True}, 400),
            ):
                answer = await ask(g.port, body, "/v1/feedback")
                assert answer.status == status, answer.body
                assert (problems(schema, body) == []) == (status == 200)
                check_answer("/v1/feedback", "post", answer)

            for path in ("/v1/models", "/status.json", "/metrics"):
                headers = {"x_forwarded_for": "10.0.0.1"}
                if path == "/v1/models":
                    headers = {"authorization": "Bearer mild-unknown"}
                answer = await ask(g.port, None, path, "GET", **headers)
                assert answer.status == 401, (path, answer.body)
                check_answer(path, "get", answer)

            body = chat(model="large")
            answer = await ask(g.port, body, "/v1/route?probabilities=true")
            assert check_answer("/v1/route", "post", answer)["expert"] == "large"
            answer = await ask(g.port, {"messages": [HI]}, "/v1/route?probabilities=true")
            assert set(check_answer("/v1/route", "post", answer)["probabilities"]) == {
                "small",
                "large",
            }
            answer = await ask(g.port, chat(stream=True))
            assert check_answer("/v1/chat/completions", "post", answer).startswith("data: ")
            g.app.draining = True
            answer = await ask(g.port, None, "/health/ready", "GET")
            assert answer.status == 503
            assert check_answer("/health/ready", "get", answer)["reason"] == "draining"


async def test_a_cascade_answers_as_the_document_says():
    names = ("small", "medium", "large")
    async with (
        FakeUpstream(text="4") as up,
        gateway([expert(name, up) for name in names], cascade_router(names)) as g,
    ):
        decision = await ask(g.port, {"messages": [HI]}, "/v1/route")
        found = check_answer("/v1/route", "post", decision)
        assert (found["first_step"], found["expected_cost"]) == (["small", "medium"], None)
        answer = await ask(g.port, chat())
        check_answer("/v1/chat/completions", "post", answer)
        assert "x-mild-path" in answer.headers


@pytest.mark.parametrize("wrong", [{}, {"expert": "small", "why": "x", "more": 1}])
def test_a_value_that_breaks_a_schema_is_found(wrong):
    assert problems({"$ref": "#/components/schemas/NamedDecision"}, wrong) != []
