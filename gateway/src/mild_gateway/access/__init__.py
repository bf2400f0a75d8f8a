"""Keys, budgets and rate limits, over all workers that share a store."""

from mild_gateway.access.access import Access, Reservation
from mild_gateway.access.accounts import Settlement
from mild_gateway.access.keys import Caller
from mild_gateway.access.store import AccessStore, StoreError

__all__ = ["Access", "AccessStore", "Caller", "Reservation", "Settlement", "StoreError"]
