"""The mathematics: costs, margins, surrogates, losses and decisions."""

from typing import NoReturn

from mild.errors import missing_name


def __getattr__(name: str) -> NoReturn:
    raise missing_name("mild.core", name)
