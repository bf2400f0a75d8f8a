"""Routing of whole datasets: Parquet in, Parquet out, on this machine or on Ray, in constant memory."""

from mild.distributed.batch.run import BatchOptions, BatchSummary, route_dataset

__all__ = ["BatchOptions", "BatchSummary", "route_dataset"]
