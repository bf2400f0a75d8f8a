"""Routing of whole datasets: Parquet in, Parquet out, on this machine or on Ray, in constant memory.

The input is cut into partitions, and each becomes one file of the output. Both engines run the same
function on the same partitions (``routing``), so their files are identical. A file gets its name when it
is complete, so a job that was interrupted continues where it stopped.
"""

from mild.distributed.batch.job import BatchOptions
from mild.distributed.batch.run import BatchSummary, route_dataset

__all__ = ["BatchOptions", "BatchSummary", "route_dataset"]
