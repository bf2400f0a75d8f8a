"""The command line: one small file per verb, no logic; each verb imports what it needs when called."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command ``mild``."""
    try:
        from mild.cli.app import build_app

        build_app()(prog_name="mild")
    except KeyboardInterrupt:
        # A verb says what Ctrl-C leaves; before there is one, nothing has begun.
        raise SystemExit(130) from None
