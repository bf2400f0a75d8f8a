"""Features and a router fitted on a task, and the router that is made of them."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mild.artifact import Router, RouterInfo, fingerprint
from mild.artifact.info import CalibrationInfo, CostInfo, DataInfo, SharesInfo, TableInfo
from mild.artifact.novelty import Novelty
from mild.artifact.sources import source_of
from mild.core.arrays import FloatArray, check_integer, invalid
from mild.data import OutcomeTable
from mild.data.splits import folds
from mild.errors import InvalidInputError, check_option, listed
from mild.features import TextFeatures, check_input, make_features
from mild.metrics import common_constant, expert_shares
from mild.metrics.outcomes import is_graded, mean_scores
from mild.policies import Policy, mix_of
from mild.removed import removal_message
from mild.tuning.tasks import Progress, Task, check_rows
from mild.tuning.training_rows import TrainingQueryIndex

if TYPE_CHECKING:
    from mild.routers.calibration import Calibration

# The usual shares are computed on this many training rows, at most about twice as many.
SHARE_ROWS = 5_000
# Parts into which rows are divided for calibration, each held out once, and for novelty, one held out.
CALIBRATION_FOLDS, NOVELTY_FOLDS = 3, 5
# A difference between shares of training rows and of held-out rows that is worth a sentence.
CHANGED_SHARE = 0.2
#: Names of routers, and their classes.
ROUTERS = {
    "linear": "LinearRouter",
    "regression": "CostRegressionRouter",
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
    """Create an unfitted router from its name; parameters that are None keep the router's defaults.

    A router object is returned unchanged: it must come without parameters, and keeps its own
    ``random_state``. ``caller`` is the public function that passed ``params`` on; where a parameter is not
    known, the message also suggests the caller's own arguments.
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
    known = inspect.signature(router_class).parameters
    set_params = {key: value for key, value in params.items() if value is not None}
    for key in set_params:
        if key not in known:
            raise _unknown_parameter(key, params, router, router_class, caller)
    if "random_state" in known:
        set_params.setdefault("random_state", random_state)
    return router_class(**set_params)


def _unknown_parameter(
    key: str,
    params: Mapping[str, Any],
    router: str,
    router_class: type,
    caller: Callable[..., Any] | None,
) -> InvalidInputError:
    """The error about a parameter that neither the router nor the caller of ``make_router`` takes."""
    message = removal_message("parameter", key, router_class.__name__)
    if message is not None:
        return InvalidInputError(message, parameter=key, code="removed")
    of_router = list(inspect.signature(router_class).parameters)
    owner = f"a {router} router"
    if caller is None:
        takes = [name for name in params if name in of_router]
        remedy = f"; it takes {', '.join(takes) or 'none of these'}."
        return invalid(key, f"is not a parameter of {owner}{remedy}")
    of_caller = [name for name in inspect.signature(caller).parameters if name != "params"]
    remedy = f"; it takes {listed(of_router)}."
    close = difflib.get_close_matches(key, [*of_router, *of_caller], n=1)
    if close:
        remedy = f". Did you mean {close[0]!r}?"
    return invalid(key, f"is not a parameter of {owner}{remedy}")


