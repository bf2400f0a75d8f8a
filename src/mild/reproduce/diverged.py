"""A training that ended in numbers that are not finite."""

from __future__ import annotations

from mild.exceptions import InvalidInputError

__all__ = ["DivergedError"]


class DivergedError(InvalidInputError):
    """A training diverged; others may well go on."""
