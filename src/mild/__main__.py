"""``python -m mild`` is the command ``mild``."""

from mild.cli import main

if __name__ == "__main__":
    main()
