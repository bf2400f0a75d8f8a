"""Where the store is: a file, or the address of a PostgreSQL database, which may hold a password."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mild.endpoints.toml import Checker
from mild.gateway.database.address import Address, AddressError, is_address, read_address
from mild.gateway.settings.secrets import (
    SecretError,
    check_safe_file,
    secret_from_environment,
    secret_from_file,
)

__all__ = ["DEFAULT_STORE", "read_store_of"]

# What is not said stands beside the file.
DEFAULT_STORE = "mild.sqlite"
_ENVIRONMENT = "os.environ/"
_NAMES = ("store", "store_env", "store_file")


def read_store_of(
    checker: Checker, file: Path, environment: Mapping[str, str] = os.environ
) -> str | Address:
    """The store that a file names: in ``store``, in a variable, or in a file of its own."""
    given = [name for name in _NAMES if checker.value((name,)) is not None]
    if len(given) > 1:
        checker.fail((given[1],), f"must not stand beside {given[0]}: one of them names the store")
    folder = file.resolve().parent
    store = checker.text(("store",), DEFAULT_STORE)
    try:
        if given == ["store_file"]:
            secret = secret_from_file(folder / Path(_text(checker, "store_file")).expanduser())
            return read_address(secret.value)
        if given == ["store_env"] or store.startswith(_ENVIRONMENT):
            name = (
                _text(checker, "store_env")
                if given == ["store_env"]
                else store[len(_ENVIRONMENT) :]
            )
            return read_address(secret_from_environment(name, environment).value)
        if not is_address(store):
            if not store:
                checker.fail(("store",), "must be the path of an SQLite file or postgresql://...")
            return str(folder / Path(store).expanduser())
        address = read_address(store)
        if address.has_password:
            check_safe_file(file.stat(), "holds a password, so the file must be its owner's alone")
    except (AddressError, SecretError) as error:
        # Not quoted: an address may hold a password.
        checker.fail((given[0],), str(error))
    return address


def _text(checker: Checker, name: str) -> str:
    return checker.text((name,), "")
