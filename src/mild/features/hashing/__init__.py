"""Hashed words, pairs of words and pieces of words, projected to a dense vector. NumPy alone serves it."""

from mild.features.hashing.features import HashingFeatures

__all__ = ["HashingFeatures"]
