"""Fixtures and hooks of the library's tests."""

from browser import browser  # noqa: F401
from command_runner import mild  # noqa: F401
from common_hooks import (  # noqa: F401
    anyio_backend,
    pytest_collection_modifyitems,
    pytest_terminal_summary,
)
