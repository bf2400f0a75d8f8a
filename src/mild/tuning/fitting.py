"""Fit features and a router on a task, and make of them the router that can be saved and served."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import Router, RouterInfo, fingerprint
from mild.artifact.info import CostInfo, DataInfo, SharesInfo, TableInfo
from mild.artifact.novelty import Novelty
from mild.artifact.sources import as_router
from mild.core.arrays import FloatArray, check_integer, invalid
from mild.data import Outcomes
from mild.data.splits import folds
from mild.errors import InvalidInputError, check_option, listed
from mild.features import TextFeatures, check_input, make_features
from mild.metrics import expert_shares
from mild.metrics.results import is_graded, mean_scores
from mild.metrics.routing import common_constant
from mild.policies import Policy, mix_of
from mild.tuning.tasks import Progress, Task, check_rows
from mild.tuning.training_rows import TrainingQueryIndex

# The usual shares are computed on at most this many training rows, at regular intervals.
SHARE_ROWS = 5_000
# Number of folds, of which the first is held out for the novelty.
NOVELTY_FOLDS = 5
# A difference between shares of training rows and of held-out rows that is worth a sentence.
CHANGED_SHARE = 0.2
#: Names of routers, and their classes.
ROUTERS = {
    "linear": "LinearRouter",
    "ridge": "RidgeRouter",
    "knn": "KNNRouter",
    "priced": "PricedRouter",
    "constant": "ConstantRouter",
    "neural": "NeuralRouter",
}


def make_router(
    router: Any,
    params: Mapping[str, Any],
    random_state: int | None,
    caller: Callable[..., Any] | None = None,
) -> Any:
    """Create an unfitted router from its name and parameters.

    Parameters
    ----------
    router : a name in ``ROUTERS``, or an unfitted router, which is returned as it is
    params : parameters of the router; those that are None keep the router's defaults. They can be given
        only with a name
    random_state : seed for routers that take one; None for the router's default. A router object keeps
        its own
    caller : the public function that passed ``params`` on. Where a parameter is not known, the message
        also suggests this function's arguments

    Returns
    -------
    An unfitted router
    """
    if random_state is not None:
        check_integer("random_state", random_state, 0)
    if not isinstance(router, str):
        if isinstance(router, type) or not hasattr(router, "fit"):
            rule = f"must be an unfitted router, or one of {', '.join(ROUTERS)}"
            raise invalid("router", f"{rule}; got {router!r}.")
        if params:
            rule = f"can be given only with the name of a router; got {', '.join(params)}."
            raise invalid("params", rule)
        return router
    check_option("router", router, ROUTERS)
    router_class = getattr(importlib.import_module("mild.routers"), ROUTERS[router])
    accepted_names = inspect.signature(router_class).parameters
    router_params = {}
    for name, value in params.items():
        if value is None:
            continue
        if name not in accepted_names:
            raise _unknown_parameter(name, params, router, router_class, caller)
        router_params[name] = value
    if "random_state" in accepted_names:
        router_params.setdefault("random_state", random_state)
    return router_class(**router_params)


def _unknown_parameter(
    key: str,
    params: Mapping[str, Any],
    router: str,
    router_class: type,
    caller: Callable[..., Any] | None,
) -> InvalidInputError:
    """Return the error about a parameter that the router does not take, with a remedy."""
    accepted_names = list(inspect.signature(router_class).parameters)
    rule = f"is not a parameter of a {router} router"
    if caller is None:
        usable = [name for name in params if name in accepted_names]
        return invalid(key, f"{rule}; it takes {', '.join(usable) or 'none of these'}.")
    caller_names = [name for name in inspect.signature(caller).parameters if name != "params"]
    similar = difflib.get_close_matches(key, [*accepted_names, *caller_names], n=1)
    if similar:
        return invalid(key, f"{rule}. Did you mean {similar[0]!r}?")
    return invalid(key, f"{rule}; it takes {listed(accepted_names)}.")


def standardized(router: Any, scale: bool = True) -> Any:
    """Return the router after a scaler; without ``scale``, or if it is constant, the router itself."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not scale or type(router).__name__ == "ConstantRouter":
        return router
    return make_pipeline(StandardScaler(), router)


def make_text_features(
    table: Outcomes,
    text: str | TextFeatures | None = None,
    progress: Progress | None = None,
) -> TextFeatures:
    """Return an unfitted transformer that makes features from a table's queries or vectors.

    Parameters
    ----------
    table : the table; it must have the queries or vectors that the features are made from
    text : name of the features, or an unfitted object of ``mild.features``, which is copied; None for
        "hashing", or for "vectors" if the table has no queries
    progress : callable(done, total, message) or None

    Returns
    -------
    TextFeatures
    """
    if text is None:
        if not table.has_queries and table.vectors is None:
            raise InvalidInputError(
                "every query is empty: there is nothing to route by. Name the column of the queries with "
                "query=COLUMN, or give the table vectors in a column embedding.",
                parameter="query",
            )
        text = "hashing" if table.has_queries else "vectors"
    if isinstance(text, str):
        text_features = make_features(text)
    elif isinstance(text, TextFeatures):
        from sklearn.base import clone

        text_features = clone(text)
    else:
        raise invalid("text", f"must be a name, or features of mild.features; got {text!r}.")
    for part in text_features.parts:
        if progress is not None and hasattr(part, "progress"):
            part.progress = progress
    check_input(text_features, table.has_queries, table.vectors is not None)
    return text_features


