"""The gateway's log: its format, and one line for many events of a class."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("mild_gateway")

# Events of a class are written at most once in so many seconds.
LINE_SECONDS = 60.0
# What every record has; the rest was given as ``extra``.
_COMMON = {*vars(logging.makeLogRecord({})), "asctime", "message"}


class LogFormatter(logging.Formatter):
    """Lines such as ``warning: ...``, or one JSON object a line; configured secrets are taken out."""

    def __init__(self, as_json: bool, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._as_json = as_json
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        text = self._redact(super().format(record))
        if not self._as_json:
            return f"{level}: {text}"
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{when}.{int(record.msecs):03d}Z",
            "level": level,
            "logger": record.name,
            "pid": record.process,
            "message": text,
        }
        more = {name: value for name, value in vars(record).items() if name not in _COMMON}
        return json.dumps(line | more, default=str)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        """Frames and type of an error; its message may quote a request."""
        return "".join(traceback.format_tb(ei[2])) + ei[0].__name__


def configure_logging(
    log_format: str = "text", log_level: str = "info", redact: Callable[[str], str] = str
) -> None:
    """Write log lines of the gateway, and warnings of libraries, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(log_format == "json", redact))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logger.setLevel(log_level.upper())
    # What uvicorn would log is said elsewhere, or is the fault of a client.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


@dataclass(slots=True)
class _Events:
    """Events of a class since its last line, and the newest message."""

    level: int
    message: str
    fields: dict[str, Any]
    written: float
    count: int = 0


class EventLog:
    """Writes the first event of a class at once, and then one line a minute with their number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._classes: dict[tuple[str, ...], _Events] = {}

    def note(
        self,
        events: tuple[str, ...],
        message: str,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        **fields: Any,
    ) -> None:
        """Log an event of a class; ``fields`` are those of a JSON line, ``error`` adds its traceback."""
        earlier = self._classes.get(events)
        if earlier is None:
            logger.log(level, message, exc_info=error, extra=fields)
            self._classes[events] = _Events(level, message, fields, self._clock())
        else:
            earlier.count += 1
            earlier.message = message

    def write(self, min_seconds: float = LINE_SECONDS) -> None:
        """Write what is due: a line for each class with events since its last line."""
        now = self._clock()
        for name, events in list(self._classes.items()):
            seconds = now - events.written
            if seconds < min_seconds:
                continue
            if not events.count:
                del self._classes[name]
                continue
            message = f"{events.message} ({events.count:,} more in {seconds:.0f} s)"
            logger.log(events.level, message, extra={**events.fields, "count": events.count})
            events.written = now
            events.count = 0
