"""Values of a TOML file, checked; messages name file, line, key, rule and what was got."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, overload

from mild.endpoints.toml.lines import line_of
from mild.errors import DataFileError

__all__ = ["Checker"]

Path = tuple[str, ...]
Default = TypeVar("Default")


class Checker:
    """The content of a file, asked for value by value.

    Parameters
    ----------
    name : of the file
    content : what the parser gave
    lines : where keys stand (``key_lines``)
    """

    def __init__(self, name: str, content: Mapping[str, Any], lines: dict[Path, int]) -> None:
        self._name = name
        self._content = content
        self._lines = lines

    def fail(self, path: Path, rule: str) -> NoReturn:
        """Raise with the place of a key and the rule that it breaks."""
        end = "" if rule.endswith("?") else "."
        raise DataFileError(f"{self.place(path)}: {'.'.join(path)} {rule}{end}")

    def value(self, path: Path) -> Any:
        """The value of a key, None where there is none."""
        node: Any = self._content
        for key in path:
            if not isinstance(node, Mapping) or key not in node:
                return None
            node = node[key]
        return node

    def table(self, path: Path) -> dict[str, Any]:
        """A table; empty where there is none."""
        found = self.value(path)
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.fail(path, f"must be a table; got {_shown(found)}")
        return found

    def refuse_unknown(
        self, path: Path, known: Sequence[str], elsewhere: Sequence[str] = ()
    ) -> None:
        """Refuse keys that have no meaning here, with what was meant, perhaps; values are not shown."""
        for key in self.table(path) if path else self._content:
            if key in known:
                continue
            place = (*path, key)
            if key in elsewhere:
                self.fail(place, "does not go with this kind of expert")
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"
            self.fail(place, f"is unknown{hint}")

    @overload
    def text(self, path: Path, default: None) -> str | None: ...
    @overload
    def text(self, path: Path, default: str) -> str: ...
    def text(self, path: Path, default: str | None) -> str | None:
        """A string."""
        found = self.value(path)
        if found is None:
            return default
        if not isinstance(found, str):
            self.fail(path, f"must be text in quotes; got {_shown(found)}")
        return found

    def flag(self, path: Path, default: Default) -> bool | Default:
        """True or false."""
        found = self.value(path)
        if found is None:
            return default
        if not isinstance(found, bool):
            self.fail(path, f"must be true or false; got {_shown(found)}")
        return found

    def choice(self, path: Path, default: str, allowed: Sequence[str]) -> str:
        """One of a few words."""
        found = self.text(path, default)
        if found not in allowed:
            rule = " or ".join(f'"{word}"' for word in allowed)
            self.fail(path, f"must be {rule}; got {_shown(found)} that is neither")
        return found

    def place(self, path: Path) -> str:
        """File and line of a key, for a message."""
        line = line_of(self._lines, path)
        return self._name if line is None else f"{self._name}, line {line}"

    def number(self, path: Path, default: Default, above_zero: bool = False) -> float | Default:
        """A finite number that is not negative."""
        found = self.value(path)
        if found is None:
            return default
        rule = "above 0" if above_zero else "at least 0"
        good = isinstance(found, (int, float)) and not isinstance(found, bool)
        if not good or not math.isfinite(found) or found < 0 or (above_zero and found == 0):
            self.fail(path, f"must be a number {rule}; got {_shown(found)}")
        return float(found)

    def whole(
        self, path: Path, default: Default, least: int, most: int | None = None
    ) -> int | Default:
        """A whole number."""
        found = self.value(path)
        if found is None:
            return default
        good = isinstance(found, int) and not isinstance(found, bool)
        if not good or found < least or (most is not None and found > most):
            rule = f"of at least {least}" if most is None else f"from {least} to {most}"
            self.fail(path, f"must be a whole number {rule}; got {_shown(found)}")
        return int(found)


def _shown(value: object) -> str:
    """A value for a message: text only by its kind, because it may be a secret."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    words = ((str, "text"), (list, "a list"), (dict, "a table"))
    return next((word for kind, word in words if isinstance(value, kind)), "a date or time")
