"""Routing of whole datasets: parquet in, parquet out, on this machine or on Ray, in constant memory.

The input is cut into partitions, ranges of row groups of its files, and each becomes one file of the
output. One function routes a partition (``routing``); engines only say where it runs, so that
the rows do not depend on them. A partition is there or not: what was begun is written under another name.
So a job that was ended is taken up where it was.
"""

from mild.distributed.batch.job import BatchOptions
from mild.distributed.batch.run import BatchSummary, route_dataset

__all__ = ["BatchOptions", "BatchSummary", "route_dataset"]
