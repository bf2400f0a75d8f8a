"""What 0.10 took away, and what to use instead.

This is the one table behind the messages about removed commands, options, parameters, settings and names.
``docs/development/migration.md`` shows the same rows; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["REMOVED", "Removed", "removal_message"]

#: What was removed: a command, an option of a command, a parameter of a function or estimator, a setting of
#: ``mild.toml``, or a public name.
Kind = Literal["command", "option", "parameter", "setting", "name"]


@dataclass(frozen=True)
class Removed:
    """One thing that was removed.

    Attributes
    ----------
    kind : what it was
    name : its name, as its user wrote it: ``plan``, ``--topic``, ``topic``, ``strong_share``, ``mild.plan``
    instead : what to do instead, as a sentence
    where : commands, functions or sections that had it; none for all of them
    """

    kind: Kind
    name: str
    instead: str
    where: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The sentence that a user gets."""
        return f"{self.name} was removed in mild 0.10. {self.instead}"


#: Rows are sorted by kind, then by name.
REMOVED: tuple[Removed, ...] = (
    Removed("name", "mild.routers.GroupRouter", "Use mild.routers.ClusterRouter."),
    Removed(
        "option",
        "--balance",
        "Leave it out. For figures per value of a column, evaluate with --where COLUMN=VALUE.",
        ("compare", "evaluate", "fit", "tune"),
    ),
    Removed(
        "option",
        "--topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        ("compare", "tune"),
    ),
    Removed(
        "parameter",
        "balance",
        "Leave it out. For figures per value of a column, evaluate table.take(rows) of each value.",
        ("compare", "evaluate", "fit", "tune"),
    ),
    Removed("parameter", "clusters", "Pass groups to RouterCV.fit.", ("RouterCV",)),
    Removed(
        "parameter",
        "groups",
        "Leave it out: kinds of inputs are found as clusters. Groups that stay in one fold go to "
        "RouterCV.fit.",
        ("RouterCV",),
    ),
    Removed(
        "parameter",
        "strata",
        "Pass sample_weight, such as scikit-learn's compute_sample_weight('balanced', strata).",
        ("RouterCV.fit",),
    ),
    Removed(
        "parameter",
        "topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        ("compare", "tune"),
    ),
    Removed(
        "parameter",
        "topics",
        "Leave it out: kinds of inputs are found as clusters.",
        ("RouterCV.fit", "StackRouter.fit"),
    ),
)


def removal_message(kind: Kind, name: str, where: str = "") -> str | None:
    """The sentence about a removed thing, or None if nothing of that name was removed there.

    >>> removal_message("option", "--never-existed", "tune") is None
    True
    """
    for removed in _matching(kind, name):
        if not removed.where or where in removed.where:
            return removed.message
    return None


def _matching(kind: Kind, name: str) -> Iterator[Removed]:
    for removed in REMOVED:
        if removed.kind == kind and removed.name == name:
            yield removed
