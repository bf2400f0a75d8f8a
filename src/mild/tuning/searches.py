"""The search with which ``tune`` looks for a router."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

from mild.core.arrays import check_integer, invalid
from mild.tuning.tasks import N_FOLDS, Progress, check_folds

if TYPE_CHECKING:
    from mild.routers import RouterCV

#: What is searched by default: all families but the network.
FAMILIES = "auto"
#: Experts that a cascade asks about one query, at most, by default.
MAX_CALLS = 4
# Settings of a search that count with a target, too, or that do not change what is found.
USED_WITH_TARGET = ("candidates", "cv", "confidence", "n_jobs", "progress", "random_state")


def _check_candidates(candidates: Any) -> None:
    """Refuse candidates that are not unfitted routers."""
    rule = "must be a list of unfitted routers, such as [KNNRouter(3)], with fit and get_params"
    if isinstance(candidates, (str, Mapping)) or not isinstance(candidates, Iterable):
        raise invalid("candidates", f"{rule}; got {candidates!r:.200}.")
    for candidate in candidates:
        can_be_fitted = callable(getattr(candidate, "fit", None))
        has_parameters = callable(getattr(candidate, "get_params", None))
        if isinstance(candidate, type) or not (can_be_fitted and has_parameters):
            raise invalid("candidates", f"{rule}; one of them is {candidate!r:.200}.")


def unused_with_target(search: RouterCV | None) -> list[str]:
    """Settings of a search that have no effect with a target, because no families are searched then.

    >>> from mild.routers import RouterCV
    >>> unused_with_target(RouterCV(families="linear", cv=3, safe=True))
    ['families', 'safe']
    """
    from mild.routers import RouterCV

    if search is None:
        return []
    settings = search.get_params(deep=False)
    defaults = RouterCV().get_params(deep=False)
    unused = []
    for field in fields(RouterCV):
        name = field.name
        # Values may be arrays, which have no single truth value when they are compared.
        is_set = repr(settings[name]) != repr(defaults[name])
        if is_set and name not in USED_WITH_TARGET:
            unused.append(name)
    return unused


def search_for_tune(
    search: RouterCV | None, random_state: int, progress: Progress | None
) -> RouterCV:
    """The search of ``tune``: an unfitted copy of the one that was given, with what ``tune`` decides.

    Without families it tries those of ``tune``. The linear router around which it searches has the random
    state of ``tune`` unless it has one of its own.
    """
    from sklearn.base import clone

    from mild.routers import LinearRouter, RouterCV

    check_integer("random_state", random_state, 0)
    if search is None:
        search = RouterCV()
    if not isinstance(search, RouterCV):
        raise invalid("search", f"must be a RouterCV, or None; got {search!r}.")
    if search.cv is not None:
        check_folds(search.cv)
    _check_candidates(search.candidates)
    settled: RouterCV = clone(search)
    settled.set_params(random_state=random_state, progress=progress)
    if settled.cv is None:
        settled.set_params(cv=N_FOLDS)
    if settled.families is None:
        settled.set_params(families=FAMILIES)
    if settled.estimator is None:
        settled.set_params(estimator=LinearRouter())
    if isinstance(settled.estimator, LinearRouter) and settled.estimator.random_state is None:
        settled.estimator.set_params(random_state=random_state)
    return settled


def most_calls(cascade: Any) -> int:
    """Experts that a cascade asks about one query, at most; 0 without a cascade.

    >>> most_calls(False), most_calls(True), most_calls(3)
    (0, 4, 3)
    """
    if cascade is False:
        return 0
    if cascade is True:
        return MAX_CALLS
    if isinstance(cascade, Integral) and int(cascade) >= 2:
        return int(cascade)
    rule = f"must be True, False, or a number of calls, at least 2; got {cascade!r}."
    raise invalid("cascade", rule)