def standardized(router: Any, scale: bool = True) -> Any:
    """The router behind a scaler if ``scale``; a constant router needs none."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not scale or type(router).__name__ == "ConstantRouter":
        return router
    return make_pipeline(StandardScaler(), router)


def make_step(
    table: OutcomeTable,
    text: str | TextFeatures | None = None,
    progress: Progress | None = None,
) -> TextFeatures:
    """An unfitted feature step for a table: by its name, or a copy of the one that is given."""
    if text is None:
        if not table.has_queries and table.vectors is None:
            raise InvalidInputError(
                "every query is empty: there is nothing to route by. Name the column of the queries with "
                "query=COLUMN, or give the table vectors in a column embedding.",
                parameter="query",
            )
        text = "hashing" if table.has_queries else "vectors"
    if isinstance(text, str):
        step = make_features(text)
    elif isinstance(text, TextFeatures):
        from sklearn.base import clone

        step = clone(text)
    else:
        raise invalid("text", f"must be a name, or features of mild.features; got {text!r}.")
    for part in step.parts:
        if progress is not None and hasattr(part, "progress"):
            part.progress = progress
    check_input(step, table.has_queries, table.vectors is not None)
    return step


def table_step(
    table: OutcomeTable,
    text: str | TextFeatures | None = None,
    progress: Progress | None = None,
) -> TextFeatures | None:
    """``make_step``, or None for a table of numbers, whose vectors are the features."""
    if table.given_costs is None:
        return make_step(table, text, progress)
    if text not in (None, "vectors"):
        rule = (
            "is for tables with queries; the features of a table of numbers are used as they are."
        )
        raise invalid("text", rule)
    return None


def table_features(table: OutcomeTable, step: TextFeatures | None) -> Any:
    """Features (n_samples, n_features) of the rows of a table by a fitted step; see ``table_step``."""
    if step is None:
        return table.vectors
    return step.vectorize(contents(table, step))


def router_features(table: OutcomeTable, router: Router) -> Any:
    """What a router reads of the rows of a table: its features, and of a mix the draws of the texts."""
    if router.text is None:
        return table.vectors
    return router.features(contents(table, router.text))


def is_scaled(standardize: bool | None, step: TextFeatures | None) -> bool:
    """Whether features are scaled: as ``standardize`` says, by default those that are no text."""
    if standardize is not None:
        return standardize
    return step is None or step.kind == "vectors"


def contents(table: OutcomeTable, step: TextFeatures | None) -> Any:
    """What the step turns into features: queries, or vectors (n_samples, n_features)."""
    of_vectors = step is not None and step.kind == "vectors"
    return table.vectors if of_vectors else table.queries


def asking_prices(task: Task) -> tuple[FloatArray, Any, float]:
    """Errors (n_samples, n_experts), prices for ``PricedRouter.fit``, and their weight.

    Dollars alone stay dollars, so that their weight can be changed; betas alone are one price per expert;
    a mixture is a price in wrong answers.
    """
    table, terms = task.table, task.terms
    errors: FloatArray = 1 - table.scores
    betas = list((terms.beta or {}).values())
    if not (terms.price_weight or terms.latency_weight):
        return errors, betas or [0.0] * len(table.expert_names), 1.0
    if not any(betas) and not terms.latency_weight:
        return errors, table.prices, float(terms.price_weight or 0.0)
    return errors, task.costs - errors, 1.0


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted router."""

    model: Any  # router, or Pipeline that ends in one
    step: TextFeatures | None  # the fitted step from texts to features; None for a table of numbers
    features: Any  # (n_samples, n_features) of the training rows
    calibration: Calibration | None = None  # of expected costs; None where there are none
    novelty: Novelty | None = None


def fit_task(task: Task, model: Any, step: TextFeatures | None) -> Fitted:
    """Fit features on the queries, then the router on features and costs.

    A search also gets the groups of the task.
    """
    features = fit_features(task, step)
    costs, arguments = fit_arguments(task, model)
    model.fit(features, costs, **arguments)
    return fitted_model(task, model, step, features)


def fit_features(task: Task, step: TextFeatures | None) -> Any:
    """Fit text features on the queries of a task; the features (n_samples, n_features) of its rows."""
    check_rows(task)
    if step is not None:
        step.fit(contents(task.table, step))
    return table_features(task.table, step)


def fit_arguments(task: Task, model: Any) -> tuple[Any, dict[str, Any]]:
    """The costs that a router, or a Pipeline with one, is fitted on, and more arguments of ``fit``."""
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
    return NamedCosts.of(costs, task.table.expert_names, task.ranks), arguments


def fitted_model(task: Task, model: Any, step: TextFeatures | None, features: Any) -> Fitted:
    """A fitted router with how far its expected costs can be trusted, by rows that are held out.

    Novelty is that of queries: a table of numbers has none.
    """
    from mild.routers.calibration import fit_calibration, fit_novelty
    from mild.routers.cost_models import PricedRouter

    n_groups = len(np.unique(task.groups))
    if n_groups < 2:
        return Fitted(model, step, features)
    router = model
    scaled = features
    if hasattr(model, "steps"):
        router = model[-1]
        scaled = model[:-1].transform(features)
    calibration_folds = folds(task.groups, min(CALIBRATION_FOLDS, n_groups))
    errors = None
    prices = None
    if isinstance(router, PricedRouter):
        errors, prices, _ = asking_prices(task)
    novelty = None
    if step is not None:
        held_out = folds(task.groups, min(NOVELTY_FOLDS, n_groups))[0]
        means = _expected_means(task, errors, prices)
        novelty = fit_novelty(step, contents(task.table, step), features, held_out, means)
    calibration = fit_calibration(router, scaled, task.costs, calibration_folds, errors, prices)
    return Fitted(model, step, features, calibration, novelty)


