"""Configuration files validated by pydantic: every problem is named with file, line, key and rule."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, Union

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mild.errors import DataFileError

Location = tuple[str, ...]
Kind = TypeVar("Kind")

_HEADER = re.compile(r"\s*(\[\[?[^\[\]]+\]\]?)\s*(#.*)?$")
# The left side of an assignment: bare or quoted keys, joined by dots.
_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_ASSIGNED = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_LONG = ('"""', "'''")
CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
# Larger than any configuration; longer keys are no keys of ours.
MAX_BYTES = 250_000
_DEEP_KEY = re.compile(r"(?<![A-Za-z0-9_.-])(?:[\"']?[A-Za-z0-9_-]++[\"']?\s*+\.\s*+){50}")
# Larger numbers leave the range of a database's, or of a clock.
MAX_NUMBER = 1e15
# Problems that are told at a time.
MAX_PROBLEMS = 20
#: Values keep their type: 1 is no flag, and "1" no number.
_ACCEPTED: dict[Any, tuple[type, ...]] = {
    str: (str,), bool: (bool,), int: (int,), float: (int, float)
}  # fmt: skip


class Rule:
    """Annotates a type with the sentence for values that it refuses, and with a further check."""

    def __init__(self, text: str, check: Callable[[Any], bool] | None = None) -> None:
        self.text = text
        self.check = check

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        accepted = _ACCEPTED.get(source, (object,))

        def validate(value: Any, inner: core_schema.ValidatorFunctionWrapHandler) -> Any:
            good = isinstance(value, accepted) and (source is bool or not isinstance(value, bool))
            if good and source in (int, float) and MAX_NUMBER < value < math.inf:
                problem(f"must be at most {MAX_NUMBER:g}; got {shown_value(value)}")
            result = None
            if good:
                with contextlib.suppress(ValidationError):
                    result = inner(value)
            if result is None or not (self.check is None or self.check(result)):
                problem(f"{self.text}; got {shown_value(value)}")
            return result

        return core_schema.no_info_wrap_validator_function(validate, handler(source))


def whole(low: int, high: float = math.inf) -> Rule:
    """The rule for a whole number from ``low`` to ``high``."""
    limits = f"from {low} to {high}"
    if high == math.inf:
        limits = f"of at least {low}"
    return Rule(f"must be a whole number {limits}", lambda value: low <= value <= high)


Text = Annotated[str, Rule("must be text in quotes")]
Flag = Annotated[bool, Rule("must be true or false")]
Amount = Annotated[
    float, Rule("must be a number of at least 0", lambda x: math.isfinite(x) and x >= 0)
]
Positive = Annotated[float, Rule("must be a number above 0", lambda x: math.isfinite(x) and x > 0)]


def problem(rule: str) -> NoReturn:
    """Refuse a value from inside a validator: ``rule`` is the end of a sentence about its key."""
    raise PydanticCustomError("rule", "{rule}", {"rule": rule})


@dataclasses.dataclass
class ConfigFile:
    """The content of a file, where its keys stand, and the problems found so far."""

    path: Path
    content: dict[str, Any]
    lines: dict[Location, int]
    problems: list[str] = dataclasses.field(default_factory=list)

    def file_and_line(self, location: Location) -> str:
        """Where a key stands, to begin a message with."""
        line = line_of(self.lines, location)
        if line is None:
            return str(self.path)
        return f"{self.path}, line {line}"

    def add(self, location: Location, rule: str) -> None:
        text = f"{self.file_and_line(location)}: {'.'.join(location)} {rule}"
        if not rule.endswith("?"):
            text += "."
        self.problems.append(text)

    def fail(self, location: Location, rule: str) -> NoReturn:
        """Note a problem and raise all."""
        self.add(location, rule)
        self.check()
        raise AssertionError

    def check(self) -> None:
        if self.problems:
            raise DataFileError(" ".join(self.problems))

    def validate(
        self,
        kind: type[Kind],
        data: Any,
        location: Location = (),
        names: Mapping[str, Location] | None = None,
    ) -> Kind | None:
        """``data`` as an instance of ``kind``; None where problems were noted.

        ``names`` says under which keys of the file a field was found, if not under its own.
        """
        try:
            return TypeAdapter(kind).validate_python(data, context=self.path.resolve().parent)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            for entry in errors[:MAX_PROBLEMS]:
                inner = tuple(str(part) for part in entry["loc"] if part != "[key]")
                key = inner
                if inner and names is not None:
                    key = names.get(inner[0], inner[:1]) + inner[1:]
                rule = _rule(entry)
                if entry["type"] == "unexpected_keyword_argument":
                    rule = _unknown_rule(kind, inner)
                self.add((*location, *key), rule)
            if len(errors) > MAX_PROBLEMS:
                self.problems.append(f"There are {len(errors) - MAX_PROBLEMS} more problems.")
            return None


