"""The engine on Ray: Ray Data maps one function over a dataset whose rows are our partitions.

``ray.data.read_parquet`` chooses its own blocks, so its output files would differ from those of the local
engine. Here a row is a partition and a task routes a block of them, so both engines write the same files
and each continues a job of the other. Ray Data decides where and when blocks run, and repeats one whose
worker was lost.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import pickle
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs
from threadpoolctl import threadpool_limits

from mild.artifact import LoadedRouter, load
from mild.data.parquet_files import open_system
from mild.distributed.batch.job import Job, prepare
from mild.distributed.batch.routing import RoutedPartition, route_partition
from mild.distributed.partitions import Partition
from mild.distributed.ray_connection import check_ray, connect, patient
from mild.errors import DataFileError, MildError, MissingExtraError

__all__ = ["check_ray_data", "route_on_ray"]

# How often a block is repeated whose worker was lost.
RETRIES = 5
# A block costs the driver 10 ms: small partitions share one, up to these bytes and this number ...
BLOCK_BYTES = 16 << 20
BLOCK_PARTITIONS = 64
# ... as long as every processor gets this many blocks.
BLOCKS_EACH = 16
MISSING = 'Ray Data needs the package pandas; install it with pip install "mild-learn[ray]".'
# A partition may take long, and so may a cluster that others use. Reservations are for operators that
# compete; ours is alone, and they would leave one of two processors idle most of the time.
SETTINGS = {
    "enable_progress_bars": False,
    "execution_no_progress_timeout_s": -1,
    "op_resource_reservation_enabled": False,
}


def check_ray_data(address: str | None = None) -> None:
    """Refuse what ``route_on_ray`` would refuse, before other work is done."""
    check_ray(address)
    if importlib.util.find_spec("pandas") is None:
        raise MissingExtraError(MISSING)


def route_on_ray(
    job: Job,
    todo: Sequence[Partition],
    address: str | None = None,
    workers: int | None = None,
    notice: Callable[[str], None] | None = None,
) -> Generator[RoutedPartition, None, None]:
    """Route partitions on Ray and yield each result as it is done.

    The router is sent to the workers. The input and the output must have the same names on all machines.

    Parameters
    ----------
    job, todo : the job, and which of its partitions
    address : of a cluster; None for a Ray on this machine
    workers : partitions that are routed at a time; None for one per processor
    notice : called with a message when no processor is free and nothing begins
    """
    with connect(address, workers) as ray:
        files = {
            file.name: file.read_bytes() for file in Path(job.folder).iterdir() if file.is_file()
        }
        # In a list: Ray passes the reference in it as it is, to be fetched once in each process.
        shared = {"token": job.token, "shared": [ray.put((job, files))]}
        at_a_time = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        words = todo, block_count(todo, at_a_time), shared, workers
        client = _is_client(ray)
        with (
            closing(_mapped_by_actor(ray, *words) if client else _mapped(*words)) as results,
            patient(ray, notice, begun=lambda: bool(_unfinished(job))) as arrived,
            _lost_workers_named(ray, job, todo),
        ):
            for content in results:
                arrived()
                result = pickle.loads(content)
                if isinstance(result, MildError):
                    raise result
                yield result


def block_count(todo: Sequence[Partition], at_a_time: int) -> int:
    """Number of blocks: enough for so many workers, and no block too large."""
    by_bytes = -(-sum(partition.size for partition in todo) // BLOCK_BYTES)
    by_number = -(-len(todo) // BLOCK_PARTITIONS)
    return min(len(todo), max(BLOCKS_EACH * at_a_time, by_bytes, by_number))


def route_task(row: Mapping[str, Any], token: str, shared: Sequence[Any]) -> dict[str, bytes]:
    """On a worker: route a partition. An error of ours is returned, so that its message is kept."""
    result: RoutedPartition | MildError
    try:
        with threadpool_limits(1):
            job, router = _loaded_job(token, shared[0])
            result = route_partition(job, router, pickle.loads(row["partition"]))
    except MildError as error:
        result = error
    return {"result": pickle.dumps(result)}


_loaded: dict[str, tuple[Job, LoadedRouter]] = {}


def _loaded_job(token: str, reference: Any) -> tuple[Job, LoadedRouter]:
    """The job and its router, loaded once in each process."""
    if token not in _loaded:
        job, files = importlib.import_module("ray").get(reference)
        with tempfile.TemporaryDirectory(prefix="mild-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            router = load(folder)
        _loaded.clear()
        _loaded[token] = job, prepare(router, job.options)
    return _loaded[token]


def _mapped(
    todo: Sequence[Partition], blocks: int, shared: Mapping[str, Any], workers: int | None
) -> Generator[bytes, None, None]:
    """Results of ``route_task`` as they are done; closing the generator ends running tasks."""
    items = [{"partition": pickle.dumps(partition)} for partition in todo]
    with _ray_data() as data, warnings.catch_warnings():
        # Ray 2.60 deprecates the number of retries and has no replacement.
        warnings.simplefilter("ignore")
        partitions = data.from_items(items, override_num_blocks=blocks)
        routed = partitions.map(
            route_task,
            fn_kwargs=shared,
            num_cpus=1,
            compute=data.TaskPoolStrategy(size=None if workers is None else min(workers, blocks)),
            **_retries(partitions.map),
        )
        batches = iter(routed.iter_batches(batch_size=None, batch_format="pyarrow"))
        with closing(batches):
            for batch in batches:
                yield from batch.column("result").to_pylist()


def _mapped_by_actor(
    ray: Any, todo: Sequence[Partition], *words: Any
) -> Generator[bytes, None, None]:
    """The same for a client, ``ray://``, which has no Ray Data: an actor in the cluster uses it."""
    actor = ray.remote(num_cpus=0)(DataActor).remote(todo, *words)
    try:
        while (content := ray.get(actor.next_result.remote())) is not None:
            yield content
    finally:
        ray.kill(actor)


