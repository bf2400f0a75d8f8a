"""The page at ``/``: what the gateway does, beside what it was trained to do."""

from mild_gateway.dashboard.status import Dashboard, page_bytes

__all__ = ["Dashboard", "page_bytes"]
