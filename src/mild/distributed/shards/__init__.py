"""Fitting on more rows than memory holds: every evaluation is a sum over partitions of a dataset."""

from mild.distributed.shards.dataset import Dataset, open_dataset
from mild.distributed.shards.fitting import ShardedFit, fit_shards

__all__ = ["Dataset", "ShardedFit", "fit_shards", "open_dataset"]
