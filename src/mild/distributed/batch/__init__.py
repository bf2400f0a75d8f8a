"""Routing of whole datasets: Parquet in, Parquet out, on this machine or on Ray, in constant memory."""

from mild.distributed.batch.routing import BatchOptions
from mild.distributed.batch.run import BatchSummary, route_dataset

__all__ = ["BatchOptions", "BatchSummary", "route_dataset"]
