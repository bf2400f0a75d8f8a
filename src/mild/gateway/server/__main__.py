"""``python -m mild.gateway.server``: what ``mild serve`` turns into, so that nothing else is in memory."""

import sys

from mild.gateway.server.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
