"""``mild serve --demo``: everything on loopback, nothing to install, no key."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from uvicorn import Config, Server

from mild_gateway.config import AccessSettings, LedgerSettings, ServerSettings, Settings
from mild_gateway.decide import Router, load_router
from mild_gateway.demo.answers import STAND_INS
from mild_gateway.demo.stand_in import StandIn
from mild_gateway.experts.expert import Expert
from mild_gateway.selection.models import CASCADE_MODEL
from mild_gateway.server.process import bind, serve_settings

BUDGET = 10.0
# Dollars per million tokens in and out, and per question: those of the table that the router learned from.
PRICES = {"smollm2": (10.0, 20.0, 0.0), "gemma3": (20.0, 40.0, 0.0), "rules": (0.0, 0.0, 0.0001)}
# Seconds to the first byte of an endpoint: a model on one slow thread ends its answer before it sends it.
PATIENCE = 300.0
# Seconds that a stand-in takes: a little, so that streams can be seen.
SECONDS = {"smollm2": 0.01, "gemma3": 0.03, "rules": 0.0}

_IGNORED = "stand-ins ignore temperature, seed and logprobs, and call one tool at a time"


def demo_router() -> Router:
    """The router of the demo, as it travels with the package."""
    return load_router(Path(__file__).parent / "router")


def demo_router_with_cascade() -> Router:
    """What the demo serves: the router for the model ``mild``, its cascade for ``mild-cascade``."""
    return load_router(Path(__file__).parent / "cascade")


def demo_settings(stand_ins: str, folder: Path, options: dict[str, Any]) -> Settings:
    """Settings of the demo: stand-ins at this address, the ledger in this folder.

    ``endpoints`` in the options, addresses by name, take the places of stand-ins.
    """
    endpoints = options.get("endpoints") or {}
    experts = []
    for name, (price_in, price_out, price_per_query) in PRICES.items():
        base_url = f"{stand_ins}/{name}/v1"
        model = f"{name}-stand-in"
        first_byte_seconds = 60.0
        if name in endpoints:
            base_url = endpoints[name]
            model = name
            first_byte_seconds = PATIENCE
        experts.append(
            Expert(
                name,
                base_url,
                model,
                price_in=price_in,
                price_out=price_out,
                price_per_query=price_per_query,
                embeddings=True,
                first_byte_seconds=first_byte_seconds,
            )
        )
    port = options.get("port")
    if port is None:
        port = 6060
    return Settings(
        tuple(experts),
        host=options.get("host") or "127.0.0.1",
        port=port,
        server=ServerSettings(**options.get("logs", {})),
        access=AccessSettings(budget_day=BUDGET),
        ledger=LedgerSettings(path=folder / "ledger.sqlite", keep_text=True),
        store=str(folder / "store.sqlite"),
        cascade_by_name=True,
    )


def serve_demo(options: dict[str, Any]) -> int:
    """Serve the demo until a signal says to stop; the exit status."""
    listener = bind("127.0.0.1", 0)
    lifeline, held = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            held.close()
            _serve_stand_ins(listener, lifeline)
        finally:
            os._exit(0)
    lifeline.close()
    stand_ins = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    folder = Path(tempfile.mkdtemp(prefix="mild-demo-"))
    try:
        settings = demo_settings(stand_ins, folder, options)
        first_steps = partial(_first_steps, settings)
        return serve_settings(settings, demo_router_with_cascade, "the demo", first_steps)
    finally:
        held.close()
        os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)


def _first_steps(settings: Settings, url: str) -> str:
    """What is printed when the demo serves: its experts, and a request to try."""
    stand_ins = []
    lines = []
    for expert in settings.experts:
        if expert.model.endswith("-stand-in"):
            stand_ins.append(expert.name)
        else:
            lines.append(f"endpoint: {expert.name} at {expert.base_url}")
    names = ", ".join(stand_ins) or "none"
    lines.insert(0, f"stand-in experts: {names}; status page: {url}/")
    if stand_ins:
        lines.append(_IGNORED)
    lines.append(
        f"models: mild asks one expert; {CASCADE_MODEL} asks two, and a third if they disagree"
    )
    lines.append(
        f"try: curl {url}/v1/chat/completions -d "
        '\'{"model": "mild", "messages": [{"role": "user", "content": "What is 17 * 23?"}]}\''
    )
    return "\n" + "\n".join(lines)


def stand_ins_app() -> Callable[[Any, Any, Any], Awaitable[None]]:
    """The stand-ins as one ASGI application: each at ``/NAME/v1``.

    ``uvicorn --factory mild_gateway.demo.serving:stand_ins_app --lifespan off`` serves them without a
    gateway.
    """
    # What it loads is loaded before the first question.
    STAND_INS["smollm2"]("")
    apps = {name: StandIn(f"{name}-stand-in", STAND_INS[name], SECONDS[name]) for name in STAND_INS}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[scope["path"].split("/")[1]](scope, receive, send)

    return app


def _serve_stand_ins(listener: socket.socket, lifeline: socket.socket) -> None:
    """Serve each stand-in at ``/NAME/v1`` until the gateway is gone."""
    gc.enable()
    # Ctrl-C reaches the whole group; the stand-ins end with the gateway.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    options: dict[str, Any] = {"log_config": None, "access_log": False, "lifespan": "off"}
    server = Server(Config(stand_ins_app(), timeout_graceful_shutdown=1, **options))
    # Outside of the main thread uvicorn leaves the signals alone.
    serving = threading.Thread(target=server.run, args=([listener],))
    serving.start()
    # Nothing is ever sent: it ends when the gateway does.
    lifeline.recv(1)
    server.should_exit = True
    serving.join()
