"""Requests to experts: availability, attempts, server-sent events."""
