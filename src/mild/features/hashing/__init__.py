"""Hashed words, pairs of words and pieces of words, projected to a dense vector."""

from mild.features.hashing.features import HashingFeatures

__all__ = ["HashingFeatures"]
