"""``torchrun -m mild fit --router neural``: several processes of one command, of which the first speaks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import typer

from mild.cli.console import INTERRUPTED
from mild.exceptions import MildError, OptionError

__all__ = ["leave_writing_to_first", "training_together"]


def _place() -> tuple[int, int]:
    """Number of this process, and how many there are, as torchrun and accelerate say it."""
    try:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1


@contextmanager
def training_together(router: str) -> Iterator[None]:
    """Within this context the processes that torchrun started are a group; all but the first are silent.

    Alone, nothing happens.
    """
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
        if rank == 0:
            yield
            return
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            try:
                yield
            except MildError as error:
                # The first process says it.
                raise typer.Exit(1) from error
            except KeyboardInterrupt as error:
                raise typer.Exit(INTERRUPTED) from error
    finally:
        dist.destroy_process_group()


def leave_writing_to_first() -> None:
    """End this process here, its work being done, unless it is the first or alone."""
    rank, size = _place()
    if size > 1 and rank > 0 and "torch" in sys.modules:
        raise typer.Exit
