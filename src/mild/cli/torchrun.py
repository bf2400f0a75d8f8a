"""``torchrun -m mild fit --router neural``: several processes of one command, of which the first speaks."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

import typer

from mild.cli.console import INTERRUPTED
from mild.errors import MildError, OptionError

__all__ = ["leave_writing_to_first", "one_voice", "training_together"]

#: Seconds for which a process that fails waits until torchrun ends it because the first one failed.
GRACE = 10.0


def _place() -> tuple[int, int]:
    """Number of this process, and how many there are, as torchrun and accelerate say it."""
    try:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1


def one_voice(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, silent in all processes of torchrun but the first; torchrun ends all with one that fails.

    An error that the first process does not have is said after some seconds.
    """

    @functools.wraps(verb)
    def run(**options: Any) -> None:
        rank, size = _place()
        if size <= 1 or rank == 0:
            verb(**options)
            return
        try:
            with open(os.devnull, "w") as no, redirect_stdout(no), redirect_stderr(no):
                verb(**options)
        except MildError:
            # Ending at once could end the first process before it says it. If nobody ends us, the first
            # process does not have this error, and it is for us to say.
            time.sleep(GRACE)
            raise
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error

    return run


@contextmanager
def training_together(router: str) -> Iterator[None]:
    """Within this context the processes that torchrun started are a group. Alone, nothing happens."""
    rank, size = _place()
    if size <= 1:
        yield
        return
    if router != "neural":
        raise OptionError(
            f"several processes train --router neural together; got {router!r}. Run it without torchrun."
        )
    import torch
    import torch.distributed as dist

    local = int(os.environ.get("LOCAL_RANK", rank))
    # A device each, or all on their processors.
    cards = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if cards and torch.cuda.is_available():
        torch.cuda.set_device(local)
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def leave_writing_to_first() -> None:
    """End this process here, its work being done, unless it is the first or alone."""
    rank, size = _place()
    if size > 1 and rank > 0 and "torch" in sys.modules:
        raise typer.Exit
