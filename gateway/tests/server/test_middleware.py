"""A stranger's page in the browser of somebody who runs a gateway without keys."""

import json
from types import SimpleNamespace

import pytest

from gateway_cases import FakeBoard, ask, chat, rows, solo
from mild_gateway.config import AccessSettings, Settings
from mild_gateway.refusals import Refusal
from mild_gateway.server.middleware import HostCheck


@pytest.fixture(scope="module")
async def running():
    async with solo(board=FakeBoard()) as (up, g):
        yield SimpleNamespace(port=g.port, up=up, ledger=g.ledger)


@pytest.fixture
def send(running):
    """A function that asks the gateway; it gives the answer, and how often the expert was asked."""

    async def send(path, method="POST", **headers):
        asked = running.up.asked
        found = await ask(running.port, chat(), path, method, **headers)
        if found.status != 200:
            assert running.up.asked == asked == len(await rows(running, asked))
        return found, running.up.asked - asked

    return send


GUARDED = [
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
    ("/v1/route", "POST"),
    ("/v1/models", "GET"),
    ("/status.json", "GET"),
    ("/metrics", "GET"),
]


@pytest.mark.parametrize(("path", "method"), GUARDED)
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_are_refused(send, path, method, site):
    found, _ = await send(path, method, sec_fetch_site=site)
    assert found.status == 403
    error = json.loads(found.body)["error"]
    assert (error["type"], error["code"]) == ("permission_error", "cross_site_request")


@pytest.mark.parametrize(("path", "method"), [*GUARDED, ("/", "GET")])
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:6060",
        "localhost.evil.example",
        "10.0.0.1",
        "[::2]:6060",
        "0.0.0.0",
    ],
)
async def test_a_name_that_was_given_our_address_is_refused(send, path, method, host):
    found, asked = await send(path, method, host=host, sec_fetch_site="same-origin")
    assert found.status == 403
    assert json.loads(found.body)["error"]["code"] == "unknown_host"
    assert asked == 0


@pytest.mark.parametrize("site", ["same-origin", "none"])
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:6060", "mild.localhost:1", "127.0.0.1:6060", "127.1.2.3", "[::1]:9"],
)
async def test_the_machines_own_names_are_served(send, host, site):
    found, asked = await send("/v1/chat/completions", host=host, sec_fetch_site=site)
    assert (found.status, asked) == (200, 1)


async def test_a_link_leads_to_the_page_and_health_is_for_everyone(send):
    elsewhere = {"sec_fetch_site": "cross-site"}
    assert (await send("/", "GET", **elsewhere))[0].status == 200
    assert (await send("/health", "GET", host="evil.example", **elsewhere))[0].status == 200


def checked(settings, **headers):
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    version = "1.1" if "host" in headers else "1.0"
    scope = {"method": "POST", "path": "/v1/route", "headers": lines, "http_version": version}
    HostCheck(settings).check(scope)


def test_where_a_key_is_needed_it_says_who_may():
    for settings in (
        Settings(access=AccessSettings(require_key=True)),
        Settings(host="0.0.0.0"),
    ):
        checked(settings, host="any.example", sec_fetch_site="cross-site")


def test_an_open_gateway_elsewhere_is_reached_by_any_name_but_not_across_sites():
    settings = Settings(host="0.0.0.0", access=AccessSettings(require_key=False))
    checked(settings, host="box.lan:6060")
    with pytest.raises(Refusal, match="other sites"):
        checked(settings, host="box.lan:6060", sec_fetch_site="cross-site")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://box.lan:80", "box.lan"])
def test_browsers_that_only_name_the_origin_are_understood(origin):
    settings = Settings(host="0.0.0.0", access=AccessSettings(require_key=False))
    checked(settings, host="box.lan:6060", origin="http://Box.lan:6060")
    checked(settings, host="box.lan:6060", origin="https://outside", sec_fetch_site="same-origin")
    with pytest.raises(Refusal, match="other sites"):
        checked(settings, host="box.lan:6060", origin=origin)


def test_a_request_without_host_comes_from_no_browser():
    checked(Settings())
