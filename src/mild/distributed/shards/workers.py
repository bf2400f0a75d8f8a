"""Who holds the parts: this process, or actors of a Ray cluster.

Actors are made so that Ray brings back one that died: it starts empty, is asked again, and reads its parts
again. Answers carry the numbers of their parts, and sums are taken in that order, so that neither the
number of workers nor a death changes a single bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from mild.distributed.ray_connection import connect, cores
from mild.distributed.shards.dataset import Dataset, Part
from mild.distributed.shards.holder import Holder
from mild.errors import InvalidInputError, MildError
from mild.evaluation.tasks import CostTerms

__all__ = ["LocalWorkers", "RayWorkers", "Workers", "dealt", "local_workers", "ray_workers"]

# How often a worker may die before the fit gives up.
RESTARTS = 5
#: Seconds in which every worker must have started.
START = 120.0


class Workers(Protocol):
    """Those who hold the parts."""

    def ask(self, question: str, *about: Any) -> list[Any]:
        """The answer of each of them to a question: the name of a method of ``Holder``."""


class LocalWorkers:
    """One holder, in this process."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def ask(self, question: str, *about: Any) -> list[Any]:
        return [getattr(self.holder, question)(*about)]


class RayWorkers:
    """A holder in each of several actors."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        self.ray = ray
        self.actors = list(actors)
        self._sent: dict[int, tuple[Any, Any]] = {}

    def ask(self, question: str, *about: Any) -> list[Any]:
        # What was asked about last time is there already; the object is kept, and so is its id.
        sent = {}
        for value in about:
            known = self._sent.get(id(value))
            sent[id(value)] = known or (value, self.ray.put(value))
        self._sent = sent
        refs = [self._sent[id(value)][1] for value in about]
        answers = [getattr(actor, question).remote(*refs) for actor in self.actors]
        try:
            return list(self.ray.get(answers))
        except self.ray.exceptions.RayTaskError as error:
            cause = error.cause
            if isinstance(cause, MildError):
                raise cause from error
            raise
        except self.ray.exceptions.RayError as error:
            raise MildError(
                f"a worker of Ray died {RESTARTS + 1} times over the same question, or was lost "
                f"({type(error).__name__}). It may want for memory: use more workers, on more machines, or "
                f"smaller shards."
            ) from error


@contextmanager
def local_workers(
    dataset: Dataset, terms: CostTerms, folder: Path | None, threads: int | None = None
) -> Iterator[Workers]:
    """This process.

    Parameters
    ----------
    folder : where features are kept; None for memory
    threads : how many; None for as many as BLAS would use
    """
    yield LocalWorkers(Holder(dataset, dataset.parts, terms, folder, threads))


@contextmanager
def ray_workers(
    dataset: Dataset, terms: CostTerms, address: str | None = None, workers: int | None = None
) -> Iterator[RayWorkers]:
    """Actors that share the parts, each with one processor; they end with the context.

    Parameters
    ----------
    address : of a cluster; None for a Ray on this machine
    workers : actors; None for one per processor of the cluster, and no more than there are parts
    """
    with connect(address, workers) as ray:
        there = int(ray.cluster_resources().get("CPU", cores()))
        lots = dealt(dataset.parts, min(workers or there, len(dataset.parts)))
        options = {"num_cpus": 1, "max_restarts": RESTARTS, "max_task_retries": RESTARTS}
        make = ray.remote(**options)(_actor_class())
        actors = [make.remote(dataset, lot, terms) for lot in lots]
        try:
            _await(ray, actors)
            yield RayWorkers(ray, actors)
        finally:
            for actor in actors:
                ray.kill(actor)


def _actor_class() -> Callable[..., Any]:
    class Worker(Holder):
        """A holder with a name in Ray's lists."""

        def pid(self) -> int:
            """Process of this worker."""
            import os

            return os.getpid()

    return Worker


def _await(ray: Any, actors: Sequence[Any]) -> None:
    """Wait until every actor runs: a cluster without a free processor would keep us forever."""
    pings = [actor.pid.remote() for actor in actors]
    ready, late = ray.wait(pings, num_returns=len(pings), timeout=START)
    if late:
        raise InvalidInputError(
            f"the Ray cluster started {len(ready)} of {len(pings)} workers within {START:.0f} s; the "
            f"others found no free processor. Ask for fewer with --jobs, or wait until it has one."
        )
    ray.get(ready)


def dealt(parts: Sequence[Part], hands: int) -> list[list[Part]]:
    """Neighbouring parts for each of so many hands, with about as many rows.

    Examples
    --------
    >>> parts = [Part(number, "a.parquet", number, number + 1, 10) for number in range(5)]
    >>> [[part.number for part in lot] for lot in dealt(parts, 2)]
    [[0, 1, 2], [3, 4]]
    """
    lots: list[list[Part]] = []
    rest, left = list(parts), sum(part.rows for part in parts)
    for others in range(hands - 1, -1, -1):
        share, lot = left / (others + 1), [rest.pop(0)]
        rows = lot[0].rows
        # Up to its share, as far as every other hand still gets something.
        while len(rest) > others and (not others or rows + rest[0].rows / 2 <= share):
            lot.append(rest.pop(0))
            rows += lot[-1].rows
        lots.append(lot)
        left -= rows
    return lots
