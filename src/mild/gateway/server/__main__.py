"""``python -m mild.gateway.server``: what ``mild serve`` turns into, so that nothing else is in memory."""

import gc
import os
import ssl
import sys


def import_aiohttp() -> None:
    """Import aiohttp without its default TLS contexts: it reads the system's certificates twice.

    These contexts then trust nobody. ``EndpointClient`` has its own.
    """
    ssl.SSLContext.set_default_verify_paths = lambda self: None  # type: ignore[method-assign]
    try:
        import aiohttp  # noqa: F401
    finally:
        del ssl.SSLContext.set_default_verify_paths


if __name__ == "__main__":
    # Until the server is ready: almost nothing that a start makes is garbage.
    gc.disable()
    # pydantic would search every installed package for plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    import_aiohttp()
    from mild.gateway.server.process import main

    sys.exit(main(sys.argv[1:]))
