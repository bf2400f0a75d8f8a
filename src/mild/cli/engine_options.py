"""Where the work is done: options of the verbs that can leave this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from mild.errors import OptionError, check_option

__all__ = ["Address", "Engine", "check_engine", "on_engine"]

Engine = Annotated[
    str, typer.Option(help="Where the work is done: local (this process) or ray (a Ray cluster).")
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster to use, with --engine ray. Default: a Ray on this machine, meanwhile.",
    ),
]


def check_engine(engine: str, address: str | None) -> str:
    """Refuse an engine that mild does not know, and an address that nobody would use.

    Examples
    --------
    >>> check_engine("ray", "10.0.0.7:6379")
    'ray'
    """
    from mild.distributed.ray_connection import ENGINES

    check_option("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise OptionError("--address is for --engine ray; leave it out, or add --engine ray.")
    return engine


@contextmanager
def on_engine(engine: str, address: str | None, jobs: int | None = None) -> Iterator[None]:
    """Within this context the parallel fits of a search run where the options say."""
    if engine != "ray":
        yield
        return
    from mild.distributed.joblib_ray import joblib_on_ray

    with joblib_on_ray(address, jobs if jobs is not None and jobs > 0 else None):
        yield
