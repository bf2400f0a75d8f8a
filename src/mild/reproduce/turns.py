"""Work through cells with others: a cell that another process is at is left to it until the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

from mild.exceptions import DataFileError
from mild.reproduce.diverged import DivergedError
from mild.reproduce.files import WAITING, check_regular, claimed_beside
from mild.reproduce.results import append_record, records_by_key

__all__ = ["Ledger", "Progress", "Tell", "check_place", "run_cells"]

#: Called with how many cells are done, how many there are, and what is being done.
Progress: TypeAlias = Callable[[int, int, str], Any]
#: Told in words what is being done.
Tell: TypeAlias = Callable[[str], None]


class Titled(Protocol):
    """Anything with a name for people."""

    @property
    def title(self) -> str:
        """The cell in a few words."""


C = TypeVar("C", bound=Titled)
#: The record of a cell; None if another process is at it and we need not wait.
Runner: TypeAlias = Callable[[C, Tell, bool], dict[str, Any] | None]


def run_cells(
    cells: Sequence[C], run: Runner[C], results: Path, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Records of all cells, in their order.

    A cell whose training diverges does not keep the others from being run; the error comes at the end
    and names such cells.

    Parameters
    ----------
    cells : with titles
    run : called as ``run(cell, tell, wait)``; a cell for which it gives None is run again after the
        others, with ``wait``
    results : where finished cells are, for the message about diverged ones
    progress : called as ``progress(done, total, message)``
    """
    records: dict[int, dict[str, Any]] = {}
    diverged: dict[int, str] = {}
    for wait in (False, True):
        for place, cell in enumerate(cells):
            if place in records or place in diverged:
                continue
            tell = _teller(progress, len(records) + len(diverged), len(cells), cell.title)
            tell("")
            try:
                found = run(cell, tell, wait)
            except DivergedError as error:
                diverged[place] = f"{cell.title} ({str(error).rstrip('.')})"
                continue
            if found is not None:
                records[place] = found
    if progress is not None:
        progress(len(cells), len(cells), "done")
    if diverged:
        count = "1 cell" if len(diverged) == 1 else f"{len(diverged)} cells"
        kept = f", and the others are in {results}" if records else ""
        raise DivergedError(
            f"{count} of {len(cells)} diverged{kept}: "
            f"{'; '.join(diverged[place] for place in sorted(diverged))}."
        )
    return [records[place] for place in range(len(cells))]


def _teller(progress: Progress | None, done: int, total: int, title: str) -> Tell:
    if progress is None:
        return lambda said: None
    report = progress
    return lambda said: report(done, total, f"{title}: {said}" if said else title)


class Ledger:
    """A results file that several processes add to: what is finished, and who is at what."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.finished: dict[str, dict[str, Any]] = {}
        self._seen: tuple[int, ...] | None = None
        self.look()

    def known(self, key: str) -> dict[str, Any] | None:
        """The record of a finished cell."""
        self.look()
        return self.finished.get(key)

    def look(self) -> None:
        """Read the file if it has changed: another process may have finished cells, too."""
        try:
            facts = os.stat(self.results)
        except FileNotFoundError:
            return
        seen = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if seen != self._seen:
            self.finished |= records_by_key(self.results)
            self._seen = seen

    def add(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Append a finished record."""
        append_record(self.results, record)
        kept = dict(record)
        self.finished[kept["key"]] = kept
        return kept

    def twin(self, training: str) -> dict[str, Any] | None:
        """A record of the same training under another name."""
        known = self.finished.values()
        return next((record for record in known if record.get("twin") == training), None)

    @contextmanager
    def claim(self, key: str, wait: bool, tell: Tell | None = None) -> Iterator[bool]:
        """Whether the cell of this key is ours to run, once what others finished is known."""

        def waiting() -> None:
            if tell is not None:
                tell(WAITING)

        with claimed_beside(self.results, key, wait, waiting) as ours:
            self.look()
            yield ours


def check_place(results: Path) -> None:
    """Say before the first training what writing would say after it."""
    check_regular(results, "results")
    folder = Path(os.path.realpath(results)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            f"results must lie in a folder that can be made; {folder} cannot: "
            f"{error.strerror or error}."
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataFileError(
            f"results must lie in a folder that can be written to; {folder} cannot."
        )
