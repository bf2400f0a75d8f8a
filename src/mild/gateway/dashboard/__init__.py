"""The page at ``/``: what the gateway does, beside what it was trained to do."""

from mild.gateway.dashboard.static import page_bytes
from mild.gateway.dashboard.status import Dashboard

__all__ = ["Dashboard", "page_bytes"]
