"""``python -m mild_gateway.server``: what ``mild serve`` turns into, so that nothing else is in memory."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any


def main(arguments: list[str]) -> int:
    """Serve as one JSON argument says: config, router, host, port, workers, TLS files, log, demo."""
    import json

    from mild.errors import MildError
    from mild_gateway.logs import configure_logging, logger

    # One decision is a small product: threads for it would only cost memory.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # pydantic would search every installed package for plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    options = json.loads(arguments[0])
    # The file may say otherwise, once it has been read.
    configure_logging(**options.get("logs", {}))
    try:
        if not options.get("demo"):
            return _serve_config(options)
        from mild_gateway.demo import serve_demo

        return serve_demo(options)
    except MildError as error:
        logger.error("%s", error)
        return 1


def _serve_config(options: dict[str, Any]) -> int:
    from functools import partial

    from mild_gateway.decide import load_router
    from mild_gateway.server.process import serve_settings
    from mild_gateway.server.worker import return_memory, served_settings

    return_memory()
    settings = served_settings(options)
    folder = settings.router
    assert folder is not None
    return serve_settings(settings, partial(load_router, folder), str(folder), options=options)


if __name__ == "__main__":
    # Until the server is ready: almost nothing that a start makes is garbage.
    gc.disable()
    sys.exit(main(sys.argv[1:]))
