"""Who may ask, how often, and for how much; right over all workers that share a store."""

from mild.gateway.access.access import Access, open_store
from mild.gateway.access.callers import Caller
from mild.gateway.access.purse import Reservation
from mild.gateway.access.store import Store, StoreError

__all__ = ["Access", "Caller", "Reservation", "Store", "StoreError", "open_store"]
