"""Who may see the metrics and the page, and what a proxy in front changes."""

import asyncio
import json
import time

import pytest

from fake_upstream import FakeUpstream
from gateway_cases import FakeBoard, ask, chat, expert, gateway
from mild_gateway.access import Access, AccessStore
from mild_gateway.access.keys import Key, digest_of, hint_of, new_key
from mild_gateway.config import AccessSettings, ServerSettings, Settings
from mild_gateway.server.middleware import ProxyCheck

OPEN = AccessSettings(require_key=False)
CLOSED = AccessSettings(require_key=True)


def fetch(*wanted, access=None, server=None, admin=None, **parts):
    """Statuses and codes of requests: (path, headers). ``admin`` adds a key that is or is none."""

    async def run():
        async with FakeUpstream() as up:
            experts = (expert("one", up),)
            settings = {"access_settings": access or AccessSettings()}
            if server is not None:
                settings["server"] = server
            token = new_key()
            store = AccessStore(None)
            own = Access(
                Settings(experts=experts, access=access or AccessSettings(), **parts), store
            )
            parts.setdefault("board", FakeBoard())
            async with gateway(experts, access=own, **settings, **parts) as g:
                key = Key(
                    "alice", digest_of(token, b"s"), hint_of(token), time.time(), admin=bool(admin)
                )
                own._use_keys([] if admin is None else [key], b"s")
                found = []
                for path, headers in wanted:
                    if admin is not None:
                        headers = {"authorization": f"Bearer {token}", **headers}
                    method = "POST" if path == CHAT else "GET"
                    answer = await ask(g.port, chat(), path, method, **headers)
                    code = None
                    if answer.status >= 400:
                        code = json.loads(answer.body)["error"]["code"]
                    found.append((answer.status, code))
                return found

    return asyncio.run(run())


CHAT = "/v1/chat/completions"
FORWARDED = [
    {"forwarded": "for=192.0.2.1"},
    {"x_forwarded_for": "192.0.2.1"},
    {"x_forwarded_proto": "https"},
    {"x_forwarded_host": "gateway.example"},
    {"x_real_ip": "192.0.2.1"},
    {"via": "1.1 gateway.example"},
    {"cf_connecting_ip": "192.0.2.1"},
    {"true_client_ip": "192.0.2.1"},
    {"x_original_forwarded_for": "192.0.2.1"},
    {"cf_ray": "230b030023ae2822-SJC"},
]


@pytest.mark.parametrize("admin", [True, False])
def test_metrics_need_an_admin_key_where_keys_are_needed(admin):
    ((status, code),) = fetch(("/metrics", {}), access=CLOSED, admin=admin)
    assert (status, code) == ((200, None) if admin else (403, "admin_key_required"))


def test_metrics_without_a_key_are_for_this_machine():
    assert fetch(("/metrics", {})) == [(200, None)]
    assert fetch(("/metrics", {}), access=CLOSED) == [(401, "invalid_api_key")]


@pytest.mark.parametrize("headers", FORWARDED)
def test_what_a_proxy_forwards_is_not_local(headers):
    paths = (CHAT, "/v1/models", "/metrics", "/status.json", "/", "/health")
    needs_key = (401, "invalid_api_key")
    found = fetch(*((path, headers) for path in paths))
    # The page itself holds no figures.
    assert found == [needs_key] * 4 + [(200, None)] * 2


@pytest.mark.parametrize("headers", FORWARDED)
def test_a_stated_false_serves_a_proxy_without_a_key_but_not_the_keys_spend(headers):
    paths = (CHAT, "/", "/metrics", "/status.json")
    found = fetch(*((path, headers) for path in paths), access=OPEN)
    assert found == [(200, None)] * 2 + [(403, "admin_key_required")] * 2


