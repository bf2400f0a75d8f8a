"""Routers on disk that read queries."""

from __future__ import annotations

from text_router_cases import folders

__all__ = ["folders"]
