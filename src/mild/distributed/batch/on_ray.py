"""The engine on Ray: Ray Data maps one function over a dataset of our partitions.

A row of that dataset is a partition, or a handful of small ones, not a query, and every row is a block. So
a partition is a range of row groups with a file of its own whoever routes it: both engines write the same
files, and one can go on where the other was ended. What is left is Ray Data's: where a row is worked on and
when, how many are under way, and that it is done again when its worker is lost: that writes the same files.
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
from mild.data.location import open_system
from mild.distributed.batch.job import Job
from mild.distributed.batch.partitions import Partition
from mild.distributed.batch.routing import Done, route_partition, temporary_folder
from mild.distributed.ray_connection import check_ray, connect, patient
from mild.errors import DataFileError, MildError, MissingExtraError

__all__ = ["check_ray_data", "route_on_ray"]

Rows = Sequence[Sequence[Partition]]

# How often a partition is tried again whose worker was lost.
RETRIES = 5
# A row of Ray Data takes the driver 10 ms: so many bytes, and partitions, may share one.
HANDFUL_BYTES = 16 * 1024 * 1024
HANDFUL = 64
# Rows that every processor gets, as far as there are partitions: none waits long for the last.
ROWS_EACH = 16
MISSING = 'Ray Data needs the package pandas; install it with pip install "mild-learn[ray]".'


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
) -> Generator[Done, None, None]:
    """Route partitions on Ray; what is done comes as it is done.

    The router travels to the workers; the input and the output must be reachable from all of them under the
    same names.

    Parameters
    ----------
    job, todo : what is routed, and which of its partitions
    address : of a cluster; None for a Ray on this machine
    workers : partitions that are routed at a time; None for one per processor
    notice : told in a sentence when all processors are taken and nothing begins
    """
    with connect(address, workers) as ray:
        # In a list: Ray leaves the reference in it to be fetched once in each process.
        given = {"token": job.token, "given": [ray.put((job, _files(Path(job.folder))))]}
        at_a_time = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        rows = handfuls(todo, at_a_time)
        ask = _asked_by_another if _is_client(ray) else _asked
        with (
            closing(ask(ray, rows, given, workers)) as results,
            patient(ray, notice, begun=lambda: bool(_begun(job))) as arrived,
            _explained(ray, job, todo),
        ):
            for content in results:
                arrived()
                yield from _results(content)


def handfuls(todo: Sequence[Partition], at_a_time: int) -> list[list[Partition]]:
    """Partitions, small neighbours together; enough of these for so many workers."""
    most = max(1, min(HANDFUL, len(todo) // (ROWS_EACH * at_a_time)))
    found: list[list[Partition]] = []
    size = 0
    for partition in todo:
        size += partition.size
        if not found or len(found[-1]) == most or size > HANDFUL_BYTES:
            found.append([])
            size = partition.size
        found[-1].append(partition)
    return found


def route_task(row: Mapping[str, Any], token: str, given: Sequence[Any]) -> dict[str, bytes]:
    """On a worker: route partitions; an error that has its sentence comes back as a value, the last one."""
    results: list[Done | MildError] = []
    try:
        with threadpool_limits(1):
            job, router = _opened(token, given[0])
            for partition in pickle.loads(row["partitions"]):
                results.append(route_partition(job, router, partition))
    except MildError as error:
        results.append(error)
    return {"results": pickle.dumps(results)}


_open: dict[str, tuple[Job, LoadedRouter]] = {}


def _opened(token: str, given: Any) -> tuple[Job, LoadedRouter]:
    """A run's job and router, loaded once in each process."""
    if token not in _open:
        job, files = importlib.import_module("ray").get(given)
        with tempfile.TemporaryDirectory(prefix="mild-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            router = load(folder)
        _open.clear()
        _open[token] = job, job.prepared(router)
    return _open[token]


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _results(content: bytes) -> Iterator[Done]:
    for result in pickle.loads(content):
        if isinstance(result, MildError):
            raise result
        yield result


def _asked(
    ray: Any, rows: Rows, given: Mapping[str, Any], workers: int | None
) -> Generator[bytes, None, None]:
    """What ``route_task`` gives, as it comes; closed, it ends what is under way."""
    with _ray_data() as data:
        routed = _mapped(data, rows, given, workers)
        batches = iter(routed.iter_batches(batch_size=None, batch_format="pyarrow"))
        with closing(batches):
            for batch in batches:
                yield from batch.column("results").to_pylist()


def _asked_by_another(
    ray: Any, rows: Rows, given: Mapping[str, Any], workers: int | None
) -> Generator[bytes, None, None]:
    """The same for a client, ``ray://``, which has no Ray Data: an actor in the cluster asks."""
    asker = ray.remote(num_cpus=0)(Asker).remote(rows, given, workers)
    try:
        while (content := ray.get(asker.more.remote())) is not None:
            yield content
    finally:
        ray.kill(asker)


class Asker:
    """In the cluster: asks Ray Data, and hands on what it gives."""

    def __init__(self, rows: Rows, given: Mapping[str, Any], workers: int | None) -> None:
        self.ray = importlib.import_module("ray")
        self.job = self.ray.get(given["given"][0])[0]
        self.todo = [partition for row in rows for partition in row]
        self.results = _asked(self.ray, rows, given, workers)

    def more(self) -> bytes | None:
        """The next results; None if there are no more."""
        try:
            with _explained(self.ray, self.job, self.todo):
                return next(self.results, None)
        except MildError as error:
            return pickle.dumps([error])


def _is_client(ray: Any) -> bool:
    return bool(ray.util.client.ray.is_connected())


def _mapped(data: Any, rows: Rows, given: Mapping[str, Any], workers: int | None) -> Any:
    """The dataset of what becomes of the partitions; nothing is begun yet."""
    items = [{"partitions": pickle.dumps(row)} for row in rows]
    size = None if workers is None else min(workers, len(items))
    with warnings.catch_warnings():
        # Ray 2.60 is to lose the number of retries, and has nothing in its place.
        warnings.simplefilter("ignore")
        parts = data.from_items(items, override_num_blocks=len(items))
        return parts.map(
            route_task,
            fn_kwargs=given,
            num_cpus=1,
            compute=data.TaskPoolStrategy(size=size),
            **_retries(parts.map),
        )


def _retries(method: Any) -> dict[str, int]:
    """The number of retries, where Ray Data takes one; by itself it tries for ever."""
    known = inspect.signature(method).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
    return {"max_retries": RETRIES} if free or "max_retries" in known else {}


@contextmanager
def _ray_data() -> Iterator[Any]:
    """The module ``ray.data``, silent meanwhile: progress and errors are told by who calls."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = importlib.import_module("ray.data")
        except ImportError as error:
            raise MissingExtraError(MISSING) from error
        context = data.DataContext.get_current()
    log = logging.getLogger("ray.data")
    # A partition may take its time, and so may a cluster that others use. Reservations are for operators
    # that compete: ours is alone, and would leave one of two processors idle most of the time.
    settings = {
        "enable_progress_bars": False,
        "execution_no_progress_timeout_s": -1,
        "op_resource_reservation_enabled": False,
    }
    before = {name: getattr(context, name) for name in settings if hasattr(context, name)}
    level = log.level
    for name in before:
        setattr(context, name, settings[name])
    log.setLevel(logging.CRITICAL)
    try:
        yield data
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)


@contextmanager
def _explained(ray: Any, job: Job, todo: Sequence[Partition]) -> Iterator[None]:
    """Lost workers as a sentence; what was not foreseen keeps its traceback."""
    unforeseen = (ray.exceptions.RayTaskError, ray.exceptions.UserCodeException)
    try:
        yield
    except ray.exceptions.RayError as error:
        if isinstance(error, unforeseen):
            raise
        tries = _begun(job)
        guilty = next((part for part in todo if tries[part.name] > RETRIES), None)
        what = f"part {guilty.number} ({guilty.path})" if guilty else "a part"
        raise DataFileError(
            f"the workers that routed {what} were lost ({type(error).__name__}); out of memory, perhaps. "
            f"What is finished stays; run it again, with fewer --jobs."
        ) from error


def _begun(job: Job) -> Counter[str]:
    """Names of parts that were begun and not ended, as far as a file system shows such files."""
    system, _ = open_system(job.out)
    try:
        files = system.get_file_info(fs.FileSelector(temporary_folder(job), allow_not_found=True))
    except (pa.ArrowException, OSError):
        return Counter()
    return Counter(file.base_name.rpartition(".")[0] for file in files)
