"""Versions of a router in one folder: which one serves, what served before, and why.

``DIR`` itself is version 1, as it was saved. ``DIR/versions/0002`` and so on are folders of routers like
any other. ``DIR/versions.json`` says which of them serves and is replaced as a whole, so a process that is
killed at any point leaves the old router serving; what it left is removed by the next writer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mild.artifact.files import left_behind, replacing, sync_folder
from mild.artifact.frames import as_frame, default_library, html_table
from mild.artifact.info import RouterInfo
from mild.artifact.manifest import MANIFEST_FILE, read_manifest
from mild.core.arrays import invalid
from mild.errors import ArtifactError, MildError, OutputExistsError, check_arguments, listed

FORMAT = "mild-router-versions"
VERSIONS_FILE, VERSIONS_FOLDER, LOCK_FILE = "versions.json", "versions", ".versions.lock"
#: What belongs to the versions in a router's folder.
VERSION_FILES = (VERSIONS_FILE, VERSIONS_FOLDER, LOCK_FILE)
# Seconds to wait for another process that writes a version.
PATIENCE = 60.0
_NUMBERED = re.compile(r"\d{4,}")
_UNFINISHED = re.compile(r"\.\d{4,}\.[0-9a-f]{8}\.(new|old)")


@dataclass(frozen=True)
class RouterVersion:
    """One version of a router."""

    version: int
    fingerprint: str | None  # as in the ledger's column ``router``
    created: float  # in seconds since 1970
    why: str  # in a sentence
    reason: str | None = None  # in a word, for programs
    learned_until: float | None = None  # time of the newest request that it has learned from
    base: int | None = None  # the version that served when it was written
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its writer says, JSON-ready


@dataclass(frozen=True)
class VersionEvent:
    """A change: a version was ``saved``, a ``candidate``, ``promoted`` or ``rolled back`` to."""

    time: float
    version: int
    event: str
    why: str
    serving: int  # the version that serves after it


@dataclass(frozen=True, repr=False)
class Versions:
    """The versions of a router in a folder, oldest first, and which of them serves.

    ``candidate`` has learned and is not yet proven: a gateway with ``explore = "auto"`` tries it out.
    ``history`` has every change, also of versions that have been deleted. ``requests`` says, by
    fingerprint, what a ledger knows of them: ``requests``, ``first`` and ``last``; None without a ledger.
    """

    folder: Path
    serving: int
    versions: tuple[RouterVersion, ...]
    history: tuple[VersionEvent, ...]
    requests: Mapping[str, Mapping[str, Any]] | None = None
    candidate: int | None = None

    def __getitem__(self, version: int) -> RouterVersion:
        for one in self.versions:
            if one.version == version:
                return one
        known = listed([str(one.version) for one in self.versions])
        raise invalid("version", f"must be one of {known} in {self.folder}; got {version!r}.")

    def as_dict(self) -> dict[str, Any]:
        """What ``mild versions --json`` prints."""
        return {**asdict(self), "folder": str(self.folder)}

    def to_frame(self) -> Any:
        """A row per version."""
        return as_frame(self.rows, default_library())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per version, for a table."""
        return [
            {
                "version": one.version,
                "serves": one.version == self.serving,
                "router": one.fingerprint,
                "created": one.created,
                "why": one.why,
                **({} if self.requests is None else self.requests.get(one.fingerprint or "", {})),
            }
            for one in self.versions
        ]

    def __repr__(self) -> str:
        return f"<Versions of {self.folder}: {self.serving} of {len(self.versions)} serves>"

    def _repr_html_(self) -> str:
        return html_table(repr(self).strip("<>"), self.rows)


def find_version(
    folder: str | os.PathLike[str], version: int | None = None
) -> tuple[Path, int | None]:
    """Folder and number of a version, by default of the one that serves.

    The number is None where there are no versions; the folder is given back then, whatever it is.
    """
    place = Path(folder)
    if version is None and not (place / VERSIONS_FILE).is_file():
        return place, None
    known = read_versions(place)
    number = known.serving if version is None else known[version].version
    return _place(place, number), number


