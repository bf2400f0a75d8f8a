"""The command line: one small file per verb, no logic; each verb imports what it needs when called."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command ``mild``."""
    from mild.cli.app import build_app

    build_app()(prog_name="mild")
