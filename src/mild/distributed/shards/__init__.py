"""Fitting on more rows than memory holds: every evaluation is a sum over partitions of a dataset."""
