"""Where the workers are: in this process, or actors of a Ray cluster.

Ray restarts an actor that died; it starts empty, is called again, and reads its partitions again. Answers
carry the numbers of their partitions and are summed in that order, so that neither the number of workers
nor a restart changes a single bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mild.distributed.partitions import Partition
from mild.distributed.ray_connection import connect, cores
from mild.distributed.shards.dataset import Dataset
from mild.distributed.shards.worker import ShardWorker
from mild.errors import InvalidInputError, MildError
from mild.evaluation.tasks import CostTerms

__all__ = [
    "LocalWorkers",
    "RayWorkers",
    "Workers",
    "in_order",
    "local_workers",
    "ray_workers",
    "share",
]

# How often a worker may die before the fit fails.
RESTARTS = 5
#: Seconds in which every worker must have started.
START = 120.0


class Workers(Protocol):
    """The workers that together hold all partitions."""

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """The result of a method of ``ShardWorker``, from each worker."""


class LocalWorkers:
    """One worker, in this process."""

    def __init__(self, worker: ShardWorker) -> None:
        self.worker = worker

    def call(self, method: str, *arguments: Any) -> list[Any]:
        return [getattr(self.worker, method)(*arguments)]


class RayWorkers:
    """One worker in each of several actors."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        self.ray = ray
        self.actors = list(actors)
        self._sent: dict[int, tuple[Any, Any]] = {}

    def call(self, method: str, *arguments: Any) -> list[Any]:
        # Arguments of the last call are in Ray's store already. They are kept, so that ids stay unique.
        self._sent = {
            id(value): self._sent.get(id(value)) or (value, self.ray.put(value))
            for value in arguments
        }
        refs = [self._sent[id(value)][1] for value in arguments]
        answers = [getattr(actor, method).remote(*refs) for actor in self.actors]
        try:
            return list(self.ray.get(answers))
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, MildError):
                raise error.cause from error
            raise
        except self.ray.exceptions.RayError as error:
            raise MildError(
                f"a Ray worker died {RESTARTS + 1} times in the same call, or was lost "
                f"({type(error).__name__}). It may be short of memory: use more workers, on more machines, "
                f"or smaller shards."
            ) from error


def in_order(answers: Sequence[Sequence[tuple[int, Any]]]) -> list[Any]:
    """Results of all workers' partitions, in the order of the partitions."""
    results = [one for answer in answers for one in answer]
    return [result for _, result in sorted(results, key=lambda one: one[0])]


@contextmanager
def local_workers(
    dataset: Dataset, terms: CostTerms, folder: Path | None, threads: int | None = None
) -> Iterator[Workers]:
    """A worker in this process; for the parameters see ``ShardWorker``."""
    yield LocalWorkers(ShardWorker(dataset, dataset.partitions, terms, folder, threads))


@contextmanager
def ray_workers(
    dataset: Dataset, terms: CostTerms, address: str | None = None, workers: int | None = None
) -> Iterator[RayWorkers]:
    """Actors that share the partitions, each with one processor; they end with the context.

    Parameters
    ----------
    address : of a cluster; None for a Ray on this machine
    workers : actors; None for one per processor of the cluster, and no more than there are partitions
    """
    with connect(address, workers) as ray:
        processors = int(ray.cluster_resources().get("CPU", cores()))
        shares = share(dataset.partitions, min(workers or processors, len(dataset.partitions)))
        options = {"num_cpus": 1, "max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        make = ray.remote(**options)(ShardWorker)
        actors = [make.remote(dataset, own, terms) for own in shares]
        try:
            _await(ray, actors)
            yield RayWorkers(ray, actors)
        finally:
            for actor in actors:
                ray.kill(actor)


def _await(ray: Any, actors: Sequence[Any]) -> None:
    """Wait until every actor runs; a cluster without a free processor would block for ever."""
    pings = [actor.pid.remote() for actor in actors]
    ready, late = ray.wait(pings, num_returns=len(pings), timeout=START)
    if late:
        raise InvalidInputError(
            f"the Ray cluster started {len(ready)} of {len(pings)} workers within {START:.0f} s; the "
            f"others found no free processor. Ask for fewer with --jobs, or wait until it has one.",
            parameter="workers",
        )
    ray.get(ready)


def share(partitions: Sequence[Partition], workers: int) -> list[list[Partition]]:
    """Neighbouring partitions for each worker, with about as many rows; none goes empty."""
    shares: list[list[Partition]] = []
    rest, left = list(partitions), sum(part.rows for part in partitions)
    for others in range(workers - 1, -1, -1):
        target, own = left / (others + 1), [rest.pop(0)]
        rows = own[0].rows
        while len(rest) > others and (not others or rows + rest[0].rows / 2 <= target):
            own.append(rest.pop(0))
            rows += own[-1].rows
        shares.append(own)
        left -= rows
    return shares
