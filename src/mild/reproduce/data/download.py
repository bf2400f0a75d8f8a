"""Files from the official servers: under a temporary name, resumed, checked, then renamed."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mild.exceptions import DataFileError
from mild.reproduce.data.sources import RemoteFile

if TYPE_CHECKING:
    from mild.reproduce.turns import Progress

__all__ = ["download", "is_official", "unwritable"]

BLOCK = 1 << 18


def download(
    file: RemoteFile,
    url: str,
    target: Path,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> Path:
    """Fetch ``url`` to ``target``, which appears only when it is complete and has the right md5.

    What arrives is kept in ``<target>.part``; a later call goes on from there if the server can. An
    attempt that is cut off is followed by another as long as each gets further than the last.

    Parameters
    ----------
    file : the official md5 and size
    url : where it is
    target : where it goes; its folder exists
    progress : called with bytes done, bytes in all and the file's name as they arrive
    timeout : seconds without a byte after which the connection counts as cut
    """
    part = target.with_name(f"{target.name}.part")
    try:
        if _size(part) > file.size:
            part.unlink()
        furthest, reason = -1, ""
        while (done := _size(part)) < file.size:
            if done <= furthest:
                raise _failed(
                    url, target, part, f"{reason} ({done:,} of {file.size:,} bytes are here)"
                )
            furthest = done
            reason = _attempt(url, part, file, progress, timeout)
        found = _md5(part)
        if found != file.md5:
            part.unlink()
            raise _failed(
                url, target, None, f"what came has md5 {found}, not {file.md5}, and was deleted"
            )
        os.replace(part, target)
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def is_official(path: Path, file: RemoteFile) -> bool:
    """Whether the file is there, whole and with the official md5."""
    return _size(path) == file.size and _md5(path) == file.md5


def unwritable(target: Path, error: OSError) -> DataFileError:
    """Error for a disk that does not take what is written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DataFileError(
            f"the disk is full: {target} could not be written; free some room and run the same "
            f"command again."
        )
    return DataFileError(f"cannot write {target}: {error.strerror or error}.")


def _attempt(
    url: str, part: Path, file: RemoteFile, progress: Progress | None, timeout: float
) -> str:
    """Add to ``part`` what one connection brings; why it ended, "" if it is all there."""
    done = _size(part)
    headers = {"User-Agent": "mild-learn"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        response = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=timeout
        )
    except urllib.error.HTTPError as error:
        error.close()
        return f"the server answered {error.code} {error.reason}"
    except (OSError, http.client.HTTPException) as error:
        return _reason(error)
    with response:
        start, total = _extent(response)
        if total not in (None, file.size):
            return f"the file there has {total:,} bytes, the official one {file.size:,}"
        if start not in (0, done):
            return f"the server sent bytes from {start:,} on, not from {done:,}"
        done = start
        with open(part, "ab" if start else "wb") as stream:
            while done < file.size:
                try:
                    block = response.read1(min(BLOCK, file.size - done))
                except (OSError, http.client.HTTPException) as error:
                    return _reason(error)
                if not block:
                    return "the connection was closed early"
                stream.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, file.size, file.name)
    return ""


def _extent(response: Any) -> tuple[int, int | None]:
    """First byte that an answer brings, and the size of the whole file if it is told."""
    if response.status == http.client.PARTIAL_CONTENT:
        # Content-Range: bytes 500-999/1000
        span, _, whole = (
            response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        )
        first = span.partition("-")[0]
        return (
            int(first) if first.isdecimal() else -1,
            int(whole) if whole.isdecimal() else None,
        )
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _failed(url: str, target: Path, part: Path | None, reason: str) -> DataFileError:
    again = "run the same command again"
    if part is not None and _size(part):
        again += " to go on from there"
    now = ", where now there is another file" if target.exists() else ""
    return DataFileError(
        f"{url} could not be fetched: {reason}; {again}, or place the official file by hand at "
        f"{target}{now}."
    )


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, TimeoutError):
        return "the server did not answer in time"
    if isinstance(inner, OSError) and inner.strerror:
        return str(inner.strerror)
    return str(inner) or type(inner).__name__


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _md5(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
