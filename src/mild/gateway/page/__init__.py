"""The page at ``/``: what the gateway does, beside what it was trained to do."""

from mild.gateway.page.board import Board
from mild.gateway.page.static import page_bytes

__all__ = ["Board", "page_bytes"]
