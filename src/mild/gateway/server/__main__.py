"""``python -m mild.gateway.server``: what ``mild serve`` turns into, so that nothing else is in memory."""

import gc
import os
import sys

if __name__ == "__main__":
    # Until the server is ready: almost nothing that a start makes is garbage.
    gc.disable()
    # pydantic would search every installed package for plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from mild.gateway.server.process import main

    sys.exit(main(sys.argv[1:]))
