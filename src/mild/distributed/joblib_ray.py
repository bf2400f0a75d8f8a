"""A joblib back end on Ray tasks.

Ray's own back end starts new workers for every parallel call, gives all results at the end and sends arrays
with every task. Here workers are reused, results come one by one, and an array is sent once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from itertools import islice
from typing import Any

from joblib import parallel_config
from joblib._parallel_backends import FallbackToBackend
from joblib.parallel import ParallelBackendBase, SequentialBackend

from mild.distributed.executors import Submit, result_of
from mild.distributed.ray_connection import connect, ray_pool

REMEDY = "Run it again, with fewer --jobs or a smaller table."


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
        self._pool = ExitStack()
        self._submit: Submit
        self._references: dict[int, tuple[Any, Any]] = {}

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs is None or n_jobs == 1:
            return 1
        processors = int(self.ray.cluster_resources().get("CPU", 1))
        return processors if n_jobs < 0 else min(n_jobs, processors)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **options: Any) -> int:
        self.parallel = parallel
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        self._submit = self._pool.enter_context(ray_pool(self.ray, n_jobs, None))
        return n_jobs

    def get_nested_backend(self) -> tuple[Any, None]:
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def submit(self, func: Any, callback: Any = None) -> Any:
        calls = [(function, len(values), list(named)) for function, values, named in func.items]
        arguments = [v for _, values, named in func.items for v in (*values, *named.values())]
        future = self._submit(_call, calls, *map(self._sent, arguments))
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        return result_of(future, "a fit", REMEDY)

    def terminate(self) -> None:
        self._pool.close()
        self._references = {}

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)

    def _sent(self, value: Any) -> Any:
        """A reference to an array or dataclass, which many calls share; other arguments as they are."""
        if not (hasattr(value, "shape") or is_dataclass(value)):
            return value
        if id(value) not in self._references:
            # The value is kept, too, so that its id is not used again.
            self._references[id(value)] = value, self.ray.put(value)
        return self._references[id(value)][1]


def _call(
    _: None, calls: Sequence[tuple[Callable[..., Any], int, list[str]]], *arguments: Any
) -> Any:
    rest = iter(arguments)
    return [
        function(*islice(rest, count), **dict(zip(names, rest, strict=False)))
        for function, count, names in calls
    ]
