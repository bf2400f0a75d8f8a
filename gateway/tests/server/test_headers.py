"""Headers that go around a request: its id, CORS, OPTIONS and HEAD."""

import json
import random
import re

import pytest

from gateway_cases import ask, chat, solo
from mild_gateway.config import AccessSettings, ServerSettings
from mild_gateway.server.middleware import name_request

OURS = re.compile("mild-[0-9a-f]{24}")
ORIGIN = "https://app.example.com"


async def fetch(document, path="/v1/chat/completions", method="POST", *, parts=None, **headers):
    """The answer of a gateway of its own, how often its expert was asked, and the ledger's rows."""
    async with solo(**parts or {}) as (up, g):
        found = await ask(g.port, document, path, method, **headers)
    return found, up.asked, list(g.ledger.records)


@pytest.mark.parametrize(
    ("document", "path", "method"),
    [
        (chat(), "/v1/chat/completions", "POST"),
        (chat(stream=True), "/v1/chat/completions", "POST"),
        (chat(model="none"), "/v1/chat/completions", "POST"),
        (b"{", "/v1/route", "POST"),
        (None, "/health", "GET"),
        (None, "/health", "HEAD"),
        (None, "/nowhere", "GET"),
    ],
)
async def test_an_id_is_echoed_or_made_in_answers_and_errors(document, path, method):
    given = (await fetch(document, path, method, x_request_id="a.b:c/D_e-9"))[0].headers
    assert given["x-request-id"] == "a.b:c/D_e-9"
    made = (await fetch(document, path, method))[0].headers["x-request-id"]
    assert OURS.fullmatch(made)


@pytest.mark.parametrize("wrong", ["", "a b", "é", "x" * 129, "a<script>", 'a"b', "a,b"])
async def test_an_id_that_could_hurt_a_log_is_replaced(wrong):
    assert OURS.fullmatch(
        (await fetch(None, "/health", "GET", x_request_id=wrong))[0].headers["x-request-id"]
    )


async def test_an_id_that_was_made_is_the_one_in_the_ledger():
    found, _, (record,) = await fetch(chat())
    assert found.headers["x-request-id"] == found.headers["x-mild-request-id"] == record.request_id
    found, _, (record,) = await fetch(chat(), x_request_id="mine")
    assert found.headers["x-mild-request-id"] == record.request_id != "mine"


def test_ids_do_not_tell_the_next_ones():
    random.seed(1)
    first = name_request()
    random.seed(1)
    assert name_request() != first


CORS = {"server": ServerSettings(cors_origins=(ORIGIN,))}
PREFLIGHT = {
    "access_control_request_method": "POST",
    "access_control_request_headers": "authorization,content-type",
}


@pytest.mark.parametrize("require_key", [None, False, True])
async def test_a_named_origin_may_ask_first(require_key):
    parts = {**CORS, "access_settings": AccessSettings(require_key=require_key)}
    found, asked, _ = await fetch(b"", method="OPTIONS", parts=parts, origin=ORIGIN, **PREFLIGHT)
    assert found.status == 200
    assert found.headers["access-control-allow-origin"] == ORIGIN
    assert "POST" in found.headers["access-control-allow-methods"]
    assert "authorization" in found.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in found.headers
    assert asked == 0


async def test_a_named_origin_is_served_and_may_read_the_answer_and_its_errors():
    more = {"origin": ORIGIN, "sec_fetch_site": "cross-site"}
    found, asked, _ = await fetch(chat(), parts=CORS, **more)
    assert (found.status, asked) == (200, 1)
    assert found.headers["access-control-allow-origin"] == ORIGIN
    assert "x-mild-expert" in found.headers["access-control-expose-headers"]
    assert "x-mild-path" in found.headers["access-control-expose-headers"]
    refused, *_ = await fetch(chat(model="none"), parts=CORS, **more)
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (404, ORIGIN)


@pytest.mark.parametrize("origin", ["https://evil.example", "http://app.example.com", "null"])
async def test_other_origins_are_refused(origin):
    found, asked, _ = await fetch(chat(), parts=CORS, origin=origin, sec_fetch_site="cross-site")
    assert (found.status, asked) == (403, 0)
    assert json.loads(found.body)["error"]["code"] == "cross_site_request"
    assert "access-control-allow-origin" not in found.headers
    found, *_ = await fetch(b"", method="OPTIONS", parts=CORS, origin=origin, **PREFLIGHT)
    assert found.status == 400
    assert "access-control-allow-origin" not in found.headers


async def test_without_named_origins_there_is_no_cors():
    found, *_ = await fetch(None, "/health", "GET", origin=ORIGIN)
    assert not any(name.startswith("access-control") for name in found.headers)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/chat/completions", {"POST"}),
        ("/v1/models", {"GET", "HEAD"}),
        ("/health", {"GET", "HEAD"}),
    ],
)
async def test_options_say_what_an_endpoint_takes(path, allowed):
    found, *_ = await fetch(b"", path, "OPTIONS")
    assert (found.status, found.body) == (204, b"")
    assert set(found.headers["allow"].split(", ")) == allowed | {"OPTIONS"}


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/metrics"])
async def test_head_is_get_without_its_body(path):
    assert (await fetch(None, path, "HEAD"))[0].status == 200
    assert (await fetch(None, "/v1/chat/completions", "HEAD"))[0].status == 405
