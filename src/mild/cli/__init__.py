"""The command line: one file per command; a command imports what it needs when it runs."""

from __future__ import annotations

import errno
import os
import sys

from mild.lazy_names import attach_stub

# What a command of another distribution is made of.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
__all__ = ["main", *__all__]

# What writing to a full disk gives.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command ``mild``."""
    try:
        from mild.cli.app import build_app

        try:
            build_app()(prog_name="mild")
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        # A command handles Ctrl-C itself; this is before it starts.
        print("interrupted: nothing was saved.", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        # An error of a stream has no file name. A closed pipe, as of head, is handled by click.
        if error.filename is not None or error.errno not in FULL:
            raise
        # What is left in the buffer would fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"error: the output cannot be written: {error.strerror}.", file=sys.stderr)
        raise SystemExit(1) from None
