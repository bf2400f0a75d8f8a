"""How many processors and threads a computation may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Number of threads: OMP_NUM_THREADS if it is set, else the processors of this process."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else cores()
