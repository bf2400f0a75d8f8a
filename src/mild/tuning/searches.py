"""The search with which ``tune`` and ``compare`` look for a router."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

from mild.core.arrays import check_integer, invalid
from mild.tuning.tasks import Progress, check_folds

if TYPE_CHECKING:
    from mild.routers import RouterCV

#: What is searched by default: all families but the network.
FAMILIES = "auto"
#: Experts that a cascade asks about one query, at most, by default.
MAX_CALLS = 4


def unfitted_search(search: RouterCV | None) -> RouterCV:
    """An unfitted copy of the search that was given, or a search with the defaults of ``RouterCV``."""
    from sklearn.base import clone

    from mild.routers import RouterCV

    if search is None:
        return RouterCV()
    if not isinstance(search, RouterCV):
        raise invalid("search", f"must be a RouterCV, or None; got {search!r}.")
    check_folds(search.cv)
    copied: RouterCV = clone(search)
    return copied


def search_for_tune(
    search: RouterCV | None, random_state: int, progress: Progress | None
) -> RouterCV:
    """The search of ``tune``: an unfitted copy of the one that was given, with what ``tune`` decides.

    Without families it tries those of ``tune``. The linear router around which it searches has the random
    state of ``tune`` unless it has one of its own.
    """
    from mild.routers import LinearRouter

    check_integer("random_state", random_state, 0)
    settled = unfitted_search(search)
    settled.set_params(random_state=random_state, progress=progress)
    if search is not None:
        # A copy would keep what it finds to itself.
        settled.set_params(memory=search.memory)
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
