"""``mild reload``"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit

__all__ = ["reload"]


def reload(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the gateway.")] = 6060,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for it.")] = 30.0,
    as_json: o.AsJson = False,
) -> None:
    """Load a new router into a gateway that runs on this machine.

    The gateway reads its router's folder again, checks it and swaps it in; running requests finish with
    the old router. If the new one cannot be used, the old one stays, and this command prints the reason.

    \b
    Example:
      mild reload --port 6060
      mild fit log.parquet --out router --overwrite && mild reload
    """
    from mild.errors import InvalidInputError
    from mild.gateway.server.state import reload_gateway

    found: dict[str, Any] = reload_gateway(port, timeout)
    if found["failed"]:
        raise InvalidInputError(
            f"{found['failed'][0]} The old router {found['router']} stays in use."
        )
    emit(found, as_json, lambda: typer.echo(f"router {found['router']} serves on port {port}"))
