"""Time limits of requests."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Deadline:
    """Cancels what runs in its ``with`` block after so many seconds; the block then raises TimeoutError.

    It does what ``asyncio.timeout`` does, in less time: every request has several.
    """

    __slots__ = ("_cancelling", "_seconds", "_task", "_timer", "expired")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._cancelling = task, task.cancelling()
        self._timer = task.get_loop().call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self.expired = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        # Who was cancelled by somebody else as well stays cancelled.
        alone = self.expired and self._task.uncancel() <= self._cancelling
        if alone and kind is asyncio.CancelledError:
            raise TimeoutError from error
