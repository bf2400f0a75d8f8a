"""``mild serve``"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from mild.errors import InvalidInputError

LogFormat = StrEnum("LogFormat", ("text", "json"))
LogLevel = StrEnum("LogLevel", ("debug", "info", "warning", "error"))


def serve(
    router: Annotated[
        Path | None,
        Argument(help="Folder of a saved router. Default: the one in the file.", metavar="DIR"),
    ] = None,
    config: Annotated[Path | None, Option("--config", "-c", help="mild.toml.")] = None,
    host: Annotated[str | None, Option(help="Address to listen on.")] = None,
    port: Annotated[
        int | None, Option(min=0, max=65535, help="Port to listen on; 0 for a free one.")
    ] = None,
    workers: Annotated[int | None, Option(min=1, max=256, help="Worker processes.")] = None,
    tls_certificate: Annotated[
        Path | None, Option(help="PEM file of a certificate: serve HTTPS.", metavar="FILE")
    ] = None,
    tls_key: Annotated[
        Path | None, Option(help="PEM file of its private key.", metavar="FILE")
    ] = None,
    log_format: Annotated[
        LogFormat | None, Option(help="Log lines as text, or as JSON; or in the file.")
    ] = None,
    log_level: Annotated[
        LogLevel | None, Option(help="Least level of log lines; or in the file.")
    ] = None,
    demo: Annotated[
        bool, Option("--demo", help="Built-in simulated experts and a router for them; no key.")
    ] = False,
    endpoint: Annotated[
        list[str] | None,
        Option(help="With --demo: endpoint of an expert; may be repeated.", metavar="NAME=URL"),
    ] = None,
) -> None:
    """Serve a router as one OpenAI-compatible model.

    Clients change the base URL and the model name only. With model mild the router chooses the expert;
    router-mild-<t> weighs prices by t (larger is cheaper); the name of an expert selects that expert.

    A new version in the router's folder serves within a second or two, without a restart. Ctrl-C or SIGTERM
    waits for running requests, then stops; a second one ends them.

    \b
    Example:
      mild serve --demo
      curl localhost:6060/v1/chat/completions -d '{"model": "mild",
        "messages": [{"role": "user", "content": "What is 17 * 23?"}]}'
      mild serve router --config mild.toml --workers 2
    """
    import json
    import os
    import sys

    if endpoint and not demo:
        raise InvalidInputError(
            "--endpoint replaces an expert of --demo; name other experts in a file, with --config.",
            parameter="endpoint",
        )
    if (tls_certificate is None) != (tls_key is None) or (demo and tls_key is not None):
        raise InvalidInputError(
            "--tls-certificate and --tls-key must be given together, and not with --demo.",
            parameter="tls_key",
        )
    endpoints: dict[str, str] = {}
    if demo:
        from mild_gateway.demo.answers import read_endpoints

        endpoints = read_endpoints(endpoint or [])
        _check_demo(router, config, host, workers)
    elif config is None:
        raise InvalidInputError(
            "the experts must be named in a file: mild serve DIR --config mild.toml. "
            "To try it without experts: mild serve --demo.",
            parameter="config",
        )
    logs: dict[str, str] = {}
    if log_format is not None:
        logs["log_format"] = log_format
    if log_level is not None:
        logs["log_level"] = log_level
    options = {
        "router": router,
        "config": config,
        "host": host,
        "port": port,
        "workers": workers,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "logs": logs,
        "demo": demo,
        "endpoints": endpoints,
    }
    # Replace this process, so that the server does not keep the command line in memory.
    sys.stdout.flush()
    sys.stderr.flush()
    command = [sys.executable, "-m", "mild_gateway.server", json.dumps(options, default=str)]
    os.execv(sys.executable, command)


def _check_demo(
    router: Path | None, config: Path | None, host: str | None, workers: int | None
) -> None:
    """Refuse options that the demo does not take."""
    from mild_gateway.experts.expert import is_loopback

    if host is not None and not is_loopback(host):
        raise InvalidInputError(
            f"--demo listens only on this machine, because it needs no key; got --host {host}. "
            "To serve other machines, use a router with --config.",
            parameter="host",
        )
    if router is not None or config is not None:
        raise InvalidInputError(
            "--demo has its own router and experts; leave out DIR and --config.",
            parameter="demo",
        )
    if workers is not None and workers > 1:
        raise InvalidInputError(
            f"--demo runs in one process; got --workers {workers}. Leave it out.",
            parameter="workers",
        )
