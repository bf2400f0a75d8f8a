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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mild.artifact.files import file_lock, left_behind, replacing, sync_folder
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
    """A change: a version was ``saved``, a ``candidate``, ``promoted`` or ``rolled back`` to."""

    time: float
    version: int
    event: str
    why: str


@dataclass(frozen=True, repr=False)
class Versions:
    """The versions of a router in a folder, oldest first, and which of them serves.

    ``candidate`` has learned and is not yet proven: a gateway with ``explore = "auto"`` tries it out.
    ``history`` has every change, also of candidates that were replaced.
    """

    folder: Path
    serving: int
    versions: tuple[RouterVersion, ...]
    history: tuple[VersionEvent, ...]
    candidate: int | None = None

    def __getitem__(self, version: int) -> RouterVersion:
        known = {one.version: one for one in self.versions}
        if type(version) is int and version in known:
            return known[version]
        raise invalid("version", self._unknown(version))

    def _unknown(self, version: object) -> str:
        """The rule about the number of a version that is not there."""
        numbers = [str(one.version) for one in self.versions]
        if len(numbers) == 1:
            return f"must be {numbers[0]}, the only version in {self.folder}; got {version!r}."
        return f"must be one of {listed(numbers)}, the versions in {self.folder}; got {version!r}."

    def as_dict(self) -> dict[str, Any]:
        """What ``mild versions --json`` prints."""
        return {**asdict(self), "folder": str(self.folder)}

    def to_frame(self) -> Any:
        """A row per version."""
        return as_frame(self.rows, default_library())

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row per version, for a table."""
        roles = {self.candidate: "candidate", self.serving: "serves"}
        return [
            {
                "version": one.version,
                "role": roles.get(one.version, ""),
                "router": one.fingerprint,
                "created": one.created,
                "why": one.why,
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
    """Folder and number of a version, by default of the one that serves; None where there are none."""
    place = Path(folder)
    if version is None and not (place / VERSIONS_FILE).is_file():
        return place, None
    known = read_versions(place)
    number = known[known.serving if version is None else version].version
    return _place(place, number), number


@check_arguments
def read_versions(folder: str | os.PathLike[str]) -> Versions:
    """The versions of a saved router: which one serves, what served before, and why.

    Parameters
    ----------
    folder : of a saved router; one that was only saved has version 1

    Returns
    -------
    Versions, with ``serving`` and ``versions``

    Examples
    --------
    >>> import tempfile
    >>> import mild
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = router.save(parent + "/router")
    ...     [(one.version, one.why) for one in mild.versions(folder).versions]
    [(1, 'as it was saved')]
    """
    place = Path(folder)
    try:
        content = json.loads((place / VERSIONS_FILE).read_text(encoding="utf-8"))
        found = tuple(_read(RouterVersion, entry) for entry in content["versions"])
        history = tuple(_read(VersionEvent, entry) for entry in content["history"])
        known = Versions(place, content["serving"], found, history, content.get("candidate"))
        numbers = [one.version for one in found]
        if content["format"] != FORMAT or not all(type(number) is int for number in numbers):
            raise ValueError(f"its format must be {FORMAT}, and versions numbers")
        if known.serving not in numbers or known.candidate not in (None, *numbers):
            raise ValueError("the version that serves, or the candidate, is not listed")
        return known
    except (FileNotFoundError, NotADirectoryError):
        return _as_saved(place)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{place / VERSIONS_FILE} cannot be read ({error}); restore it, or delete it for version 1."
        ) from error


#: As ``mild.versions``.
versions = read_versions


def write_version(
    folder: str | os.PathLike[str],
    router: Any,
    *,
    why: str,
    serve: bool = True,
    expected: str | None = None,
    **details: Any,
) -> int:
    """Write a router as the next version of a folder, and let it serve; the number of the version.

    Parameters
    ----------
    folder : of a saved router
    router : with a method ``save(folder)``
    why : why it was written, in a sentence
    serve : whether it serves from now on; otherwise it is the candidate, in place of the one before
    expected : fingerprint of the router that it was compared with; if another one serves meanwhile, nothing
        is written (OutputExistsError, code ``version_changed``)
    details : more fields of RouterVersion: ``reason``, ``learned_until``, ``facts``
    """
    event = "promoted" if serve else "candidate"
    with adding_version(Path(folder), event, why, expected, **details) as place:
        router.save(place)
    return int(place.name)


@contextmanager
def adding_version(
    folder: Path, event: str, why: str, expected: str | None = None, **details: Any
) -> Iterator[Path]:
    """Where to write the next version, which serves in the end unless it is a candidate."""
    with _writing(folder, expected) as known:
        # One that no version had, also none that was deleted.
        number = max(one.version for one in known.versions + known.history) + 1
        place = _place(folder, number)
        # First: a writer looks beside its target, and may leave something there.
        place.parent.mkdir(exist_ok=True)
        sync_folder(folder)
        _clean(known, number)
        yield place
        fingerprint, now = _info(place).fingerprint, time.time()
        new = RouterVersion(number, fingerprint, now, why, base=known.serving, **details)
        # A candidate that never served is of no use to anybody.
        tried = tuple(one for one in known.versions if one.version != known.candidate)
        changed = replace(known, versions=(*tried, new), candidate=None)
        _clean(_write(changed, number, event, why), number + 1)


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
        one = known[version]
        _info(_place(known.folder, version))  # it must be there
        if version == known.candidate:
            others = (other for other in known.versions if other is not one)
            versions = (*others, replace(one, base=known.serving, why=why, **details))
            known = replace(known, candidate=None, versions=versions)
        return _write(known, version, event, why)


@check_arguments
def rollback(
    folder: str | os.PathLike[str], to: int | None = None, why: str = "asked for by hand"
) -> Versions:
    """Let an earlier version of a router serve again. A gateway has to reload (``mild reload``).

    Parameters
    ----------
    folder : of a saved router
    to : the version; None for the one that served before the current one
    why : the reason, which the history keeps

    Returns
    -------
    Versions

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     folder = router.save(f"{parent}/router")
    ...     number = write_version(folder, router, why="a trial")
    ...     number, rollback(folder).serving
    (2, 1)
    """
    known = read_versions(folder)
    if to is not None and to not in [one.version for one in known.versions]:
        raise invalid("to", known._unknown(to))
    number = known[known.serving].base if to is None else to
    if number is None:
        rule = f"must be given, because no version served before version {known.serving}"
        raise invalid("to", f"{rule}; mild versions lists them.")
    if number in (None, known.serving):
        rule = f"must be another version than {known.serving}, which serves; got {to!r}."
        raise invalid("to", rule)
    return serve_version(folder, number, why, "rolled back")


def _place(folder: Path, version: int) -> Path:
    return folder if version == 1 else folder / VERSIONS_FOLDER / f"{version:04d}"


def _info(place: Path) -> RouterInfo:
    try:
        content = (place / MANIFEST_FILE).read_text(encoding="utf-8")
        return RouterInfo.from_manifest(read_manifest(content))
    except (OSError, UnicodeDecodeError, ArtifactError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        code = getattr(error, "code", None)
        raise ArtifactError(
            f"{place} must be the folder of a router: {reason}", code=code
        ) from error


def _as_saved(folder: Path) -> Versions:
    info, why = _info(folder), "as it was saved"
    try:
        saved = datetime.fromisoformat(info.created or "").timestamp()
    except ValueError:
        saved = time.time()
    first = RouterVersion(1, info.fingerprint, saved, why)
    return Versions(folder, 1, (first,), (VersionEvent(saved, 1, "saved", why),))


def _read(kind: Any, entry: Mapping[str, Any]) -> Any:
    # What a later mild adds is left to it.
    return kind(**{one.name: entry[one.name] for one in fields(kind) if one.name in entry})


@contextmanager
def _writing(folder: Path, expected: str | None) -> Iterator[Versions]:
    """The versions, while no other process changes them."""
    read_versions(folder)  # says what is wrong with a folder that is none
    problem = f"cannot write to {folder}: another process has been writing a version for a minute."
    try:
        with file_lock(folder / LOCK_FILE, lambda: OutputExistsError(problem), _PATIENCE):
            for file in left_behind(folder / VERSIONS_FILE):
                file.unlink(missing_ok=True)
            known = read_versions(folder)
            _info(_place(folder, known.serving))  # it must be a router that this version reads
            if expected not in (None, known[known.serving].fingerprint):
                raise OutputExistsError(
                    f"{folder} must still serve the router {expected}, with which the new one was "
                    f"compared; version {known.serving} is another one. Run it again.",
                    code="version_changed",
                )
            yield known
    except MildError:
        raise
    except OSError as error:
        raise ArtifactError(f"cannot write to {folder}: {error.strerror or error}.") from error


def _write(known: Versions, version: int, event: str, why: str) -> Versions:
    """Write that a version serves, or is the candidate."""
    role: dict[str, Any] = {"candidate" if event == "candidate" else "serving": version}
    history = (*known.history, VersionEvent(time.time(), version, event, why))
    known = replace(known, history=history, **role)
    content = {**known.as_dict(), "format": FORMAT}
    del content["folder"]
    with replacing(known.folder / VERSIONS_FILE) as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False).encode())
    return known


def _clean(known: Versions, until: int) -> None:
    """Remove what killed processes have left: folders up to a number that are not listed."""
    names = {_place(known.folder, one.version).name for one in known.versions}
    for entry in (known.folder / VERSIONS_FOLDER).iterdir():
        found = _NUMBERED.fullmatch(entry.name)
        if found is None or entry.name in names:
            continue
        if int(found[1] or found[2]) > until:
            raise ArtifactError(
                f"{known.folder / VERSIONS_FILE} must list {entry}; restore it, or move that folder away."
            )
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