def table_text_features(
    table: Outcomes,
    text: str | TextFeatures | None = None,
    progress: Progress | None = None,
) -> TextFeatures | None:
    """Return the text features of a table; None for a table of numbers, which are features already."""
    if table.given_costs is None:
        return make_text_features(table, text, progress)
    if text not in (None, "vectors"):
        rule = (
            "is for tables with queries; the features of a table of numbers are used as they are."
        )
        raise invalid("text", rule)
    return None


def table_features(table: Outcomes, text_features: TextFeatures | None) -> Any:
    """Return the features (n_samples, n_features) of a table; those of numbers are its vectors."""
    if text_features is None:
        return table.vectors
    return text_features.vectorize(feature_inputs(table, text_features))


def router_features(table: Outcomes, router: Router) -> Any:
    """Return the features of a table as a router reads them; for a mix, with a draw of each text."""
    if router.text is None:
        return table.vectors
    return router.features(feature_inputs(table, router.text))


def is_scaled(standardize: bool | None, text_features: TextFeatures | None) -> bool:
    """Whether features are scaled: as ``standardize`` says; by default, unless they come from texts."""
    if standardize is not None:
        return standardize
    return text_features is None or text_features.kind == "vectors"


def feature_inputs(table: Outcomes, text_features: TextFeatures | None) -> Any:
    """Return what features are made of: queries, or vectors (n_samples, n_features)."""
    of_vectors = text_features is not None and text_features.kind == "vectors"
    return table.vectors if of_vectors else table.queries


def asking_prices(task: Task) -> tuple[FloatArray, Any, float]:
    """Split the costs of a task into errors and weighted prices, for ``PricedRouter.fit``.

    If dollars are the only term besides the error, prices stay in dollars, so that their weight can be
    changed later. If betas are, there is one price per expert. Otherwise prices are the sum of all terms
    besides the error, in wrong answers.

    Returns
    -------
    errors : (n_samples, n_experts) array
    prices : (n_samples, n_experts) array, or a list of n_experts numbers
    price_weight : wrong answers that a unit of the prices is worth
    """
    table = task.table
    terms = task.terms
    errors: FloatArray = 1 - table.scores
    betas = list((terms.beta or {}).values())
    if not (terms.price_weight or terms.latency_weight):
        return errors, betas or [0.0] * len(table.experts), 1.0
    if not any(betas) and not terms.latency_weight:
        return errors, table.prices, float(terms.price_weight or 0.0)
    return errors, task.costs - errors, 1.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A router that was fitted on a task, with its features and its novelty."""

    model: Any  # router, or Pipeline that ends in one
    text_features: TextFeatures | None  # fitted; None for a table of numbers
    features: Any  # (n_samples, n_features) of the training rows
    novelty: Novelty | None = None


def fit_task(task: Task, model: Any, text_features: TextFeatures | None) -> Fitted:
    """Fit features on the queries of a task, then the router on features and costs."""
    features = fit_features(task, text_features)
    costs, arguments = fit_arguments(task, model)
    model.fit(features, costs, **arguments)
    return with_novelty(task, model, text_features, features)


def fit_features(task: Task, text_features: TextFeatures | None) -> Any:
    """Fit text features on the queries of a task, and return the features (n_samples, n_features)."""
    check_rows(task)
    if text_features is not None:
        text_features.fit(feature_inputs(task.table, text_features))
    return table_features(task.table, text_features)


def fit_arguments(task: Task, model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the costs that a router is fitted on, and further arguments of ``fit`` by name.

    ``model`` is a router, or a Pipeline that ends in one; arguments of the latter have the prefix of its
    last step.
    """
    from mild.routers.base import NamedCosts
    from mild.routers.cost_models import PricedRouter

    router = model
    prefix = ""
    if hasattr(model, "steps"):
        name, router = model.steps[-1]
        prefix = f"{name}__"
    arguments = fit_labels(router, task.groups, prefix)
    costs = task.costs
    if isinstance(router, PricedRouter):
        costs, prices, weight = asking_prices(task)
        router.set_params(price_weight=weight)
        arguments[f"{prefix}prices"] = prices
    return NamedCosts.of(costs, task.table.experts, task.ranks), arguments


def with_novelty(
    task: Task, model: Any, text_features: TextFeatures | None, features: Any
) -> Fitted:
    """Add to a fitted model what recognises novel queries.

    The novelty says how unusual a query is; a table of numbers has none, and it needs two groups of rows.
    """
    from mild.routers.cost_models import PricedRouter
    from mild.routers.novelty import fit_novelty

    n_groups = len(np.unique(task.groups))
    if text_features is None or n_groups < 2:
        return Fitted(model, text_features, features)
    router = model[-1] if hasattr(model, "steps") else model
    errors = None
    prices = None
    if isinstance(router, PricedRouter):
        errors, prices, _ = asking_prices(task)
    novelty = fit_novelty(
        text_features,
        feature_inputs(task.table, text_features),
        features,
        folds(task.groups, min(NOVELTY_FOLDS, n_groups))[0],
        _expected_means(task, errors, prices),
    )
    return Fitted(model, text_features, features, novelty)