def _expected_means(task: Task, errors: FloatArray | None, prices: Any) -> FloatArray:
    """Mean costs (1, n_experts); mean errors and prices (2, n_experts) where these are apart."""
    from mild.routers.baselines import mean_costs

    if errors is None:
        return mean_costs(task.costs)[None]
    mean_prices = np.asarray(prices, float)
    if mean_prices.ndim == 2:
        mean_prices = mean_costs(mean_prices)
    return np.stack([mean_costs(errors), mean_prices])


def fit_labels(router: Any, groups: Any, prefix: str = "") -> dict[str, Any]:
    """Arguments of ``fit`` besides features and costs: a search gets the groups (n_rows,) of the rows."""
    from mild.routers.search import RouterCV

    if isinstance(router, RouterCV):
        return {f"{prefix}groups": groups}
    return {}


def task_info(task: Task) -> RouterInfo:
    """What a task says about a router that is fitted on it."""
    table = task.table
    scores = cost = None
    if table.given_costs is None:
        means = zip(table.expert_names, mean_scores(table.scores), strict=True)
        scores = {name: float(mean) for name, mean in means if not np.isnan(mean)}
        cost = CostInfo(task.formula, **task.terms.as_dict())
    return RouterInfo(
        query=None if table.recipe is None else table.recipe.as_dict(),
        cost=cost,
        constant=table.expert_names[common_constant(task.costs, ranks=task.ranks)],
        mean_scores=scores,
        table=TableInfo(
            table.fingerprint(),
            table.rows,
            table.form,
            table.explanation,
            graded=is_graded(table.scores) or None,
        ),
    )


def settle_ties(router: Any) -> None:
    """Let mean costs decide which of several cheapest experts is the label of a row, unless set otherwise.

    The index of an expert in a table follows from its name, which says nothing about its quality.
    """
    unset_ties = {}
    for key, value in router.get_params().items():
        if key.endswith("ties") and value is None:
            unset_ties[key] = "mean"
    router.set_params(**unset_ties)


def usual_shares(policy: Policy, features: Any, table: OutcomeTable) -> SharesInfo:
    """Shares of the experts in the decisions of a policy for some of the rows of a table."""
    step = 1 + table.rows // SHARE_ROWS
    X = features[::step]
    mix = mix_of(policy)
    if mix is not None:
        X = mix.with_draws(X, table.queries[::step])
    names = table.expert_names
    shares = expert_shares(policy.predict(X), len(names)).tolist()
    return SharesInfo(X.shape[0], dict(zip(names, shares, strict=True)))


def changed_shares(router: Router, held_out_shares: FloatArray) -> str | None:
    """A sentence if the saved router asks an expert more or less often than in held-out rows; or None.

    ``held_out_shares`` (n_experts,) are those of the routers without a fold, which the verdict is on.
    """
    if router.info.shares is None:
        return None
    shares = np.array([router.info.shares.experts[name] for name in router.expert_names])
    expert = int(np.argmax(np.abs(shares - held_out_shares)))
    if abs(shares[expert] - held_out_shares[expert]) < CHANGED_SHARE:
        return None
    return (
        f"the router asks {router.expert_names[expert]} in {100 * shares[expert]:.0f} % of its training "
        "rows; "
        f"in held-out rows, which the figures are from, it was {100 * held_out_shares[expert]:.0f} %."
    )


def router_of(fitted: Fitted, task: Task, notes: Mapping[str, Any] | None = None) -> Router:
    """The router with its features, costs, usual shares and hashes of its training queries.

    ``notes`` are more JSON-ready facts to keep with it.
    """
    index = TrainingQueryIndex.of(task.table)
    names = task.table.expert_names
    calibration = fitted.calibration
    calibration_info = None
    source = replace(source_of(fitted.model), novelty=fitted.novelty)
    if calibration is not None:
        calibration_info = CalibrationInfo.from_dict(calibration.as_dict())
        if calibration.decides:
            source = replace(source, policy=source.policy.calibrated(*calibration.numbers))
        else:
            source = replace(source, calibration=calibration.numbers)
    info = replace(
        task_info(task),
        estimator=source.info.estimator,
        data=DataInfo(fingerprint(fitted.features, task.costs), task.table.rows),
        hashes_complete=index.complete,
        shares=usual_shares(source.policy, fitted.features, task.table),
        calibration=calibration_info,
    )
    return replace(
        source,
        expert_names=names,
        feature_names=task.table.feature_names,
        text=fitted.step,
        query_hashes=index.hashes,
        info=info.with_notes(notes or {}),
    )
