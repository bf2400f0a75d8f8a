"""Calls in parallel, on whatever joblib runs them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from joblib import Parallel
from joblib.parallel import SequentialBackend, get_active_backend


def parallel_results(
    calls: Iterable[Any], n_jobs: int | None, *, in_order: bool = True
) -> Generator[Any, None, None]:
    """Return what calls return, each as soon as it is done.

    Not every back end of joblib can do so: with multiprocessing, and some of other packages, all results
    come after the last call.

    Parameters
    ----------
    calls : calls that are delayed by ``joblib.delayed``
    n_jobs : parallel workers
    in_order : whether results come in the order of the calls

    Examples
    --------
    >>> from joblib import delayed
    >>> list(parallel_results([delayed(abs)(-1), delayed(abs)(-2)], n_jobs=None))
    [1, 2]
    """
    return_as = "generator" if in_order else "generator_unordered"
    backend, _ = get_active_backend()
    # A sequential one always can, whatever it says.
    if not isinstance(backend, SequentialBackend) and not backend.supports_return_generator:
        return_as = "list"
    results = Parallel(n_jobs=n_jobs, return_as=return_as)(calls)
    if return_as == "list":
        return (result for result in results)
    return results
