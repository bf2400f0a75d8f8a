"""Takes over a new version of the router from its folder, while requests are served."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mild.errors import MildError
from mild_gateway.logs import logger

if TYPE_CHECKING:
    from mild_gateway.decide import Router
    from mild_gateway.server.context import AppContext

WATCH_SECONDS = 1.0

# Path, inode, size and time of change of every file in a folder.
FolderState = frozenset[tuple[str, int, int, int]]


class RouterWatch:
    """Looks at the router's folder once a second.

    What has changed is loaded in a thread, checked against the settings, and swapped in; running requests
    end with the router that they began with. A version that cannot be used is refused, which the log, the
    metrics and the dashboard say, and the old one goes on serving.
    """

    def __init__(self, context: AppContext, folder: Path, load: Callable[[], Router]) -> None:
        self._context = context
        self._folder = folder
        self._load = load
        # The first look loads the router in any case: a new version may have come since it was loaded.
        self._seen: FolderState = frozenset()

    async def run(self) -> None:
        """Watch until the server ends."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Take over the router of the folder, if a file in it has changed."""
        state = await asyncio.to_thread(folder_state, self._folder)
        if state == self._seen:
            return
        before = self._context.serving
        try:
            fingerprint = await self._context.reload(self._load)
        except MildError as error:
            if await asyncio.to_thread(folder_state, self._folder) != state:
                # It is being written; the next look sees it whole.
                return
            self._context.refuse_router(str(error))
        else:
            if self._context.serving is not before:
                logger.info("the router %s serves", fingerprint)
        self._seen = state


def folder_state(folder: Path) -> FolderState:
    """What tells whether a file in a folder has changed; hidden files and folders are temporary ones."""
    return frozenset(_files(folder))


def _files(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.stat(path)
            except FileNotFoundError:
                continue
            if not name.startswith("."):
                yield path, status.st_ino, status.st_size, status.st_mtime_ns
