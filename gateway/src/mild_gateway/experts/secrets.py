"""Secrets: read from the environment or from a file that only its owner can read, and never shown."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

# Longer files are no keys.
_MOST_BYTES = 16_384


class SecretError(Exception):
    """Why a secret cannot be had, as the end of a sentence; it holds no part of the secret."""


class Secret:
    """A value that no ``repr``, log line, message or pickle shows; ``source`` says where it was found.

    >>> secret = Secret("sk-abc", "the variable SMALL_KEY")
    >>> f"{secret}", secret.value
    ('Secret(from the variable SMALL_KEY)', 'sk-abc')
    """

    __slots__ = ("source", "value")

    def __init__(self, value: str, source: str) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"Secret(from {self.source})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Secret cannot be pickled: read the settings again in the process that needs it."
        )


def secret_from_environment(name: str, environment: Mapping[str, str]) -> Secret:
    value = environment.get(name, "").strip()
    if not value:
        raise SecretError("names an environment variable that is not set; export it first")
    _check_plain(value, "names a variable")
    return Secret(value, f"the variable {name}")


def secret_from_file(path: Path) -> Secret:
    """The secret in a file, which only its owner may read.

    The permissions are those of the opened file, so that it cannot be exchanged in between.
    """
    try:
        # A named pipe would wait for its writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise SecretError(f"names a file that cannot be read: {error.strerror}") from None
    try:
        check_safe_file(os.fstat(handle), f"names a file: {path}")
        value = os.read(handle, _MOST_BYTES + 1).decode("ascii", "replace").strip()
    finally:
        os.close(handle)
    _check_plain(value, "names a file")
    return Secret(value, f"the file {path}")


def check_safe_file(status: os.stat_result, subject: str) -> None:
    """Refuse a file that others than its owner may read or write (mode 0600 or 0400 is right).

    ``subject`` begins the sentence of the error.
    """
    if not stat.S_ISREG(status.st_mode):
        raise SecretError(f"{subject}, but it is not a regular file")
    if os.name == "nt":
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise SecretError(
            f"{subject}, but others can use it (mode {mode:04o}); run: chmod 600 on it"
        )
    # Root reads what a service's own user was given.
    if status.st_uid not in (os.getuid(), 0) and os.getuid() != 0:
        raise SecretError(f"{subject}, but it belongs to another user")


def _check_plain(value: str, subject: str) -> None:
    is_word = value.isascii() and value.isprintable() and " " not in value
    if not is_word or not 0 < len(value) <= _MOST_BYTES:
        raise SecretError(f"{subject} whose content must be one key: one word of plain ASCII text")