def _expected_means(task: Task, errors: FloatArray | None, prices: Any) -> FloatArray:
    """Return mean costs (1, n_experts), or mean errors and mean prices (2, n_experts)."""
    from mild.routers.baselines import mean_costs

    if errors is None:
        return mean_costs(task.costs)[None]
    mean_prices = np.asarray(prices, float)
    if mean_prices.ndim == 2:
        mean_prices = mean_costs(mean_prices)
    return np.stack([mean_costs(errors), mean_prices])


def fit_labels(router: Any, groups: Any, prefix: str = "") -> dict[str, Any]:
    """Return further arguments of a router's ``fit``: a search takes the groups (n_rows,) of the rows."""
    from mild.routers.search import RouterCV

    if isinstance(router, RouterCV):
        return {f"{prefix}groups": groups}
    return {}


def task_info(task: Task) -> RouterInfo:
    """Return what a task says about a router that is fitted on it: cost, table, mean scores, ..."""
    table = task.table
    scores = None
    cost = None
    if table.given_costs is None:
        means = zip(table.experts, mean_scores(table.scores), strict=True)
        scores = {name: float(mean) for name, mean in means if not np.isnan(mean)}
        cost = CostInfo(task.formula, **task.terms.as_dict())
    query = None
    if table.recipe is not None:
        query = table.recipe.as_dict()
    return RouterInfo(
        query=query,
        cost=cost,
        constant=table.experts[common_constant(task.costs, ranks=task.ranks)],
        mean_scores=scores,
        table=TableInfo(
            table.fingerprint(),
            len(table),
            table.form,
            table.layout,
            graded=is_graded(table.scores) or None,
        ),
    )


def settle_ties(router: Any) -> None:
    """Let mean costs decide ties: which of several cheapest experts is the label of a row.

    A router whose ``ties`` are set keeps them. Its own default, the index of the expert, follows from the
    expert's name in a table, which says nothing about its quality.
    """
    unset_ties = {}
    for key, value in router.get_params().items():
        if key.endswith("ties") and value is None:
            unset_ties[key] = "mean"
    router.set_params(**unset_ties)


def usual_shares(policy: Policy, features: Any, table: Outcomes) -> SharesInfo:
    """Return how often a policy asks each expert, on up to 5,000 rows of a table."""
    stride = 1 + len(table) // SHARE_ROWS
    X = features[::stride]
    mix = mix_of(policy)
    if mix is not None:
        X = mix.with_draws(X, table.queries[::stride])
    names = table.experts
    shares = expert_shares(policy.predict(X), len(names)).tolist()
    return SharesInfo(X.shape[0], dict(zip(names, shares, strict=True)))


def changed_shares(router: Router, held_out_shares: FloatArray) -> str | None:
    """Return a sentence if the router asks an expert much more or less often than it did in held-out rows.

    ``held_out_shares`` (n_experts,) are those of the routers fitted without each fold, as in the
    verdict. None if no share differs by ``CHANGED_SHARE``, or if the router has no usual shares.
    """
    if router.info.shares is None:
        return None
    shares = np.array([router.info.shares.experts[name] for name in router.experts])
    expert = int(np.argmax(np.abs(shares - held_out_shares)))
    if abs(shares[expert] - held_out_shares[expert]) < CHANGED_SHARE:
        return None
    return (
        f"the router asks {router.experts[expert]} in {100 * shares[expert]:.0f} % of its training "
        "rows; "
        f"in held-out rows, which the figures are from, it was {100 * held_out_shares[expert]:.0f} %."
    )


def make_saved_router(fitted: Fitted, task: Task, notes: Mapping[str, Any] | None = None) -> Router:
    """Turn what was fitted on a task into a router that can be saved and served.

    Parameters
    ----------
    fitted : the model, with its text features, and what recognises novel queries
    task : the rows that it was fitted on
    notes : more JSON-ready facts to keep with the router

    Returns
    -------
    Router
        It keeps hashes of the training queries and records the cost, the data, and how often each expert is
        asked on training rows.
    """
    router = as_router(fitted.model)
    index = TrainingQueryIndex.of(task.table)
    info = replace(
        task_info(task),
        estimator=router.info.estimator,
        data=DataInfo(fingerprint(fitted.features, task.costs), len(task.table)),
        hashes_complete=index.complete,
        shares=usual_shares(router.policy, fitted.features, task.table),
    )
    return replace(
        router,
        experts=task.table.experts,
        feature_names=task.table.feature_names,
        text=fitted.text_features,
        query_hashes=index.hashes,
        novelty=fitted.novelty,
        info=info.with_notes(notes or {}),
    )
