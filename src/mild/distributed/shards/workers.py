"""Where the workers are: in this process, or actors of a Ray cluster.

Ray restarts an actor that died; it starts empty, is called again, and reads its partitions again. Answers
carry the numbers of their partitions and are summed in that order, so that neither the number of workers
nor a restart changes a single bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mild.distributed.executors import cores, result_of
from mild.distributed.ray_connection import RETRIES, connect
from mild.distributed.shards.dataset import Dataset
from mild.distributed.shards.worker import ShardWorker
from mild.errors import InvalidInputError
from mild.evaluation.tasks import CostTerms

__all__ = ["RayWorkers", "Workers", "in_order", "local_workers", "ray_workers"]

# Seconds in which every actor must have started.
START = 120.0


class Workers:
    """The workers that together hold all partitions: one, in this process."""

    def __init__(self, worker: Any = None) -> None:
        self.worker = worker

    def call(self, method: str, *arguments: Any) -> list[Any]:
        """The result of a method of ``ShardWorker``, from each worker."""
        return [getattr(self.worker, method)(*arguments)]


class RayWorkers(Workers):
    """One worker in each of several actors."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        super().__init__()
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
        remedy = "Use more workers, on more machines, or smaller shards."
        return [result_of(answer.future(), "some shards", remedy) for answer in answers]


def in_order(answers: Sequence[Sequence[tuple[int, Any]]]) -> list[Any]:
    """Results of all workers' partitions, in the order of the partitions."""
    results = [one for answer in answers for one in answer]
    return [result for _, result in sorted(results, key=lambda one: one[0])]


@contextmanager
def local_workers(
    dataset: Dataset, terms: CostTerms, folder: Path | None, threads: int | None = None
) -> Iterator[Workers]:
    """A worker in this process; for the parameters see ``ShardWorker``."""
    yield Workers(ShardWorker(dataset, dataset.partitions, terms, folder, threads))


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
        count = min(workers or processors, len(dataset.partitions))
        make = ray.remote(num_cpus=1, max_restarts=RETRIES, max_task_retries=RETRIES)(ShardWorker)
        shares = [dataset.partitions[k::count] for k in range(count)]
        actors = [make.remote(dataset, share, terms) for share in shares]
        try:
            # A cluster without a free processor would block for ever.
            pings = [actor.pid.remote() for actor in actors]
            ready, late = ray.wait(pings, num_returns=count, timeout=START)
            if late:
                raise InvalidInputError(
                    f"the Ray cluster started {len(ready)} of {count} workers within {START:.0f} s; the "
                    f"others found no free processor. Ask for fewer with --jobs, or wait until it has one.",
                    parameter="workers",
                )
            yield RayWorkers(ray, actors)
        finally:
            for actor in actors:
                ray.kill(actor)
