"""``python -m mild_gateway.server``: what ``mild serve`` turns into, so that nothing else is in memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from typing import Any

# Of malloc.h.
M_MMAP_THRESHOLD = -3


def main(arguments: list[str]) -> int:
    """Serve as one JSON argument says: config, router, host, port, workers, TLS files, log, demo."""
    import json

    from mild.errors import MildError
    from mild_gateway.logs import configure_logging, logger

    # One decision is a small product: threads for it would only cost memory.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
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
    from dataclasses import replace
    from functools import partial
    from pathlib import Path

    from mild.artifact import load
    from mild.errors import InvalidInputError
    from mild_gateway.config import read_settings
    from mild_gateway.server.process import serve_settings

    config = Path(options["config"])
    settings = read_settings(config)
    changed = {
        name: options[name] for name in ("host", "port", "workers") if options.get(name) is not None
    }
    if options.get("router") is not None:
        changed["router"] = Path(options["router"])
    server = replace(settings.server, **options.get("logs", {}))
    if (certificate := options.get("tls_certificate")) is not None:
        server = replace(
            server, tls_certificate=Path(certificate), tls_key=Path(options["tls_key"])
        )
    settings = replace(settings, server=server, **changed)
    folder = settings.router
    if folder is None:
        raise InvalidInputError(
            f"a router must be named, as `mild serve DIR --config {config}` or as router in the file."
        )
    return serve_settings(settings, partial(load, folder), str(folder))


if __name__ == "__main__":
    # Until the server is ready: almost nothing that a start makes is garbage.
    gc.disable()
    # Memory of large bodies goes back to the system at once: glibc keeps blocks of up to 32 MB otherwise.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    # pydantic would search every installed package for plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(main(sys.argv[1:]))
