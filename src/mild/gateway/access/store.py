"""What every worker of a gateway shares: keys, budgets and slots.

A worker speaks to the store in exchanges. One exchange is one transaction: what was spent and what is given
back, what is wanted, and what was granted. Money that a worker holds is its allotment. For every account

    spent + sum of the allotments of all workers <= budget

holds at any time, whatever dies when, unless an endpoint charged more than was reserved for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from mild.errors import MildError
from mild.gateway.access.keys import Key

__all__ = [
    "AccountKey",
    "Draw",
    "Exchange",
    "Grant",
    "Owner",
    "Report",
    "SlotDraw",
    "SlotGrant",
    "SlotReturn",
    "Store",
    "StoreDoubtError",
    "StoreError",
    "Totals",
    "Transacted",
]

# Sliding minutes are kept by the second; slots may be used for so long after they were taken.
SLOT_SECONDS = 2
MINUTE = 60 + SLOT_SECONDS


class StoreError(MildError, OSError):
    """The store cannot be read or written; what was asked has not happened."""


class StoreDoubtError(StoreError):
    """The store was lost before it answered: what was asked has happened, or not. Ask it again."""


class AccountKey(NamedTuple):
    """Whose money, and of which day or month."""

    scope: str
    period: str


class Owner(NamedTuple):
    """A worker, so that others know when it is gone; ``started`` tells it from a later process."""

    name: str
    host: str
    pid: int
    started: int


class Report(NamedTuple):
    """Spent since the last report, and how much of the allotment ends with that or is given back.

    ``beyond`` is the part of ``spent`` that no allotment covers.
    """

    account: AccountKey
    spent: int
    released: int
    beyond: int


class Draw(NamedTuple):
    """Money wanted: ``need`` at least, and ``extra`` for requests to come, where there is plenty."""

    account: AccountKey
    budget: int
    need: int
    extra: int


class Grant(NamedTuple):
    """Money granted, and what the whole account has spent by now."""

    amount: int
    spent: int


class SlotDraw(NamedTuple):
    """Requests wanted within the minute."""

    scope: str
    limit: int
    need: int
    extra: int


class SlotGrant(NamedTuple):
    """Requests granted, the second they count in, and seconds until more may be.

    ``ahead`` is by how much the store's clock, whose second it is, was before the worker's.
    """

    slots: int
    second: int
    retry_after: float
    ahead: float = 0.0


class SlotReturn(NamedTuple):
    """Requests granted in a second, and not made."""

    scope: str
    second: int
    slots: int


class Totals(NamedTuple):
    """An account over all workers: spent, held by them, and lost with those that were killed."""

    spent: int
    held: int
    lost: int


@dataclass(slots=True)
class Exchange:
    """Everything a worker says at once.

    ``number`` is another one for each exchange of a worker. One that was in doubt is said again as it
    was, and happens once.
    """

    owner: Owner
    now: float
    # At least so many share the store.
    workers: int = 1
    number: int = 0
    reports: Sequence[Report] = ()
    draws: Sequence[Draw] = ()
    slot_returns: Sequence[SlotReturn] = ()
    slot_draws: Sequence[SlotDraw] = ()
    # Once a second: the sign of life, and a look at who is gone.
    beat: bool = False
    # Accounts of these periods are summed up in the answer.
    totals_of: Sequence[str] = ()
    # Which keys the worker knows; it is given others where they have changed.
    keys_version: int = 0
    leaving: bool = False


@dataclass(slots=True)
class Transacted:
    """The answer. ``lost``: the worker was taken for dead, and what it held counted as spent."""

    keys_version: int
    lost: bool = False
    keys: list[Key] | None = None
    salt: bytes = b""
    grants: dict[AccountKey, Grant] = field(default_factory=dict)
    slots: dict[str, SlotGrant] = field(default_factory=dict)
    totals: dict[AccountKey, Totals] = field(default_factory=dict)
    # That share the store.
    workers: int = 1


class Store(Protocol):
    """A store. All of it blocks, and is called from one thread at a time."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def salt(self) -> bytes: ...
    def read_keys(self) -> list[Key]: ...
    def add_key(self, key: Key) -> None: ...
    def revoke_key(self, name: str, now: float) -> None: ...
    def exchange(self, asked: Exchange) -> Transacted: ...
    def totals(self, periods: Sequence[str]) -> dict[AccountKey, Totals]: ...
