"""A table of hostile requests over raw sockets, each with the status and code that it gets."""

import asyncio
import contextlib
import json
import re
from types import SimpleNamespace

import pytest

from gateway.fake_upstream import FakeUpstream
from gateway.gateway_cases import Client, chat, expert, gateway
from gateway.raw_http_cases import BODY, LENGTH, POST

NEXT = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(BODY), BODY)
TEXT = b'{"model": "mild", "messages": [{"role": "user", "content": "%b"}]}'


def get(lines=b"host: localhost\r\n", target=b"/health", version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + lines + b"\r\n"


def post(body=BODY, lines=b"", target=b"/v1/chat/completions"):
    head = b"POST " + target + b" HTTP/1.1\r\nhost: localhost\r\n" + lines
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def host(value):
    return get(b"host: " + value + b"\r\n")


# What another reader might read otherwise, or what is no HTTP/1.1: refused, and the connection is closed.
CLOSED = {
    # Host
    "host missing": (get(b""), 400, "invalid_host"),
    "host missing before a body": (
        b"POST /v1/chat/completions HTTP/1.1\r\n" + LENGTH + b"\r\n" + BODY,
        400,
        "invalid_host",
    ),
    "host twice": (get(b"host: localhost\r\nhost: localhost\r\n"), 400, "invalid_host"),
    "host and another host": (
        get(b"host: localhost\r\nhost: evil.example\r\n"),
        400,
        "invalid_host",
    ),
    "host in two cases": (get(b"Host: localhost\r\nHOST: evil.example\r\n"), 400, "invalid_host"),
    "host empty": (host(b""), 400, "invalid_host"),
    "host with a space": (host(b"local host"), 400, "invalid_host"),
    "host with a path": (host(b"localhost/x"), 400, "invalid_host"),
    "host with a user": (host(b"user@localhost"), 400, "invalid_host"),
    "host with a bad port": (host(b"localhost:port"), 400, "invalid_host"),
    "host with a long port": (host(b"localhost:123456"), 400, "invalid_host"),
    "host with two ports": (host(b"localhost:1:2"), 400, "invalid_host"),
    "host with an open bracket": (host(b"[::1"), 400, "invalid_host"),
    "host is a list": (host(b"localhost, evil.example"), 400, "invalid_host"),
    "host not ASCII": (host(b"l\xf6calhost"), 400, "invalid_host"),
    "host with a quote": (host(b'localhost"x'), 400, "invalid_host"),
    "host with a backslash": (host(b"localhost\\x"), 400, "invalid_host"),
    "host is an address": (host(b"http://localhost"), 400, "invalid_host"),
    # Target
    "absolute target": (get(target=b"http://localhost/health"), 400, "invalid_target"),
    "absolute target elsewhere": (get(target=b"http://evil.example/health"), 400, "invalid_target"),
    "absolute https target": (get(target=b"https://localhost/health"), 400, "invalid_target"),
    "absolute target with a body": (
        post(target=b"http://localhost/v1/chat/completions"),
        400,
        "invalid_target",
    ),
    "target is a star": (get(target=b"*", method=b"OPTIONS"), 400, "invalid_target"),
    "target is a host": (
        get(target=b"evil.example:443", method=b"CONNECT"),
        400,
        "upgrade_not_supported",
    ),
    "target without a slash": (get(target=b"health"), 400, "invalid_http"),
    "target with a fragment": (get(target=b"/metrics#x"), 400, "invalid_target"),
    "target with a NUL": (get(target=b"/health\x00"), 400, "invalid_http"),
    "target with a space": (get(target=b"/health x"), 400, "invalid_http"),
    "target with a control": (get(target=b"/hea\x01lth"), 400, "invalid_http"),
    "target not ASCII": (get(target=b"/h\xe9alth"), 400, "invalid_http"),
    "target too long": (get(target=b"/" + b"a" * 40_000), 431, "head_too_large"),
    "query too long": (get(target=b"/health?" + b"a" * 40_000), 431, "head_too_large"),
    # Length of the body
    "length twice": (POST + LENGTH + LENGTH + b"\r\n" + BODY, 400, "invalid_framing"),
    "two lengths": (POST + LENGTH + b"content-length: 3\r\n\r\n" + BODY, 400, "invalid_framing"),
    "length with a plus": (POST + b"content-length: +5\r\n\r\n12345", 400, "invalid_framing"),
    "length negative": (POST + b"content-length: -1\r\n\r\n", 400, "invalid_framing"),
    "length in hex": (POST + b"content-length: 0x5\r\n\r\n12345", 400, "invalid_framing"),
    "length with a point": (POST + b"content-length: 5.0\r\n\r\n12345", 400, "invalid_framing"),
    "length is a list": (POST + b"content-length: 5, 5\r\n\r\n12345", 400, "invalid_framing"),
    "length empty": (POST + b"content-length:\r\n\r\n", 400, "invalid_framing"),
    "length in words": (POST + b"content-length: five\r\n\r\n12345", 400, "invalid_framing"),
    "length with a space": (POST + b"content-length: 5 5\r\n\r\n12345", 400, "invalid_framing"),
    "length of 26 digits": (
        POST + b"content-length: " + b"9" * 26 + b"\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "length of 4300 digits": (
        POST + b"content-length: " + b"9" * 4300 + b"\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "length of 4300 zeros": (
        POST + b"content-length: %b5\r\n\r\n12345" % (b"0" * 4300),
        400,
        "invalid_framing",
    ),
    "length over the limit": (POST + b"content-length: 200001\r\n\r\n", 413, "request_too_large"),
    "length of 18 digits": (
        POST + b"content-length: " + b"9" * 18 + b"\r\n\r\n",
        413,
        "request_too_large",
    ),
    "body over the limit": (post(b"x" * 200_001), 413, "request_too_large"),
    "chunks over the limit": (
        CHUNKED + b"%x\r\n%b\r\n" % (200_001, b"x" * 200_001),
        413,
        "request_too_large",
    ),
    "many small chunks over the limit": (
        CHUNKED + b"400\r\n%b\r\n" % (b"x" * 1024) * 200,
        413,
        "request_too_large",
    ),
    # Length and chunks
    "length and chunks": (
        POST + LENGTH + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "chunks and length": (
        POST + b"transfer-encoding: chunked\r\n" + LENGTH + b"\r\n" + BODY,
        400,
        "invalid_framing",
    ),
    "gzip, chunked": (
        POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "chunked, identity": (
        POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "chunked, chunked": (
        POST + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "chunked twice": (
        POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "gzip and chunked": (
        POST + b"transfer-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    "xchunked": (POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 400, "invalid_framing"),
    "identity": (POST + b"transfer-encoding: identity\r\n\r\n", 400, "invalid_framing"),
    "chunked in quotes": (
        POST + b'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
        400,
        "invalid_framing",
    ),
    "chunked with a vertical tab": (
        POST + b"transfer-encoding: \x0bchunked\r\n\r\n",
        400,
        "invalid_http",
    ),
    "chunked behind a NUL": (POST + b"transfer-encoding: \x00chunked\r\n\r\n", 400, "invalid_http"),
    "name with a space before the colon": (
        POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        400,
        "invalid_http",
    ),
    "chunks in HTTP/1.0": (
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + CHUNK + b"0\r\n\r\n",
        400,
        "invalid_framing",
    ),
    # Chunks
    "chunk size is no number": (CHUNKED + b"zz\r\n\r\n", 400, "invalid_http"),
    "chunk size negative": (CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk size with a plus": (CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk size with 0x": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk size with a space": (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk size empty": (CHUNKED + b"\r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk size of 40 digits": (CHUNKED + b"f" * 40 + b"\r\n", 400, "invalid_http"),
    "chunk ends with LF": (CHUNKED + b"5\nhello\n0\n\n", 400, "invalid_http"),
    "chunk too long for its size": (CHUNKED + b"3\r\nhello\r\n0\r\n\r\n", 400, "invalid_http"),
    "chunk extension without end": (CHUNKED + b"1;" + b"y" * 400_000, 431, "head_too_large"),
    "trailers of 100 KB": (
        CHUNKED + CHUNK + b"0\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        431,
        "head_too_large",
    ),
    "many trailers": (CHUNKED + CHUNK + b"0\r\n" + b"x: y\r\n" * 17_000, 431, "head_too_large"),
    "trailer without a colon": (CHUNKED + CHUNK + b"0\r\nbroken\r\n\r\n", 400, "invalid_http"),
    # Headers
    "header without a colon": (get(b"host: localhost\r\nbroken\r\n"), 400, "invalid_http"),
    "header without a name": (get(b"host: localhost\r\n: x\r\n"), 400, "invalid_http"),
    "header name with a space": (get(b"host: localhost\r\nx y: z\r\n"), 400, "invalid_http"),
    "header name not ASCII": (get(b"host: localhost\r\nx\xe9: z\r\n"), 400, "invalid_http"),
    "header name with a NUL": (get(b"host: localhost\r\nx\x00: z\r\n"), 400, "invalid_http"),
    "header with a NUL": (get(b"host: localhost\r\nx: a\x00b\r\n"), 400, "invalid_http"),
    "header with a control": (get(b"host: localhost\r\nx: a\x01b\r\n"), 400, "invalid_http"),
    "header with a DEL": (get(b"host: localhost\r\nx: a\x7fb\r\n"), 400, "invalid_http"),
    "header with a bare CR": (get(b"host: localhost\r\nx: a\rb\r\n"), 400, "invalid_http"),
    "header ends with LF": (get(b"host: localhost\nx: y\r\n"), 400, "invalid_http"),
    "header folded": (get(b"host: localhost\r\nx: a\r\n b\r\n"), 400, "invalid_http"),
    "first header folded": (get(b" host: localhost\r\n"), 400, "invalid_http"),
    "length folded": (POST + b"content-length:\r\n 5\r\n\r\n12345", 400, None),
    "many headers": (
        get(b"host: localhost\r\n" + b"".join(b"x%d: y\r\n" % n for n in range(500))),
        431,
        "head_too_large",
    ),
    "header of 40 KB": (
        get(b"host: localhost\r\nx: " + b"y" * 40_000 + b"\r\n"),
        431,
        "head_too_large",
    ),
    "header name of 40 KB": (
        get(b"host: localhost\r\n" + b"x" * 40_000 + b": y\r\n"),
        431,
        "head_too_large",
    ),
    "head without end": (POST + b"x" * 40_000, 431, "head_too_large"),
    # Versions and methods
    "HTTP/0.9": (b"GET /health\r\n\r\n", 400, "invalid_http"),
    "HTTP/1.2": (get(version=b"HTTP/1.2"), 400, "invalid_http"),
    "HTTP/2.0": (get(version=b"HTTP/2.0"), 400, "invalid_http"),
    "HTTP/9.9": (get(version=b"HTTP/9.9"), 400, "invalid_http"),
    "http/1.1": (get(version=b"http/1.1"), 400, "invalid_http"),
    "HTTP/1.1x": (get(version=b"HTTP/1.1x"), 400, "invalid_http"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, None),
    "HTTP/2 with prior knowledge": (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        400,
        None,
    ),
    "TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_http"),
    "no HTTP": (b"GARBAGE\r\n\r\n", 400, "invalid_http"),
    "a response": (b"HTTP/1.1 200 OK\r\n\r\n", 400, "invalid_http"),
    "unknown method": (get(method=b"BREW"), 400, "invalid_http"),
    "method in lower case": (get(method=b"get"), 400, "invalid_http"),
    "WebSocket": (
        get(b"host: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"),
        400,
        "upgrade_not_supported",
    ),
    "upgrade to two": (
        get(b"host: localhost\r\nconnection: upgrade\r\nupgrade: h2c, websocket\r\n"),
        400,
        "upgrade_not_supported",
    ),
}

# Rows that end in the middle: nothing follows them.
OPEN = (
    "chunk extension without end", "chunks over the limit", "head without end",
    "many small chunks over the limit", "many trailers",
)  # fmt: skip

# Requests in order that ask for something that is not served: the connection goes on.
KEPT = {
    "unknown path": (get(target=b"/nowhere"), 404, "not_found"),
    "path with two slashes": (post(target=b"//v1/chat/completions"), 404, "not_found"),
    "path with dots": (post(target=b"/v1/../v1/chat/completions"), 404, "not_found"),
    "path to a file": (get(target=b"/../../etc/passwd"), 404, "not_found"),
    "path with a slash behind it": (post(target=b"/v1/chat/completions/"), 404, "not_found"),
    "path in capitals": (post(target=b"/V1/chat/completions"), 404, "not_found"),
    "path with parameters": (post(target=b"/v1/chat/completions;x=1"), 404, "not_found"),
    "path in escapes": (post(target=b"/v1%2Fchat/completions"), 404, "not_found"),
    "path with an escaped NUL": (post(target=b"/v1/chat/completions%00"), 404, "not_found"),
    "path with half an escape": (post(target=b"/v1/chat/completions%"), 404, "not_found"),
    "wrong method": (get(target=b"/v1/chat/completions"), 405, "method_not_allowed"),
    "TRACE": (get(method=b"TRACE"), 405, "method_not_allowed"),
    "DELETE": (get(method=b"DELETE"), 405, "method_not_allowed"),
    "PROPFIND": (get(method=b"PROPFIND"), 405, "method_not_allowed"),
    "host elsewhere": (get(b"host: evil.example\r\n", b"/v1/models"), 403, "unknown_host"),
    "page elsewhere": (
        get(b"host: localhost\r\nsec-fetch-site: cross-site\r\n", b"/v1/models"),
        403,
        "cross_site_request",
    ),
    "key unknown": (
        get(b"host: localhost\r\nauthorization: Bearer mild-none\r\n", b"/v1/models"),
        401,
        "invalid_api_key",
    ),
    "key not UTF-8": (
        get(b"host: localhost\r\nauthorization: Bearer mild-\xff\xfe\r\n", b"/v1/models"),
        401,
        "invalid_api_key",
    ),
    "body empty": (post(b""), 400, "invalid_body"),
    "body blank": (post(b" \r\n\t"), 400, "invalid_body"),
    "body without a length": (POST + b"\r\n", 400, "invalid_body"),
    "body not JSON": (post(b"{"), 400, "invalid_body"),
    "body not UTF-8": (post(TEXT % b"\xff\xfe"), 400, "invalid_body"),
    "body with half a character": (post(TEXT % b"\xc3"), 400, "invalid_body"),
    "body in UTF-16": (post(BODY.decode().encode("utf-16")), 400, "invalid_body"),
    "body with a BOM": (post(b"\xef\xbb\xbf" + BODY), 400, "invalid_body"),
    "body with a NUL": (post(TEXT % b"\x00"), 400, "invalid_body"),
    "body is gzip": (
        post(b"\x1f\x8b\x08\x00" + b"x" * 20, b"content-encoding: gzip\r\n"),
        400,
        "invalid_body",
    ),
    "body is a form": (post(b"model=mild&messages=x"), 400, "invalid_body"),
    "body is a list": (post(b"[" + BODY + b"]"), 400, "invalid_body"),
    "body is two objects": (post(BODY + BODY), 400, "invalid_body"),
    "body nested 5,000 deep": (
        post(b'{"a":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
        400,
        "invalid_body",
    ),
    "body nested 40,000 deep, open": (post(b'{"a":' + b"[" * 40_000), 400, "invalid_body"),
    "body of many objects": (post(b'{"a":[' + b"{}," * 60_000 + b"{}]}"), 400, "invalid_body"),
    "model missing": (post(b'{"messages": []}'), 400, "model_missing"),
    "model unknown": (post(json.dumps(chat(model="none")).encode()), 404, "model_not_found"),
    "model is a list": (post(json.dumps(chat(model=[])).encode()), 400, "model_missing"),
    "stream in words": (post(json.dumps(chat(stream="yes")).encode()), 400, "invalid_type"),
}


@pytest.fixture(scope="module")
def running():
    """One gateway for the whole table, in a loop that runs while a test asks."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        async def start():
            up = await stack.enter_async_context(FakeUpstream())
            limits = {"max_body_bytes": 200_000}
            return up, await stack.enter_async_context(gateway([expert("one", up)], limits=limits))

        up, g = runner.run(start())
        yield SimpleNamespace(run=runner.run, port=g.port, up=up, ledger=g.ledger)
        runner.run(stack.aclose())


async def read_to_the_end(port, data):
    async with Client(port) as client, asyncio.timeout(10):
        client.send(data)
        return await client.reader.read()


@pytest.mark.parametrize("name", CLOSED)
def test_what_is_no_plain_request_is_refused_and_the_connection_closed(running, name):
    data, status, code = CLOSED[name]
    said = running.run(read_to_the_end(running.port, data + (b"" if name in OPEN else NEXT)))
    assert said.startswith(b"HTTP/1.1 %d " % status)
    # What follows is not answered: it may be a part of the request that was hidden in the first.
    assert len(re.findall(rb"HTTP/1.1 \d", said)) == 1
    error = json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]
    assert error["code"] in (
        (code,) if code else ("invalid_http", "invalid_framing", "invalid_target")
    )
    assert (running.up.asked, running.ledger.records) == (0, [])


@pytest.mark.parametrize("name", KEPT)
def test_what_cannot_be_served_is_refused_and_the_connection_goes_on(running, name):
    data, status, code = KEPT[name]

    async def run():
        async with Client(running.port) as client, asyncio.timeout(10):
            client.send(data)
            first = await client.answer()
            client.send(NEXT)
            return first, await client.answer()

    found, after = running.run(run())
    assert (found.status, json.loads(found.body)["error"]["code"]) == (status, code)
    assert after.status == 200
    assert (running.up.asked, running.ledger.records) == (0, [])


@pytest.mark.parametrize("data", [b"", b"POST /v1/ch", POST, POST + LENGTH + b"\r\n" + BODY[:9]])
def test_a_half_closed_connection_is_closed_without_an_answer(running, data):
    async def run():
        async with Client(running.port) as client, asyncio.timeout(10):
            client.send(data)
            client.writer.write_eof()
            return await client.reader.read()

    assert running.run(run()) == b""
    assert (running.up.asked, running.ledger.records) == (0, [])


def test_the_table_has_a_hundred_rows():
    assert len(CLOSED) + len(KEPT) >= 100
