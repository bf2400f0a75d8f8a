"""Claims about routers that keep learning: ``python -m benchmarks.learning PART --data FOLDER``.

Each part is a module of its own with a ``main(arguments)``.
"""

from __future__ import annotations

import importlib
import sys

PARTS = {
    "loop": "benchmarks.learning_loop",
    "plan": "benchmarks.learning_plan",
}


def main() -> int:
    """Run the part that the first argument names, with the other arguments."""
    if len(sys.argv) < 2 or sys.argv[1] not in PARTS:
        print(f"usage: python -m benchmarks.learning {{{','.join(PARTS)}}} --data FOLDER")
        return 2
    return int(importlib.import_module(PARTS[sys.argv[1]]).main(sys.argv[2:]))


if __name__ == "__main__":
    raise SystemExit(main())
