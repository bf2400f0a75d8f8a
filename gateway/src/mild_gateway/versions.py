"""Versions of a router in one folder: which one serves, what served before, and why.

A folder that was only saved is version 1. With the second version, its files are copied to
``DIR/versions/0001``; that one, ``DIR/versions/0002`` and so on are folders of routers like any other.
``DIR/versions.json`` says which of them serves, and ``mild.load(DIR)`` follows it. The list is replaced as
a whole, so a process that is killed at any point leaves the old router serving; what it left is removed by
the next writer. A router that is saved over the folder replaces all of its versions.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from mild.errors import InvalidInputError, OutputExistsError, RouterFileError, listed
from mild_gateway.decide import Router, created_at, fingerprint_of, load_router

FORMAT = "mild-router-versions"
VERSIONS_FILE = "versions.json"
VERSIONS_FOLDER = "versions"
LOCK_FILE = ".versions.lock"
# Seconds to wait for another process that writes a version.
_PATIENCE = 60.0
# A version, or one that is being written.
_NUMBERED = re.compile(r"(\d{4,})|\.(\d{4,})\.[0-9a-f]{8}\.(new|old)")


@dataclass(frozen=True)
class RouterVersion:
    """One version of a router."""

    version: int
    fingerprint: str | None  # as in the ledger's column ``router``
    created: float  # in seconds since 1970
    why: str  # in a sentence
    reason: str | None = None  # in a word, for programs
    learned_until: float | None = None  # time of the newest request that it has learned from
    base: int | None = None  # the version that served before it
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its writer says, JSON-ready


@dataclass(frozen=True)
class VersionEvent:
    """A change to a version: ``saved``, ``candidate``, ``promoted``, ``rolled back`` or ``dropped``."""

    time: float
    version: int
    event: str
    why: str


@dataclass(frozen=True, repr=False)
class Versions:
    """The versions of a router in a folder, and which of them serves.

    Attributes
    ----------
    folder : Path
        Folder of the router.
    serving : int
        The version that serves.
    versions : tuple of RouterVersion
        The versions, oldest first.
    history : tuple of VersionEvent
        Every change, also of candidates that were replaced.
    candidate : int or None
        A version that has learned and is not yet proven: a gateway with ``explore = "auto"`` tries it out.
    """

    folder: Path
    serving: int
    versions: tuple[RouterVersion, ...]
    history: tuple[VersionEvent, ...]
    candidate: int | None = None

    def __getitem__(self, version: int) -> RouterVersion:
        if type(version) is int:
            for entry in self.versions:
                if entry.version == version:
                    return entry
        raise self._unknown_version(version)

    @property
    def numbers(self) -> list[int]:
        """Numbers of the versions."""
        return [entry.version for entry in self.versions]

    def _unknown_version(self, version: object) -> InvalidInputError:
        """The error about the number of a version that is not there."""
        if len(self.numbers) == 1:
            rule = f"must be {self.numbers[0]}, the only version in {self.folder}"
        else:
            numbers = listed([str(number) for number in self.numbers])
            rule = f"must be one of {numbers}, the versions in {self.folder}"
        return InvalidInputError(parameter="version", rule=f"{rule}; got {version!r}.")

    def without_candidate(self) -> Versions:
        """The versions but for the candidate."""
        others = [entry for entry in self.versions if entry.version != self.candidate]
        return replace(self, versions=tuple(others), candidate=None)

    def with_one_more(self, version: RouterVersion) -> Versions:
        """The versions with a new one in place of the candidate.

        A candidate that never served is of no use to anybody.
        """
        known = self.without_candidate()
        return replace(known, versions=(*known.versions, version))

    def as_dict(self) -> dict[str, Any]:
        """What ``mild versions --json`` prints."""
        return {**asdict(self), "folder": str(self.folder)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per version, for a table."""
        roles = {self.candidate: "candidate", self.serving: "serves"}
        rows = [
            {
                "version": entry.version,
                "role": roles.get(entry.version, ""),
                "router": entry.fingerprint,
                "created": entry.created,
                "why": entry.why,
            }
            for entry in self.versions
        ]
        return rows

    def __repr__(self) -> str:
        return f"<Versions of {self.folder}: {self.serving} of {len(self.versions)} serves>"


def read_versions(folder: str | os.PathLike[str]) -> Versions:
    """The versions of a saved router: which one serves, what served before, and why.

    Parameters
    ----------
    folder : str or path
        Folder of a saved router; one that was only saved has version 1.

    Returns
    -------
    Versions
        It has ``serving`` and ``versions``.

    Raises
    ------
    RouterFileError
        There is no router, or its list of versions is damaged.
    """
    path = Path(folder)
    try:
        content = json.loads((path / VERSIONS_FILE).read_text(encoding="utf-8"))
        return _parse_versions(path, content)
    except (FileNotFoundError, NotADirectoryError):
        return _as_saved(path)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RouterFileError(
            f"{path / VERSIONS_FILE} cannot be read ({error}); restore it, or delete it for version 1."
        ) from error


