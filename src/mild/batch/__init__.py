"""Batch and streamed routing, on one machine or on Ray."""

from mild.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
