"""joblib's Ray back end for a whole search: one pool of workers, results as they come, arrays sent once."""

from __future__ import annotations

import importlib
import io
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from mild.distributed.ray_connection import connect
from mild.errors import InvalidInputError, MildError

__all__ = ["joblib_on_ray"]

# Arrays of so many bytes go to the cluster once, however many tasks use them.
LARGE = 1 << 20
# Seconds in which the processors asked for must become free.
PATIENCE = 10.0
# A processor each, so that Ray spreads workers as it spreads everything else.
WORKER = {"num_cpus": 1}


@contextmanager
def joblib_on_ray(address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """Within this context the parallel calls of joblib run on Ray.

    They give what they give on one machine, one after another as they are done; an interrupt ends the
    workers at once.

    Parameters
    ----------
    address : of a cluster; None for a Ray on this machine that lives as long as the context
    workers : processors of a Ray on this machine; None for as many as there are
    """
    with connect(address, workers) as ray:
        from joblib import parallel_config

        theirs = importlib.import_module("ray.util.joblib.ray_backend").RayBackend
        kind: Any = type("SearchBackend", (_SearchBackend, theirs), {})
        backend = kind(ray_remote_args=WORKER)
        backend.ray = ray
        try:
            with parallel_config(backend=backend):
                yield
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            raise MildError(
                f"a worker of Ray died during the search ({type(error).__name__}), perhaps for want of "
                f"memory; run it again, with fewer --jobs or a smaller table."
            ) from error
        finally:
            backend.close()


class _SearchBackend:
    """Set before Ray's back end, less what makes a search of many parallel calls slow and silent.

    Its workers stay from one call to the next, it hands results out one by one, and sends a large array
    once. The methods are joblib's.
    """

    supports_return_generator = True
    ray: Any = None
    nesting_level: Any = None
    parallel: Any = None
    _pool: Any = None
    _kept: tuple[int, Any] | None = None
    _sent: dict[int, tuple[Any, Any]]

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        there = int(self.ray.cluster_resources().get("CPU", 1))
        if n_jobs is None or n_jobs == 1:
            return 1
        return there if n_jobs < 0 else min(n_jobs, there)

    def configure(self, n_jobs: int = 1, parallel: Any = None, *more: Any, **options: Any) -> int:
        from joblib._parallel_backends import FallbackToBackend, SequentialBackend

        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        if self._kept is None or self._kept[0] != n_jobs:
            self.close()
            _check_free(self.ray, n_jobs)
            super().configure(n_jobs, parallel, *more, **options)  # type: ignore[misc]
            self._kept = n_jobs, self._pool
        self._sent = {}
        self._pool, self.parallel = self._kept[1], parallel
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Any = None) -> Any:
        packed = _packed(self.ray, func, self._sent)
        return super().submit(packed, callback)  # type: ignore[misc]

    def terminate(self) -> None:
        """The call is over; the workers wait for the next one."""
        self._pool = None
        super().reset_batch_stats()  # type: ignore[misc]

    def abort_everything(self, ensure_ready: bool = True) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        if self._kept is not None:
            self._kept[1].terminate()
        self._kept = self._pool = None
        self._sent = {}


def _check_free(ray: Any, wanted: int) -> None:
    """Refuse a cluster that is busy: the pool would wait for its processors without a word."""
    deadline = time.monotonic() + PATIENCE
    # Workers that were just ended still hold theirs for a moment.
    while (free := int(ray.available_resources().get("CPU", 0))) < wanted:
        if time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        raise InvalidInputError(
            f"the Ray cluster has {free} free processors of the {wanted} asked for; ask for fewer with "
            f"--jobs, or wait until others are done."
        )


class _Packed:
    """A call as bytes, with its large arrays in Ray's store."""

    def __init__(self, content: bytes, arrays: Sequence[Any]) -> None:
        self.content = content
        self.arrays = list(arrays)

    def __call__(self) -> Any:
        arrays = importlib.import_module("ray").get(self.arrays)

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, place: Any) -> Any:
                return arrays[place]

        return Unpickler(io.BytesIO(self.content)).load()()


def _packed(
    ray: Any, func: Callable[[], Any], sent: dict[int, tuple[Any, Any]]
) -> Callable[[], Any]:
    """The call, with arrays that were not ``sent`` before put into Ray's store."""
    refs: list[Any] = []
    places: dict[int, int] = {}

    def persistent_id(_: Any, value: Any) -> int | None:
        if type(value) is not np.ndarray or value.nbytes < LARGE or value.dtype.hasobject:
            return None
        if id(value) not in places:
            if id(value) not in sent:
                # The array is kept with its place in the store: its id must not come again.
                sent[id(value)] = value, ray.put(value)
            places[id(value)] = len(refs)
            refs.append(sent[id(value)][1])
        return places[id(value)]

    base = importlib.import_module("ray.cloudpickle").Pickler
    pickler: Any = type("Pickler", (base,), {"persistent_id": persistent_id})
    content = io.BytesIO()
    pickler(content).dump(func)
    return _Packed(content.getvalue(), refs)