def load_candidate(folder: str | os.PathLike[str]) -> Router | None:
    """The version that has learned and is not yet proven; None if there is none that can be read."""
    try:
        known = read_versions(folder)
        if known.candidate is None:
            return None
        return load_router(_version_folder(known.folder, known.candidate))
    except RouterFileError:
        # It may just have been replaced, and nothing depends on it.
        return None


def _parse_versions(folder: Path, content: Mapping[str, Any]) -> Versions:
    """The versions of the content of ``versions.json``."""
    known = Versions(
        folder=folder,
        serving=content["serving"],
        versions=tuple(_from_json(RouterVersion, entry) for entry in content["versions"]),
        history=tuple(_from_json(VersionEvent, entry) for entry in content["history"]),
        candidate=content.get("candidate"),
    )
    numbers = known.numbers
    if content["format"] != FORMAT or not all(type(number) is int for number in numbers):
        raise ValueError(f"its format must be {FORMAT}, and versions numbers")
    if known.serving not in numbers or known.candidate not in (None, *numbers):
        raise ValueError("the version that serves, or the candidate, is not listed")
    return known


def write_version(
    folder: str | os.PathLike[str],
    router: Any,
    *,
    why: str,
    serve: bool = True,
    expected: str | None = None,
    **details: Any,
) -> int:
    """Write a router as the next version in a folder, to serve or as the candidate.

    Parameters
    ----------
    folder : str or path
        Folder of a saved router.
    router : Router
        Anything with a method ``save(folder)``.
    why : str
        Why it was written, in a sentence.
    serve : bool, default=True
        Whether it serves from now on; otherwise it is the candidate, in place of the one before.
    expected : str, default=None
        Fingerprint of the router that it was compared with. If another one serves meanwhile, nothing is
        written.
    **details : Any
        More fields of RouterVersion: ``reason``, ``learned_until``, ``facts``.

    Returns
    -------
    int
        The number of the version.

    Raises
    ------
    OutputExistsError
        The serving version is not ``expected`` (code ``version_changed``), or another process writes.
    """
    event = "promoted" if serve else "candidate"
    with _writing(Path(folder), expected) as known:
        # It must be a router that this version of mild reads.
        load_router(known.folder)
        # A number that no version had, also none that was deleted.
        number = max(entry.version for entry in known.versions + known.history) + 1
        (known.folder / VERSIONS_FOLDER).mkdir(exist_ok=True)
        _sync(known.folder)
        _clean(known, number)
        _copy_first_version(known.folder)
        new_folder = router.save(_version_folder(known.folder, number))
        new_version = RouterVersion(
            number,
            fingerprint=fingerprint_of(load_router(new_folder)),
            created=time.time(),
            why=why,
            base=known.serving,
            **details,
        )
        written = _write(known.with_one_more(new_version), number, event, why)
        _clean(written, number + 1)
    return number


def serve_version(
    folder: str | os.PathLike[str],
    version: int,
    why: str,
    event: str = "promoted",
    expected: str | None = None,
    **details: Any,
) -> Versions:
    """Let another version serve; a router that serves from the folder must be loaded again.

    ``expected`` is as in ``write_version``, and so are the ``details`` of a candidate.
    """
    with _writing(Path(folder), expected) as known:
        entry = known[version]
        load_router(_version_folder(known.folder, version))  # it must be there
        if version == known.candidate:
            # It moves to the end of the list, as if it had just been written.
            known = known.with_one_more(replace(entry, base=known.serving, why=why, **details))
        return _write(known, version, event, why)


def rollback(
    folder: str | os.PathLike[str], version: int | None = None, why: str = "asked for by hand"
) -> Versions:
    """Let an earlier version of a router serve again; a running gateway takes it over by itself.

    Parameters
    ----------
    folder : str or path
        Folder of a saved router.
    version : int, default=None
        The version; None for the one that served before the current one.
    why : str, default="asked for by hand"
        The reason, which the history keeps.

    Returns
    -------
    Versions
        The versions after the change.
    """
    known = read_versions(folder)
    if version is None:
        version = known[known.serving].base
        if version is None:
            rule = f"must be given, because no version served before version {known.serving}"
            raise InvalidInputError(parameter="version", rule=f"{rule}; mild versions lists them.")
    elif version not in known.numbers:
        raise known._unknown_version(version)
    if version == known.serving:
        rule = f"must be another version than {known.serving}, which serves; got {version!r}."
        raise InvalidInputError(parameter="version", rule=rule)
    return serve_version(folder, version, why, "rolled back")


