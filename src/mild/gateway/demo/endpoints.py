"""Endpoints that take the places of stand-in experts: ``mild serve --demo --endpoint NAME=URL``."""

from __future__ import annotations

from collections.abc import Iterable

from mild.endpoints.expert import check_base_url
from mild.errors import InvalidInputError
from mild.gateway.demo.answers import STAND_INS


def read_endpoints(given: Iterable[str]) -> dict[str, str]:
    """Addresses by the stand-in's name.

    >>> read_endpoints(["smollm2=http://127.0.0.1:8131/v1"])
    {'smollm2': 'http://127.0.0.1:8131/v1'}
    """
    found: dict[str, str] = {}
    for text in given:
        name, is_there, url = text.partition("=")
        if not is_there:
            raise InvalidInputError(
                "--endpoint must be NAME=URL, as smollm2=http://127.0.0.1:8131/v1."
            )
        if name not in STAND_INS:
            raise InvalidInputError(
                f"--endpoint must name a stand-in of the demo ({', '.join(STAND_INS)}); got {name!r}."
            )
        if name in found:
            raise InvalidInputError(
                f"--endpoint takes one address for each name; {name} is named twice."
            )
        # The address is not quoted: a secret may stand in it.
        try:
            found[name] = check_base_url(url)
        except ValueError as error:
            raise InvalidInputError(f"the address of --endpoint {name} {error}.") from None
    return found
