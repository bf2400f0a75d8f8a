"""A joblib back end on Ray tasks.

Ray's own back end starts new workers for every parallel call, returns all results at the end and sends arrays with
every task, so a search of many calls would be slow and could not report progress.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from joblib import parallel_config
from joblib._parallel_backends import FallbackToBackend
from joblib.parallel import ParallelBackendBase, SequentialBackend

from mild.distributed.executors import Submit, result_of
from mild.distributed.ray_connection import connect, ray_pool

__all__ = ["joblib_on_ray"]

# Arrays of so many bytes go to the cluster once, however many tasks use them.
LARGE = 1 << 20
REMEDY = "Run it again, with fewer --jobs or a smaller table."


@contextmanager
def joblib_on_ray(address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """Run the parallel calls of joblib in this context on Ray.

    Parameters
    ----------
    address : of a cluster; None for a Ray on this machine that lives as long as the context
    workers : processors of a Ray on this machine; None for all
    """
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
        self._sent: dict[int, tuple[Any, Any]] = {}

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

    def submit(self, func: Callable[[], Any], callback: Any = None) -> Any:
        future = self._submit(_call, *self._pack(func))
        future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[Any]) -> Any:
        return result_of(future, "a fit", REMEDY)

    def terminate(self) -> None:
        self._pool.close()
        self._sent = {}

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.terminate()
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel)

    def _pack(self, func: Callable[[], Any]) -> tuple[bytes, list[Any]]:
        """The call as bytes, and references to its large arrays, each of which is sent once."""
        references: list[Any] = []
        places: dict[int, int] = {}

        def persistent_id(_: Any, value: Any) -> int | None:
            if type(value) is not np.ndarray or value.nbytes < LARGE or value.dtype.hasobject:
                return None
            if id(value) not in places:
                if id(value) not in self._sent:
                    # The array is kept, too, so that its id is not used again.
                    self._sent[id(value)] = value, self.ray.put(value)
                places[id(value)] = len(references)
                references.append(self._sent[id(value)][1])
            return places[id(value)]

        base = importlib.import_module("ray.cloudpickle").Pickler
        content = io.BytesIO()
        type("Pickler", (base,), {"persistent_id": persistent_id})(content).dump(func)
        return content.getvalue(), references


def _call(_: None, content: bytes, references: list[Any]) -> Any:
    arrays = importlib.import_module("ray").get(references)
    unpickler = pickle.Unpickler(io.BytesIO(content))
    unpickler.persistent_load = arrays.__getitem__  # type: ignore[method-assign]
    return unpickler.load()()