def drop_candidate(folder: str | os.PathLike[str], why: str = "asked for by hand") -> Versions:
    """Delete the candidate of a router; the next run of ``mild learn`` begins without one.

    Parameters
    ----------
    folder : str or path
        Folder of a saved router.
    why : str, default="asked for by hand"
        The reason, which the history keeps.

    Returns
    -------
    Versions
        The versions after the change.
    """
    with _writing(Path(folder), expected=None) as known:
        number = known.candidate
        if number is None:
            rule = f"must have a candidate, which mild learn writes; {folder} has none."
            raise InvalidInputError(parameter="folder", rule=rule)
        changed = _write(known.without_candidate(), number, "dropped", why)
        _clean(changed, number)
        return changed


def _version_folder(folder: Path, version: int) -> Path:
    """The folder of one version, where there is more than one."""
    return folder / VERSIONS_FOLDER / f"{version:04d}"


def _copy_first_version(folder: Path) -> None:
    """Copy the router that was saved in a folder to that of version 1, unless it is there."""
    first = _version_folder(folder, 1)
    if first.exists():
        return
    copy = first.with_name(f".0001.{secrets.token_hex(4)}.new")
    copy.mkdir()
    for file in folder.iterdir():
        if file.is_file() and file.name not in (VERSIONS_FILE, LOCK_FILE):
            shutil.copy2(file, copy)
            _sync(copy / file.name)
    _sync(copy)
    copy.rename(first)


def _as_saved(folder: Path) -> Versions:
    """The only version of a router that was saved and never replaced by another one."""
    router = load_router(folder)
    why = "as it was saved"
    try:
        saved = datetime.fromisoformat(created_at(router)).timestamp()
    except ValueError:
        saved = time.time()
    version = RouterVersion(1, fingerprint_of(router), saved, why)
    event = VersionEvent(saved, 1, "saved", why)
    return Versions(folder, 1, (version,), (event,))


def _from_json(entry_class: Any, entry: Mapping[str, Any]) -> Any:
    """A version or an event; keys that a later version of mild has added are left out."""
    names = [field.name for field in fields(entry_class)]
    return entry_class(**{name: entry[name] for name in names if name in entry})


@contextmanager
def _writing(folder: Path, expected: str | None) -> Iterator[Versions]:
    """The versions, while no other process changes them."""
    read_versions(folder)  # says what is wrong with a folder that is none
    try:
        with _lock(folder):
            for file in folder.glob(f".{VERSIONS_FILE}.*.new"):
                file.unlink(missing_ok=True)  # left by a process that was killed
            known = read_versions(folder)
            if expected not in (None, known[known.serving].fingerprint):
                raise OutputExistsError(
                    f"{folder} must still serve the router {expected}, with which the new one was "
                    f"compared; version {known.serving} is another one. Run it again.",
                    code="version_changed",
                )
            yield known
    except OutputExistsError:
        raise
    except OSError as error:
        raise RouterFileError(f"cannot write to {folder}: {error.strerror or error}.") from error


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock of the kernel, which ends with the process."""
    path = folder / LOCK_FILE
    lock = FileLock(path, timeout=_PATIENCE)
    # Says why a folder cannot be written to, which the lock may take for contention.
    path.touch()
    try:
        lock.acquire()
    except Timeout as error:
        raise OutputExistsError(
            f"cannot write to {folder}: another process has been writing a version for a minute."
        ) from error
    try:
        yield
    finally:
        # Removed while it is held: a lock file that was removed cannot be acquired.
        with suppress(OSError):
            path.unlink()
        lock.release()


def _write(known: Versions, version: int, event: str, why: str) -> Versions:
    """Write that a version serves, is the candidate, or was dropped."""
    history = (*known.history, VersionEvent(time.time(), version, event, why))
    known = replace(known, history=history)
    if event == "candidate":
        known = replace(known, candidate=version)
    elif event != "dropped":
        known = replace(known, serving=version)
    content = {**known.as_dict(), "format": FORMAT}
    del content["folder"]
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    target = known.folder / VERSIONS_FILE
    fresh = target.with_name(f".{VERSIONS_FILE}.{secrets.token_hex(4)}.new")
    fresh.write_text(text, encoding="utf-8")
    _sync(fresh)
    with suppress(FileNotFoundError):
        shutil.copymode(target, fresh)
    os.replace(fresh, target)
    _sync(known.folder)
    return known


def _sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable, where the system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _clean(known: Versions, until: int) -> None:
    """Remove what killed processes have left: folders up to a number that are not listed."""
    names = [_version_folder(known.folder, number).name for number in known.numbers]
    for entry in (known.folder / VERSIONS_FOLDER).iterdir():
        numbered_name = _NUMBERED.fullmatch(entry.name)
        if numbered_name is None or entry.name in names:
            continue
        number = int(numbered_name[1] or numbered_name[2])
        if number > until:
            raise RouterFileError(
                f"{known.folder / VERSIONS_FILE} must list {entry}; restore it, or move that folder away."
            )
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
