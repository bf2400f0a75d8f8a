"""Batch and streamed routing, and out-of-core fitting, on one machine or on Ray."""
