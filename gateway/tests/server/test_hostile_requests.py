"""A table of hostile requests over raw sockets, each with the status and code that it gets."""

import asyncio
import json
import re
from types import SimpleNamespace

import pytest

from gateway_cases import Client, chat, solo
from raw_http_cases import BODY, LENGTH, POST
from waiting import PATIENCE

NEXT = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
TEXT = b'{"model": "mild", "messages": [{"role": "user", "content": "%b"}]}'


def get(lines=b"host: localhost\r\n", target=b"/health", version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + lines + b"\r\n"


def post(body=BODY, lines=b"", target=b"/v1/chat/completions"):
    head = b"POST " + target + b" HTTP/1.1\r\nhost: localhost\r\n" + lines
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def encoded(*values):
    lines = b"".join(b"transfer-encoding: %b\r\n" % value for value in values)
    return POST + lines + b"\r\n0\r\n\r\n"


def sized(length, body=b"12345"):
    return POST + b"content-length: %b\r\n\r\n%b" % (length, body)


def host(value):
    return get(b"host: " + value + b"\r\n")


# Refused with the gateway's own error. What is no HTTP at all is uvicorn's to refuse, or the proxy's.
REFUSED = {
    (400, "invalid_host"): {
        "host missing": get(b""),
        "host missing before a body": b"POST /v1/chat/completions HTTP/1.1\r\n"
        + LENGTH
        + b"\r\n"
        + BODY,
        "host twice": get(b"host: localhost\r\nhost: localhost\r\n"),
        "host and another host": get(b"host: localhost\r\nhost: evil.example\r\n"),
        "host in two cases": get(b"Host: localhost\r\nHOST: evil.example\r\n"),
        "host empty": host(b""),
        "host with a space": host(b"local host"),
        "host with a path": host(b"localhost/x"),
        "host with a user": host(b"user@localhost"),
        "host with a bad port": host(b"localhost:port"),
        "host with a long port": host(b"localhost:123456"),
        "host with two ports": host(b"localhost:1:2"),
        "host with an open bracket": host(b"[::1"),
        "host is a list": host(b"localhost, evil.example"),
        "host not ASCII": host(b"l\xf6calhost"),
        "host with a quote": host(b'localhost"x'),
        "host with a backslash": host(b"localhost\\x"),
        "host is an address": host(b"http://localhost"),
    },
    (413, "request_too_large"): {
        "length over the limit": POST + b"content-length: 200001\r\n\r\n",
        "body over the limit": post(b"x" * 200_001),
        "chunks over the limit": CHUNKED + b"%x\r\n%b\r\n" % (200_001, b"x" * 200_001),
        "many small chunks over the limit": CHUNKED + b"400\r\n%b\r\n" % (b"x" * 1024) * 200,
    },
}

# Requests in order that ask for something that is not served: the connection goes on.
KEPT = {
    (404, "not_found"): {
        "unknown path": get(target=b"/nowhere"),
        "path with two slashes": post(target=b"//v1/chat/completions"),
        "path with dots": post(target=b"/v1/../v1/chat/completions"),
        "path to a file": get(target=b"/../../etc/passwd"),
        "path with a slash behind it": post(target=b"/v1/chat/completions/"),
        "path in capitals": post(target=b"/V1/chat/completions"),
        "path with parameters": post(target=b"/v1/chat/completions;x=1"),
        "path in escapes": post(target=b"/v1%2Fchat/completions"),
        "path with an escaped NUL": post(target=b"/v1/chat/completions%00"),
        "path with half an escape": post(target=b"/v1/chat/completions%"),
    },
    (405, "method_not_allowed"): {
        "wrong method": get(target=b"/v1/chat/completions"),
        "TRACE": get(method=b"TRACE"),
        "DELETE": get(method=b"DELETE"),
        "PROPFIND": get(method=b"PROPFIND"),
    },
    (403, "unknown_host"): {
        "host elsewhere": get(b"host: evil.example\r\n", b"/v1/models"),
    },
    (403, "cross_site_request"): {
        "page elsewhere": get(b"host: localhost\r\nsec-fetch-site: cross-site\r\n", b"/v1/models"),
    },
    (401, "invalid_api_key"): {
        "key unknown": get(
            b"host: localhost\r\nauthorization: Bearer mild-none\r\n", b"/v1/models"
        ),
        "key not UTF-8": get(
            b"host: localhost\r\nauthorization: Bearer mild-\xff\xfe\r\n", b"/v1/models"
        ),
    },
    (400, "invalid_body"): {
        "body empty": post(b""),
        "body blank": post(b" \r\n\t"),
        "body without a length": POST + b"\r\n",
        "body not JSON": post(b"{"),
        "body not UTF-8": post(TEXT % b"\xff\xfe"),
        "body with half a character": post(TEXT % b"\xc3"),
        "body in UTF-16": post(BODY.decode().encode("utf-16")),
        "body with a BOM": post(b"\xef\xbb\xbf" + BODY),
        "body with a NUL": post(TEXT % b"\x00"),
        "body is gzip": post(b"\x1f\x8b\x08\x00" + b"x" * 20, b"content-encoding: gzip\r\n"),
        "body is a form": post(b"model=mild&messages=x"),
        "body is a list": post(b"[" + BODY + b"]"),
        "body is two objects": post(BODY + BODY),
        "body nested 40,000 deep, open": post(b'{"a":' + b"[" * 40_000),
    },
    (400, "duplicate_key"): {
        "key twice": post(BODY[:-1] + b', "model": "mild"}'),
    },
    (400, "model_missing"): {
        "model missing": post(b'{"messages": []}'),
        "model is a list": post(json.dumps(chat(model=[])).encode()),
    },
    (404, "model_not_found"): {
        "model unknown": post(json.dumps(chat(model="none")).encode()),
    },
    (400, "invalid_type"): {
        "stream in words": post(json.dumps(chat(stream="yes")).encode()),
    },
}


@pytest.fixture(scope="module")
async def running():
    """One gateway for the whole table, and the endpoint behind it."""
    limits = {"max_body_bytes": 200_000}
    async with solo(limits=limits) as (up, g):
        yield SimpleNamespace(port=g.port, up=up, ledger=g.ledger)


def rows(table):
    """A row of the table for each test, which is named after it."""
    return [
        pytest.param(name, data, *answer, id=name)
        for answer, requests in table.items()
        for name, data in requests.items()
    ]


@pytest.mark.parametrize(("name", "data", "status", "code"), rows(REFUSED))
async def test_a_request_without_one_host_or_with_too_long_a_body_is_refused(
    running, name, data, status, code
):
    async with Client(running.port) as client, asyncio.timeout(PATIENCE):
        client.send(data)
        found = await client.answer()
    assert (found.status, json.loads(found.body)["error"]["code"]) == (status, code)
    assert (running.up.asked, running.ledger.records) == (0, [])


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        POST + LENGTH + LENGTH + b"\r\n" + BODY,
        POST + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"content-length: -1\r\n\r\n",
        CHUNKED + b"zz\r\n\r\n",
    ],
    ids=["no HTTP", "two lengths", "length and chunks", "negative length", "bad chunk"],
)
async def test_what_is_no_http_reaches_no_expert(running, data):
    async with Client(running.port) as client, asyncio.timeout(PATIENCE):
        client.send(data + NEXT)
        said = await client.reader.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1
    assert (running.up.asked, running.ledger.records) == (0, [])


@pytest.mark.parametrize(("name", "data", "status", "code"), rows(KEPT))
async def test_what_cannot_be_served_is_refused_and_the_connection_goes_on(
    running, name, data, status, code
):
    async with Client(running.port) as client, asyncio.timeout(PATIENCE):
        client.send(data)
        found = await client.answer()
        client.send(NEXT)
        after = await client.answer()
    assert (found.status, json.loads(found.body)["error"]["code"]) == (status, code)
    assert after.status == 200
    assert (running.up.asked, running.ledger.records) == (0, [])


@pytest.mark.parametrize("data", [b"", b"POST /v1/ch", POST, POST + LENGTH + b"\r\n" + BODY[:9]])
async def test_a_half_closed_connection_is_closed_without_an_answer(running, data):
    async with Client(running.port) as client, asyncio.timeout(PATIENCE):
        client.send(data)
        client.writer.write_eof()
        assert await client.reader.read() == b""
    assert (running.up.asked, running.ledger.records) == (0, [])
