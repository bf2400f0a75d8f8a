"""``mild data``: one small file per verb."""

from mild.cli.data.app import build_data

__all__ = ["build_data"]
