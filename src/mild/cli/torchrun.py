"""``torchrun -m mild fit --router neural``: only the first of several processes prints and writes."""

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

#: Seconds that a failing process waits for torchrun to end it because the first one failed, too.
GRACE = 10.0


def _rank_and_size() -> tuple[int, int]:
    """Rank of this process and number of processes, as torchrun and accelerate set them."""
    try:
        return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    except ValueError:
        return 0, 1


def first_process_only(command: Callable[..., None]) -> Callable[..., None]:
    """The command, silent in all processes of torchrun but the first.

    torchrun ends all processes when one fails. An error that the first process does not have is printed
    after some seconds.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        rank, size = _rank_and_size()
        if size <= 1 or rank == 0:
            command(**options)
            return
        try:
            with open(os.devnull, "w") as no, redirect_stdout(no), redirect_stderr(no):
                command(**options)
        except MildError:
            # Failing at once could end the first process before it prints the error. If this process
            # is not ended, the first one does not have the error, and this one reports it.
            time.sleep(GRACE)
            raise
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error

    return run


@contextmanager
def training_together(router: str) -> Iterator[None]:
    """Join the processes that torchrun started into a group; a single process needs none."""
    rank, size = _rank_and_size()
    if size <= 1:
        yield
        return
    if router != "neural":
        raise OptionError(
            f"several processes can only train --router neural; got {router!r}. Run it without torchrun.",
            parameter="router",
        )
    import torch
    import torch.distributed as dist

    # A GPU for each process, or the CPU for all.
    cards = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if cards and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        dist.init_process_group("nccl")
    else:
        dist.init_process_group("gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def leave_writing_to_first() -> None:
    """End this process unless it is the first: its work is done."""
    rank, size = _rank_and_size()
    if size > 1 and rank > 0 and "torch" in sys.modules:
        raise typer.Exit
