"""``mild reproduce``: one small file per verb."""

from mild.cli.reproduce.app import build_reproduce

__all__ = ["build_reproduce"]
