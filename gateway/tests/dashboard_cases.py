"""A board over a ledger with an hour of traffic, and a small server for its page."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np

from ledger_cases import Keep, record, write_all
from mild.artifact import Router, RouterInfo
from mild.policies import ConstantPolicy
from mild_gateway.dashboard import Dashboard, page_bytes

NAMES = ["calculator", "atlas", "scholar"]
NOW = 1_800_000_000.0
TRAINED = {"calculator": 0.45, "atlas": 0.35, "scholar": 0.2}


def make_router(names=NAMES, shares=TRAINED, rows=1200, **notes):
    """A router with these shares in its notes."""
    if shares is not None:
        notes["shares"] = {"rows": rows, "experts": dict(shares)}
    policy = ConstantPolicy(np.zeros(len(names)), 1)
    return Router(policy, names, info=RouterInfo.from_notes(notes))


def make_settings(
    path=None, keep_text=False, explore=0.05, price_weight=None, experts=(), target=None
):
    """As much of the settings as the board looks at."""
    return SimpleNamespace(
        experts=experts,
        ledger=Keep(path, keep_text),
        routing=SimpleNamespace(explore=explore, price_weight=price_weight, target=target),
        cascade_by_name=False,
    )


def make_spend():
    """A day and a month, one key near its end."""

    def line(spent, budget, held=0.0):
        return {"spent": spent, "held": held, "lost": 0.0, "budget": budget}

    return {
        "day": {"name": "2027-01-15", "renews": NOW + 7200},
        "month": {"name": "2027-01", "renews": NOW + 86_400 * 16},
        "all": {"day": line(6.2314, 10.0, 0.4), "month": line(81.5, 200.0)},
        "keys": {
            "support-team": {"day": line(1.87, 2.0), "month": line(20.4, None)},
            "alice": {"day": line(0.0123, None), "month": line(3.5, 50.0)},
            "night-batch": {"day": line(2.0, 2.0), "month": line(30.25, None)},
        },
        "trouble": None,
    }


def make_records(count=700, shares=(0.45, 0.35, 0.2), names=NAMES, seed=0, text=None):
    """An hour of traffic that ends now."""
    rng = np.random.default_rng(seed)
    records = []
    for number in range(count):
        chosen = names[rng.choice(len(names), p=shares)]
        expert, outcome, status = chosen, "ok", 200
        luck = rng.random()
        if luck < 0.02:
            expert, outcome, status = None, "failed", 502
        elif luck < 0.05:
            expert = names[(names.index(chosen) + 1) % len(names)]
        elif luck < 0.06:
            outcome = "cut"
        slow = {names[0]: 20.0, names[1]: 120.0, names[-1]: 900.0}.get(expert, 300.0)
        age = 3500 * (1 - number / count) ** 1.3
        records.append(
            record(
                number,
                time=NOW - age,
                key=rng.choice(["alice", "support-team", "night-batch"]),
                expert=expert,
                chosen=chosen,
                outcome=outcome,
                status=status,
                propensity=0.0167 if rng.random() < 0.04 else 0.967,
                pinned_by="r0" if rng.random() < 0.1 else None,
                price=None if expert is None else float(rng.gamma(2, 2e-4)),
                latency_ms=float(slow * rng.lognormal(0, 0.4)),
                first_byte_ms=slow / 3,
                overhead_ms=float(0.6 + rng.random() / 3),
                streamed=bool(rng.random() < 0.3),
                text=text,
            )
        )
    return records


# How often the page asks for its status, and how often in a test, which waits for it.
PACE = b"PACE = 2000"
PACE_OF_TESTS = b"PACE = 300"
PUBLISHED = {
    "router": "3f9a61c2d4e8b7aa",
    "in_flight": 4,
    "asked_last": {"calculator": False, "atlas": False, "scholar": True},
    "capacity": {name: {"in_flight": 2, "max_in_flight": 50} for name in NAMES},
    "started": NOW - 86_400,
    "draining": False,
}


def make_document(path, records=(), spend=make_spend, router=None, document=PUBLISHED, **settings):
    """The status over a ledger of these records."""
    if records:
        write_all(path, records, clock=lambda: NOW, keep_text=settings.get("keep_text", False))
    ledger = SimpleNamespace(published=document, state=lambda: {"dropped": 0, "trouble": None})
    board = Dashboard(
        make_settings(path, **settings), router or make_router(), spend, ledger, clock=lambda: NOW
    )
    return asyncio.run(board.document())


@contextmanager
def serving(document):
    """Serve the page with a status that may be changed: ``served.document``; None lets it fail.

    With ``served.key``, the status needs that key.
    """
    page_with_pace = page_bytes()
    assert page_with_pace.count(PACE) == 1
    page_with_pace = page_with_pace.replace(PACE, PACE_OF_TESTS)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page = self.path == "/"
            if not page and (self.path != "/status.json" or served.document is None):
                self.send_error(503)
                return
            served.keys.append(self.headers.get("Authorization"))
            is_open = page or served.key is None
            if not is_open and self.headers.get("Authorization") != f"Bearer {served.key}":
                self.send_error(401)
                return
            body = page_with_pace if page else json.dumps(served.document).encode()
            self.send_response(200)
            self.send_header(
                "Content-Type", "text/html; charset=utf-8" if page else "application/json"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    address = f"http://127.0.0.1:{server.server_port}/"
    served = SimpleNamespace(
        document=document,
        key=None,
        keys=[],
        address=address,
        page=SimpleNamespace(as_uri=lambda: address),
    )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
