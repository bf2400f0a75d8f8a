"""Ask experts everything that the ledger does not know yet.

What is guaranteed: an answer counts once it is committed to the ledger, and a request whose answer is
there is never sent again. A run that is killed loses at most the requests in flight, ``concurrency``
per expert; those are asked again, and what they may have cost counts as spent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from mild.collect.desk import Desk, Progress, Queue
from mild.collect.ledger import Ledger
from mild.collect.questions import Question
from mild.collect.runs import ExpertRun
from mild.endpoints.asking import make_asker, redactor
from mild.endpoints.limits import Budget
from mild.errors import MildError, OptionError

__all__ = ["collect"]


async def collect(
    runs: Sequence[ExpertRun],
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    secrets: Mapping[str, str] | None = None,
    max_spend: float | None = None,
    progress: Progress | None = None,
    stop: asyncio.Event | None = None,
    seed: int | None = None,
) -> None:
    """Ask what is pending; the runs are filled as answers arrive.

    Parameters
    ----------
    runs : from ``plan_runs``
    questions : the same
    ledger : where every answer goes first
    secrets : API keys by name of the expert
    max_spend : dollars that all runs on this ledger may have spent together, None for no limit
    progress : called with (done, total, message)
    stop : when set, nothing new is asked and what is in flight is waited for
    seed : of the jitter between attempts
    """
    hidden = dict(secrets or {})
    if max_spend is not None:
        _need_prices(runs)
    # One writer: the ledger is used by this thread alone while experts are asked.
    with ThreadPoolExecutor(1, "ledger") as writer:
        desk = Desk(
            questions,
            ledger,
            writer,
            Budget(max_spend, ledger.spent()),
            redactor(hidden.values()),
            stop or asyncio.Event(),
            random.Random(seed),
        )
        try:
            async with AsyncExitStack() as open_askers, asyncio.TaskGroup() as group:
                desk.watch(runs, progress)
                for run in runs:
                    if not run.pending():
                        continue
                    asker = make_asker(run.expert, hidden.get(run.expert.name))
                    await open_askers.enter_async_context(asker)
                    queue = Queue(run, asker)
                    for _ in range(min(run.expert.concurrency, len(run.pending()))):
                        group.create_task(desk.work(queue))
        except BaseExceptionGroup as errors:
            known = errors.subgroup(MildError)
            if known is None:
                raise
            raise _first(known) from None


def _need_prices(runs: Sequence[ExpertRun]) -> None:
    missing = [run.expert.name for run in runs if not run.expert.price.known]
    if missing:
        raise OptionError(
            f"max_spend needs the price of every expert; {missing[0]!r} has none. Set price_in and "
            f"price_out, or price_per_query (0 if it is free)."
        )


def _first(errors: BaseExceptionGroup[MildError]) -> MildError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
