"""The one door from serving to the library: routers, and what they decide."""

from mild import Router
from mild import load as load_router

__all__ = ["Router", "load_router"]
