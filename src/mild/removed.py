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
    where : commands (``tune``, ``data convert``), functions or classes (``tune``, ``RouterCV``,
        ``OutcomeTable.costs``) or sections of ``mild.toml`` (``routing.target``; ``experts`` for the
        section of any expert, ``top level`` outside all sections) that had it; none for all of them
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
    Removed(
        "name",
        "mild.artifact.LoadedRouter",
        "Use `mild.Router`.",
    ),
    Removed(
        "name",
        "mild.core.bounds",
        "Use experiments.theory.bounds, from a checkout of the repository.",
    ),
    Removed(
        "name",
        "mild.data.cost_formula",
        "Use `mild.data.CostTerms(...).formula(table)`.",
    ),
    Removed(
        "name",
        "mild.data.outcome_costs",
        "Use `table.costs(...)`.",
    ),
    Removed(
        "name",
        "mild.routers.GroupRouter",
        "Use mild.routers.ClusterRouter.",
    ),
    Removed(
        "option",
        "--checkpoint",
        "A neural router is trained in one run.",
        where=("fit",),
    ),
    Removed(
        "option",
        "--choices",
        "Leave it out: the choices of a question are a part of the query.",
        where=("data split",),
    ),
    Removed(
        "option",
        "--no-choices",
        "Name the column of the question with `--group` to keep equal questions on one side.",
        where=("data split",),
    ),
    Removed(
        "option",
        "--paper",
        "Run `make demo-paper`, in a checkout.",
        where=("demo",),
    ),
    Removed(
        "option",
        "--topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        where=("compare", "tune"),
    ),
    Removed(
        "option",
        "--vectors",
        "Leave it out: a column `embedding` is found, and `mild data convert` makes one of another column.",
        where=("data split",),
    ),
    Removed(
        "parameter",
        "checkpoint",
        "A neural router is trained in one run.",
        where=("NeuralRouter",),
    ),
    Removed(
        "parameter",
        "choices",
        "Leave it out, or name the column of the question with `groups`.",
        where=("split_file",),
    ),
    Removed(
        "parameter",
        "clusters",
        "Pass groups to RouterCV.fit.",
        where=("RouterCV",),
    ),
    Removed(
        "parameter",
        "groups",
        "Leave it out: kinds of inputs are found as clusters. Groups that stay in one fold go to RouterCV.fit.",
        where=("RouterCV",),
    ),
    Removed(
        "parameter",
        "marks",
        "Use `query_hashes`.",
        where=("save",),
    ),
    Removed(
        "parameter",
        "resume",
        "A neural router is trained in one run.",
        where=("NeuralRouter",),
    ),
    Removed(
        "parameter",
        "topic",
        "Leave it out: kinds of queries are found in their texts, as clusters.",
        where=("compare", "tune"),
    ),
    Removed(
        "parameter",
        "topics",
        "Leave it out: kinds of inputs are found as clusters.",
        where=("RouterCV.fit", "StackRouter.fit"),
    ),
    Removed(
        "parameter",
        "vectors",
        "Leave it out: a column `embedding` is found, and `mild data convert` makes one of another column.",
        where=("split_file",),
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