def read_versions(folder: str | os.PathLike[str]) -> Versions:
    """The versions in a router's folder; one that was only saved has version 1.

    Raises ArtifactError if it is not the folder of a router, or ``versions.json`` is damaged.
    """
    place = Path(folder)
    try:
        content = json.loads((place / VERSIONS_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return _as_saved(place)
    except (OSError, ValueError) as error:
        raise _damaged(place, str(error)) from error
    try:
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        # What a later mild adds is left to it.
        known = {one.name for one in fields(RouterVersion)}
        found = tuple(
            RouterVersion(**{name: entry[name] for name in known & set(entry)})
            for entry in content["versions"]
        )
        history = tuple(
            VersionEvent(*(entry[one.name] for one in fields(VersionEvent)))
            for entry in content["history"]
        )
        numbers = [one.version for one in found]
        if any(type(number) is not int for number in numbers):
            raise ValueError("a version is not a number")
        if content["serving"] not in numbers:
            raise ValueError(f"version {content['serving']!r} serves and is not listed")
        candidate = content.get("candidate")
        if candidate is not None and candidate not in numbers:
            raise ValueError(f"version {candidate!r} is the candidate and is not listed")
        return Versions(place, content["serving"], found, history, candidate=candidate)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(place, str(error)) from error


def write_version(
    folder: str | os.PathLike[str],
    router: Any,
    *,
    why: str,
    reason: str | None = None,
    learned_until: float | None = None,
    serve: bool = True,
    expected: str | None = None,
    facts: Mapping[str, Any] | None = None,
    keep: int | None = None,
) -> int:
    """Write a router as the next version of a folder, and let it serve; the number of the version.

    Parameters
    ----------
    folder : of a saved router
    router : with a method ``save(folder)``
    why, reason : why it was written, as a sentence and as a word
    learned_until : time of the newest request that it has learned from
    serve : whether it serves from now on; otherwise it is the candidate, in place of the one before
    expected : fingerprint of the router that it was compared with; if another one serves meanwhile, nothing
        is written (OutputExistsError, code ``version_changed``)
    facts : more to keep with it, JSON-ready
    keep : how many of the newest versions to keep; None for all. Version 1, the one that serves and the one
        that served before it are always kept.
    """
    if keep is not None and (type(keep) is not int or keep < 1):
        raise invalid("keep", f"must be at least 1, or None for all versions; got {keep!r}.")
    details = {"reason": reason, "learned_until": learned_until, "facts": dict(facts or {})}
    event = "promoted" if serve else "candidate"
    return add_version(Path(folder), router.save, event, why, serve, expected, keep, details)


def add_version(
    folder: Path,
    save: Callable[[Path], Any],
    event: str,
    why: str,
    serve: bool = True,
    expected: str | None = None,
    keep: int | None = None,
    details: Mapping[str, Any] | None = None,
) -> int:
    """Let ``save`` write the folder of the next version, then list it, and serve it if ``serve``."""
    with _writing(folder) as known:
        if expected not in (None, _info(_place(folder, known.serving)).fingerprint):
            raise OutputExistsError(
                f"{folder} must still serve the router {expected}, with which the new one was compared; "
                f"version {known.serving} is another one. Run it again.",
                code="version_changed",
            )
        number = _next_version(known)
        place = _place(folder, number)
        # First: a writer looks beside its target, and may leave something there.
        place.parent.mkdir(exist_ok=True)
        sync_folder(folder)
        _clean(folder, known, number)
        save(place)
        now = time.time()
        new = RouterVersion(
            number, _info(place).fingerprint, now, why, base=known.serving, **(details or {})
        )
        serving = number if serve else known.serving
        change = VersionEvent(now, number, event, why, serving)
        # A candidate that never served is of no use to anybody.
        tried = tuple(one for one in known.versions if one.version != known.candidate)
        changed = replace(
            known,
            serving=serving,
            versions=_kept((*tried, new), serving, keep),
            history=(*known.history, change),
            candidate=None if serve else number,
        )
        _write(changed)
        _clean(folder, changed, number + 1)
    return number


def serve_version(
    folder: str | os.PathLike[str], version: int, why: str, event: str = "promoted"
) -> Versions:
    """Let another version serve; a router that serves from the folder must be loaded again."""
    place = Path(folder)
    with _writing(place) as known:
        _info(_place(place, known[version].version))  # it must be there
        change = VersionEvent(time.time(), version, event, why, version)
        candidate = None if version == known.candidate else known.candidate
        changed = replace(
            known, serving=version, history=(*known.history, change), candidate=candidate
        )
        _write(changed)
    return changed


@check_arguments
def rollback(
    folder: str | os.PathLike[str], to: int | None = None, why: str = "asked for by hand"
) -> Versions:
    """Let an earlier version of a router serve again. A gateway has to reload (``mild reload``).

    Parameters
    ----------
    folder : of a saved router
    to : the version; None for the one that served before the current one was written
    why : for the history

    Returns
    -------
    Versions, after the change
    """
    known = read_versions(folder)
    if to is not None and (type(to) is not int or to == known.serving):
        rule = f"must be another version than {known.serving}, which serves; got {to!r}."
        raise invalid("to", rule)
    if to is None:
        earlier = [one.version for one in known.versions if one.version < known.serving]
        if not earlier:
            rule = f"must be named: version {known.serving} of {folder} serves, the first one."
            raise invalid("to", rule)
        base = known[known.serving].base
        to = base if base in earlier else earlier[-1]
    return serve_version(folder, to, why, "rolled back")


def _place(folder: Path, version: int) -> Path:
    return folder if version == 1 else folder / VERSIONS_FOLDER / f"{version:04d}"


def _info(place: Path) -> RouterInfo:
    try:
        content = (place / MANIFEST_FILE).read_text(encoding="utf-8")
        return RouterInfo.from_manifest(read_manifest(content))
    except (OSError, UnicodeDecodeError, ArtifactError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ArtifactError(f"{place} must be the folder of a router: {reason}") from error


def _as_saved(folder: Path) -> Versions:
    info, why = _info(folder), "as it was saved"
    created = datetime.now(UTC)
    with suppress(ValueError):
        created = datetime.fromisoformat(info.created or "")
    saved = created.timestamp()
    first = RouterVersion(1, info.fingerprint, saved, why)
    return Versions(folder, 1, (first,), (VersionEvent(saved, 1, "saved", why, 1),))


def _damaged(folder: Path, problem: str) -> ArtifactError:
    return ArtifactError(
        f"{folder / VERSIONS_FILE} cannot be read ({problem}); restore it, or delete it to serve version 1."
    )


def _next_version(known: Versions) -> int:
    """One that no version had, also none that was deleted."""
    return max(event.version for event in known.history) + 1


def _kept(
    versions: tuple[RouterVersion, ...], serving: int, keep: int | None
) -> tuple[RouterVersion, ...]:
    base = next(one.base for one in versions if one.version == serving)
    newest = versions[0 if keep is None else -keep :]
    return tuple(one for one in versions if one in newest or one.version in (1, serving, base))


@contextmanager
def _writing(folder: Path) -> Iterator[Versions]:
    """The versions, while no other process changes them."""
    from filelock import FileLock, Timeout

    read_versions(folder)  # says what is wrong with a folder that is none
    path, problem = folder / LOCK_FILE, "another process has been writing a version for a minute"
    lock = FileLock(path, timeout=PATIENCE)
    try:
        path.touch()  # says why a folder cannot be written to, which the lock may take for contention
        lock.acquire()
        try:
            for file in left_behind(folder / VERSIONS_FILE):
                file.unlink(missing_ok=True)
            yield read_versions(folder)
        finally:
            # Removed while it is held: a lock file that was removed cannot be acquired.
            with suppress(OSError):
                path.unlink()
            lock.release()
    except Timeout as error:
        raise OutputExistsError(f"cannot write to {folder}: {problem}; try again.") from error
    except MildError:
        raise
    except OSError as error:
        raise ArtifactError(f"cannot write to {folder}: {error.strerror or error}.") from error


def _write(known: Versions) -> None:
    content = {
        "format": FORMAT,
        "serving": known.serving,
        "candidate": known.candidate,
        "versions": [asdict(one) for one in known.versions],
        "history": [asdict(event) for event in known.history],
    }
    with replacing(known.folder / VERSIONS_FILE) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode())


def _clean(folder: Path, known: Versions, until: int) -> None:
    """Remove what killed processes have left: folders up to a number that are not listed."""
    place = folder / VERSIONS_FOLDER
    names = {_place(folder, one.version).name for one in known.versions}
    for entry in place.iterdir() if place.is_dir() else ():
        numbered = _NUMBERED.fullmatch(entry.name) and entry.name not in names
        if numbered and int(entry.name) > until:
            raise ArtifactError(
                f"{folder / VERSIONS_FILE} must list {entry}; restore it, or move that folder away."
            )
        if numbered or _UNFINISHED.fullmatch(entry.name):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
