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


# What another reader might read otherwise, or what is no HTTP/1.1: refused, and the connection is closed.
CLOSED = {
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
    (400, "invalid_target"): {
        "absolute target": get(target=b"http://localhost/health"),
        "absolute target elsewhere": get(target=b"http://evil.example/health"),
        "absolute https target": get(target=b"https://localhost/health"),
        "absolute target with a body": post(target=b"http://localhost/v1/chat/completions"),
        "target is a star": get(target=b"*", method=b"OPTIONS"),
        "target with a fragment": get(target=b"/metrics#x"),
    },
    (400, "upgrade_not_supported"): {
        "target is a host": get(target=b"evil.example:443", method=b"CONNECT"),
        "WebSocket": get(b"host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"),
        "upgrade to two": get(
            b"host: localhost\r\nconnection: upgrade\r\nupgrade: h2c, websocket\r\n"
        ),
    },
    (400, "invalid_http"): {
        "target without a slash": get(target=b"health"),
        "target with a NUL": get(target=b"/health\x00"),
        "target with a space": get(target=b"/health x"),
        "target with a control": get(target=b"/hea\x01lth"),
        "target not ASCII": get(target=b"/h\xe9alth"),
        "chunked with a vertical tab": POST + b"transfer-encoding: \x0bchunked\r\n\r\n",
        "chunked behind a NUL": POST + b"transfer-encoding: \x00chunked\r\n\r\n",
        "name with a space before the colon": POST
        + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "chunk size is no number": CHUNKED + b"zz\r\n\r\n",
        "chunk size negative": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
        "chunk size with a plus": CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n",
        "chunk size with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
        "chunk size with a space": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
        "chunk size empty": CHUNKED + b"\r\nhello\r\n0\r\n\r\n",
        "chunk size of 40 digits": CHUNKED + b"f" * 40 + b"\r\n",
        "chunk ends with LF": CHUNKED + b"5\nhello\n0\n\n",
        "chunk too long for its size": CHUNKED + b"3\r\nhello\r\n0\r\n\r\n",
        "trailer without a colon": CHUNKED + CHUNK + b"0\r\nbroken\r\n\r\n",
        "header without a colon": get(b"host: localhost\r\nbroken\r\n"),
        "header without a name": get(b"host: localhost\r\n: x\r\n"),
        "header name with a space": get(b"host: localhost\r\nx y: z\r\n"),
        "header name not ASCII": get(b"host: localhost\r\nx\xe9: z\r\n"),
        "header name with a NUL": get(b"host: localhost\r\nx\x00: z\r\n"),
        "header with a NUL": get(b"host: localhost\r\nx: a\x00b\r\n"),
        "header with a control": get(b"host: localhost\r\nx: a\x01b\r\n"),
        "header with a DEL": get(b"host: localhost\r\nx: a\x7fb\r\n"),
        "header with a bare CR": get(b"host: localhost\r\nx: a\rb\r\n"),
        "header ends with LF": get(b"host: localhost\nx: y\r\n"),
        "header folded": get(b"host: localhost\r\nx: a\r\n b\r\n"),
        "first header folded": get(b" host: localhost\r\n"),
        "HTTP/0.9": b"GET /health\r\n\r\n",
        "HTTP/1.2": get(version=b"HTTP/1.2"),
        "HTTP/2.0": get(version=b"HTTP/2.0"),
        "HTTP/9.9": get(version=b"HTTP/9.9"),
        "http/1.1": get(version=b"http/1.1"),
        "HTTP/1.1x": get(version=b"HTTP/1.1x"),
        "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "no HTTP": b"GARBAGE\r\n\r\n",
        "a response": b"HTTP/1.1 200 OK\r\n\r\n",
        "unknown method": get(method=b"BREW"),
        "method in lower case": get(method=b"get"),
    },
    (431, "head_too_large"): {
        "target too long": get(target=b"/" + b"a" * 40_000),
        "query too long": get(target=b"/health?" + b"a" * 40_000),
        "chunk extension without end": CHUNKED + b"1;" + b"y" * 400_000,
        "trailers of 100 KB": CHUNKED + CHUNK + b"0\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        "many trailers": CHUNKED + CHUNK + b"0\r\n" + b"x: y\r\n" * 17_000,
        "many headers": get(
            b"host: localhost\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(500))
        ),
        "header of 40 KB": get(b"host: localhost\r\nx: " + b"y" * 40_000 + b"\r\n"),
        "header name of 40 KB": get(b"host: localhost\r\n" + b"x" * 40_000 + b": y\r\n"),
        "head without end": POST + b"x" * 40_000,
    },
    (400, "invalid_framing"): {
        "length twice": POST + LENGTH + LENGTH + b"\r\n" + BODY,
        "two lengths": POST + LENGTH + b"content-length: 3\r\n\r\n" + BODY,
        "length with a plus": sized(b"+5"),
        "length negative": POST + b"content-length: -1\r\n\r\n",
        "length in hex": sized(b"0x5"),
        "length with a point": sized(b"5.0"),
        "length is a list": sized(b"5, 5"),
        "length empty": POST + b"content-length:\r\n\r\n",
        "length in words": sized(b"five"),
        "length with a space": sized(b"5 5"),
        "length of 26 digits": POST + b"content-length: " + b"9" * 26 + b"\r\n\r\n",
        "length of 4300 digits": POST + b"content-length: " + b"9" * 4300 + b"\r\n\r\n",
        "length of 4300 zeros": sized(b"%b5") % (b"0" * 4300),
        "length and chunks": POST + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "chunks and length": POST + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        "gzip, chunked": encoded(b"gzip, chunked"),
        "chunked, identity": encoded(b"chunked, identity"),
        "chunked, chunked": encoded(b"chunked, chunked"),
        "chunked twice": POST
        + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "gzip and chunked": POST
        + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "xchunked": encoded(b"xchunked"),
        "identity": POST + b"transfer-encoding: identity\r\n\r\n",
        "chunked in quotes": encoded(b'"chunked"'),
        "chunks in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNK + b"0\r\n\r\n",
    },
    (413, "request_too_large"): {
        "length over the limit": POST + b"content-length: 200001\r\n\r\n",
        "length of 18 digits": POST + b"content-length: " + b"9" * 18 + b"\r\n\r\n",
        "body over the limit": post(b"x" * 200_001),
        "chunks over the limit": CHUNKED + b"%x\r\n%b\r\n" % (200_001, b"x" * 200_001),
        "many small chunks over the limit": CHUNKED + b"400\r\n%b\r\n" % (b"x" * 1024) * 200,
    },
    (400, None): {
        "length folded": POST + b"content-length:\r\n 5\r\n\r\n12345",
        "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    },
}

# Rows that end in the middle: nothing follows them.
OPEN = (
    "chunk extension without end", "chunks over the limit", "head without end",
    "many small chunks over the limit", "many trailers",
)  # fmt: skip

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
        "body nested 5,000 deep": post(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
        "body nested 40,000 deep, open": post(b'{"a":' + b"[" * 40_000),
        "body of many objects": post(b'{"a":[' + b"{}," * 60_000 + b"{}]}"),
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


@pytest.mark.parametrize(("name", "data", "status", "code"), rows(CLOSED))
async def test_what_is_no_plain_request_is_refused_and_the_connection_closed(
    running, name, data, status, code
):
    async with Client(running.port) as client, asyncio.timeout(PATIENCE):
        client.send(data + (b"" if name in OPEN else NEXT))
        said = await client.reader.read()
    assert said.startswith(b"HTTP/1.1 %d " % status)
    # What follows is not answered: it may be a part of the request that was hidden in the first.
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1
    error = json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["code"] in (
        (code,) if code else ("invalid_http", "invalid_framing", "invalid_target")
    )
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