class DataActor:
    """In the cluster: uses Ray Data on behalf of a client."""

    def __init__(
        self, todo: Sequence[Partition], blocks: int, shared: Mapping[str, Any], workers: int | None
    ) -> None:
        self.ray = importlib.import_module("ray")
        self.job = self.ray.get(shared["shared"][0])[0]
        self.todo = todo
        self.results = _mapped(todo, blocks, shared, workers)

    def next_result(self) -> bytes | None:
        """The next result; None if there are no more."""
        try:
            with _lost_workers_named(self.ray, self.job, self.todo):
                return next(self.results, None)
        except MildError as error:
            return pickle.dumps(error)


def _is_client(ray: Any) -> bool:
    return bool(ray.util.client.ray.is_connected())


def _retries(method: Any) -> dict[str, int]:
    """The number of retries, where Ray Data takes one; by default it tries for ever."""
    known = inspect.signature(method).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return {"max_retries": RETRIES} if free or "max_retries" in known else {}


@contextmanager
def _ray_data() -> Iterator[Any]:
    """The module ``ray.data`` without its progress bars and its log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = importlib.import_module("ray.data")
        except ImportError as error:
            raise MissingExtraError(MISSING) from error
        context = data.DataContext.get_current()
    log = logging.getLogger("ray.data")
    before = {name: getattr(context, name) for name in SETTINGS if hasattr(context, name)}
    level = log.level
    for name in before:
        setattr(context, name, SETTINGS[name])
    log.setLevel(logging.CRITICAL)
    try:
        yield data
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)


@contextmanager
def _lost_workers_named(ray: Any, job: Job, todo: Sequence[Partition]) -> Iterator[None]:
    """Turn the loss of workers into a message; unexpected errors keep their traceback."""
    try:
        yield
    except (ray.exceptions.RayTaskError, ray.exceptions.UserCodeException):
        raise
    except ray.exceptions.RayError as error:
        tries = _unfinished(job)
        cause = next((part for part in todo if tries[part.name] > RETRIES), None)
        what = f"part {cause.number} ({cause.path})" if cause else "a part"
        raise DataFileError(
            f"the workers that routed {what} were lost ({type(error).__name__}); out of memory, perhaps. "
            f"Finished parts stay; run it again, with fewer --jobs."
        ) from error


def _unfinished(job: Job) -> Counter[str]:
    """How often each part was begun and not finished, as far as the file system shows it."""
    system, _ = open_system(job.out)
    try:
        files = system.get_file_info(fs.FileSelector(job.unfinished, allow_not_found=True))
    except (pa.ArrowException, OSError):
        return Counter()
    return Counter(file.base_name.rpartition(".")[0] for file in files)