@pytest.mark.parametrize("access", [None, CLOSED])
def test_an_admin_key_sees_metrics_and_dashboard_through_a_proxy(access):
    wanted = [(path, FORWARDED[1]) for path in (CHAT, "/metrics", "/", "/status.json")]
    assert fetch(*wanted, access=access, admin=True) == [(200, None)] * 4
    needs_admin = (403, "admin_key_required")
    found = fetch(*wanted, access=access, admin=False)
    assert found == [(200, None), needs_admin, (200, None), needs_admin]


def test_a_public_page_shows_the_metrics_to_a_proxy():
    wanted = [(path, FORWARDED[1]) for path in ("/metrics", "/", "/status.json")]
    assert fetch(*wanted, access=OPEN, page="public") == [(200, None)] * 3


def test_a_trusted_proxy_says_who_asks():
    server = ServerSettings(trusted_proxies=("127.0.0.1",))
    wanted = [
        (CHAT, {"x_forwarded_for": "127.0.0.1"}),
        (CHAT, {"x_forwarded_for": "127.0.0.1, 192.0.2.1"}),
        ("/metrics", {"x_forwarded_for": "::1"}),
    ]
    found = fetch(*wanted, server=server)
    assert found == [(200, None), (401, "invalid_api_key"), (200, None)]
    through = [(CHAT, {"x_forwarded_for": "127.0.0.1", "via": "1.1 x", "cf_ray": "1"})]
    assert fetch(*through, server=server) == [(200, None)]


@pytest.mark.parametrize("proxies", [(), ("127.0.0.1",)])
def test_where_keys_are_required_this_machine_has_no_privileges(proxies):
    access = AccessSettings(require_key=True)
    server = ServerSettings(trusted_proxies=proxies)
    local = {"x_forwarded_for": "127.0.0.1"} if proxies else {}
    wanted = [(path, local) for path in (CHAT, "/v1/models", "/metrics", "/status.json", "/")]
    found = fetch(*wanted, access=access, server=server)
    assert found == [(401, "invalid_api_key")] * 4 + [(200, None)]
    found = fetch(*wanted, access=access, server=server, admin=True)
    assert found == [(200, None)] * 5
    assert fetch(("/health", {}), access=access) == [(200, None)]


@pytest.mark.parametrize(
    ("peer", "lines", "local"),
    [
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("::ffff:127.0.0.1", None, True),
        ("192.0.2.1", None, False),
        ("", None, False),
        ("10.0.0.5", None, False),
        # From a proxy that is trusted: the last address that no trusted proxy has.
        ("10.0.0.5", ["127.0.0.1"], True),
        ("10.0.0.5", ["127.0.0.1:4711"], True),
        ("10.0.0.5", ["[::1]:4711"], True),
        ("10.0.0.5", ["127.0.0.1, 10.0.0.9"], True),
        ("10.0.0.5", ["127.0.0.1", "10.0.0.9"], True),
        ("10.0.0.5", ["127.0.0.1, 192.0.2.1"], False),
        ("10.0.0.5", ["127.0.0.1", "192.0.2.1"], False),
        ("10.0.0.5", ["127.0.0.1, 192.0.2.1, 10.0.0.9"], False),
        ("10.0.0.5", ["10.0.0.9"], False),
        ("10.0.0.5", ["127.0.0.1, unknown"], False),
        ("10.0.0.5", ["\xe9"], False),
        ("10.0.0.5", [""], False),
        ("10.0.0.5", [], False),
        # From one that is not, nothing counts.
        ("127.0.0.1", ["127.0.0.1"], False),
        ("192.0.2.1", ["127.0.0.1"], False),
    ],
)
def test_the_client_is_the_last_address_before_the_trusted_proxies(peer, lines, local):
    settings = Settings(server=ServerSettings(trusted_proxies=("10.0.0.0/8", "2001:db8::/32")))
    headers = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines or ()]
    scope = {"client": (peer, 1) if peer else None, "headers": headers}
    assert ProxyCheck(settings).is_local(scope, lines is not None) is local
