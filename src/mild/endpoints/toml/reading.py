"""A TOML file, read."""

from __future__ import annotations

import tomllib
from pathlib import Path

from mild.endpoints.toml.checker import Checker
from mild.endpoints.toml.lines import key_lines
from mild.errors import DataFileError

__all__ = ["read_toml"]


def read_toml(file: Path) -> Checker:
    """The content of a file, to be asked for value by value.

    Raises
    ------
    DataFileError : it cannot be read, or is not TOML; one sentence, with the line
    """
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise DataFileError(f"{file}: it cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise DataFileError(
            f"{file}: a TOML file must be UTF-8; byte {error.start} is not."
        ) from error
    except tomllib.TOMLDecodeError as error:
        # The parser names line and column, and quotes no value.
        raise DataFileError(f"{file}: it is not TOML: {error}.") from None
    return Checker(str(file), content, key_lines(text))
