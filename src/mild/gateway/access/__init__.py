"""Keys, budgets and rate limits, over all workers that share a store."""

from mild.gateway.access.access import Access, Reservation
from mild.gateway.access.keys import Caller
from mild.gateway.access.store import AccessStore, StoreError

__all__ = ["Access", "AccessStore", "Caller", "Reservation", "StoreError"]