def read_toml(path: Path) -> ConfigFile:
    """Read a TOML file; DataFileError if it cannot be read, is too long, or is not TOML."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DataFileError(f"{path}: it cannot be read: {error.strerror or error}.") from error
    if len(raw) > MAX_BYTES:
        raise DataFileError(f"{path}: it must have at most {MAX_BYTES:,} bytes.")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        # The parser's time grows with the square of the depth.
        if _DEEP_KEY.search(text):
            raise RecursionError
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{path}: a TOML file must be UTF-8; byte {error.start} is not."
        ) from error
    except ValueError as error:
        # The parser names line and column, or a number that is too long, and quotes no value.
        raise DataFileError(f"{path}: it is not TOML: {error}.") from None
    except RecursionError:
        raise DataFileError(f"{path}: it is not TOML: it is nested too deeply.") from None
    return ConfigFile(path, content, key_lines(text))


def key_lines(text: str) -> dict[Location, int]:
    """First line, from 1, of every table and key that stands at the start of a line.

    >>> key_lines('[experts.small]\\nmodel = "tiny"\\nextra.seed = 1\\n')
    {('experts', 'small'): 1, ('experts', 'small', 'model'): 2, ('experts', 'small', 'extra', 'seed'): 3}
    """
    lines: dict[Location, int] = {}
    table: Location = ()
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is not None:
            # Lines of a long string look like anything.
            if inside in line:
                inside = None
            continue
        inside = next((mark for mark in _LONG if line.count(mark) % 2), None)
        if header := _HEADER.match(line):
            table = _key_path(header[1])
            lines.setdefault(table, number)
        elif assigned := _ASSIGNED.match(line):
            lines.setdefault((*table, *_key_path(assigned[1])), number)
    return lines


def line_of(lines: dict[Location, int], path: Location) -> int | None:
    """Line of a key, or else of the innermost table around it that has one."""
    for length in range(len(path), 0, -1):
        prefix = path[:length]
        if prefix in lines:
            return lines[prefix]
        inner = [number for key, number in lines.items() if key[:length] == prefix]
        if inner:
            return min(inner)
    return None


def _key_path(text: str) -> Location:
    """Keys from the outside in, without their quotes."""
    return tuple(part.strip("\"'") for part in re.findall(_PART, text))


def shown_value(value: object) -> str:
    """A value for a message: text only by its type, because it may be a secret."""
    if isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    return "a date or time"


def _unknown_rule(kind: Any, location: Location) -> str:
    """The end of the sentence about a key that does not exist."""
    known = _keys(kind, location[:-1])
    close = difflib.get_close_matches(location[-1], known, n=1)
    if close:
        return f"is unknown; did you mean {close[0]}?"
    return f"is unknown; the known names are {', '.join(known)}"


def _rule(entry: Mapping[str, Any]) -> str:
    """The end of the sentence for one error of pydantic."""
    if entry["type"] == "rule":
        return str(entry["msg"])
    if entry["type"] == "missing":
        return "must be given"
    if entry["type"] == "literal_error":
        return f"must be {entry['ctx']['expected'].replace(chr(39), chr(34))}"
    return "must be a table"


def _keys(kind: Any, location: Location) -> list[str]:
    """Keys that a file may have at a location: the fields of its model.

    A model names its ``internal`` fields, which a file cannot have, and ``other_keys`` that are read into
    its fields.
    """
    for part in location:
        if typing.get_origin(kind) is dict:
            kind = typing.get_args(kind)[1]
        else:
            kind = typing.get_type_hints(kind)[part]
        if typing.get_origin(kind) in (Union, types.UnionType):
            kind = _without_none(kind)
    internal = getattr(kind, "internal", ())
    keys = [
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.name not in internal
    ]
    keys.extend(getattr(kind, "other_keys", ()))
    return keys


def _without_none(union: Any) -> Any:
    """The first type of a union that is not None."""
    for kind in typing.get_args(union):
        if kind is not type(None):
            return kind
    raise TypeError(f"{union} has no other type than None")
