"""The command line: one file per command; a command imports what it needs when it runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command ``mild``."""
    try:
        from mild.cli.app import build_app

        build_app()(prog_name="mild")
    except KeyboardInterrupt:
        # A command handles Ctrl-C itself; before it starts there is nothing to report.
        raise SystemExit(130) from None
