"""A joblib back end on Ray tasks.

Ray's own back end starts new workers for every parallel call, gives all results at the end and sends arrays
with every task. Here workers are reused, results come one by one, and an array is sent once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

from joblib import parallel_config
from joblib._parallel_backends import FallbackToBackend
from joblib.parallel import ParallelBackendBase, SequentialBackend
from threadpoolctl import threadpool_limits

from mild.batch.ray_connection import RETRIES, connect, worker_errors

REMEDY = "Run it again, with a smaller n_jobs=NUMBER or a smaller table."


@contextmanager
def joblib_on_ray(address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """Run the parallel calls of joblib in this context on Ray; for the parameters see ``connect``."""
    with connect(address, workers) as ray, parallel_config(backend=RayBackend(ray)):
        yield


class RayBackend(ParallelBackendBase):  # type: ignore[misc]
    """Every batch of calls is a Ray task."""

    supports_retrieve_callback = True

    def __init__(self, ray: Any = None, **options: Any) -> None:
        super().__init__(**options)
        self.ray = ray
        self._answers: list[Any] = []
        # Id of an argument -> the argument, kept so that its id is not used again, and its reference.
        self._references: dict[int, tuple[Any, Any]] = {}

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs is None or n_jobs == 1:
            return 1
        processors = int(self.ray.cluster_resources().get("CPU", 1))
        if n_jobs < 0:
            return processors
        return min(n_jobs, processors)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        self.parallel = parallel
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        return n_jobs

    def get_nested_backend(self) -> tuple[Any, None]:
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def submit(self, func: Any, callback: Any = None) -> Any:
        calls = []
        arguments = []
        for function, values, named_values in func.items:
            calls.append((function, len(values), list(named_values)))
            for value in (*values, *named_values.values()):
                arguments.append(self._sent(value))
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(run_calls)
        answer = task.remote(calls, *arguments)
        self._answers.append(answer)
        future = answer.future()
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        with worker_errors(REMEDY):
            return future.result()

    def terminate(self) -> None:
        for answer in self._answers:
            self.ray.cancel(answer)
        self._answers = []
        self._references = {}

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()

    def _sent(self, value: Any) -> Any:
        """A reference to an array or dataclass, which many calls share; other arguments as they are."""
        if not (hasattr(value, "shape") or is_dataclass(value)):
            return value
        if id(value) not in self._references:
            self._references[id(value)] = (value, self.ray.put(value))
        return self._references[id(value)][1]


def run_calls(
    calls: Sequence[tuple[Callable[..., Any], int, list[str]]], *arguments: Any
) -> list[Any]:
    """On a worker: make the calls, with one thread for linear algebra.

    A call is a function, the number of its positional arguments and the names of the others.
    """
    remaining = iter(arguments)
    results = []
    with threadpool_limits(1):
        for function, count, names in calls:
            values = list(islice(remaining, count))
            named_values = dict(zip(names, islice(remaining, len(names)), strict=True))
            results.append(function(*values, **named_values))
    return results
