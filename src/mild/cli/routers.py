"""Words on the command line to routers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from mild.errors import OptionError, check_option

__all__ = ["ROUTERS", "build_router", "build_search", "standardized"]

ROUTERS = {
    "linear": ("mild.routers.linear", "LinearRouter"),
    "regression": ("mild.routers.regression", "CostRegressionRouter"),
    "knn": ("mild.routers.nearest", "KNNRouter"),
    "priced": ("mild.routers.priced", "PricedRouter"),
    "constant": ("mild.routers.constant", "ConstantRouter"),
    "cascade": ("mild.routers.cascade", "CascadeRouter"),
    "neural": ("mild.routers.neural", "NeuralRouter"),
    "transformer": ("mild.routers.transformer", "TransformerRouter"),
}


def build_router(name: str, options: Mapping[str, Any], seed: int, standardize: bool) -> Any:
    """An unfitted router; options that are None keep the router's own defaults.

    Parameters
    ----------
    name : one of ``ROUTERS``
    options : parameters of the router
    seed : its ``random_state``, where it has one
    standardize : whether features are scaled before it
    """
    module, class_name = ROUTERS[check_option("router", name, ROUTERS)]
    router_class = getattr(importlib.import_module(module), class_name)
    known = inspect.signature(router_class).parameters
    given = {key: value for key, value in options.items() if value is not None}
    for key in given:
        if key not in known:
            takes = [f"--{_flag(other)}" for other in options if other in known]
            raise OptionError(
                f"--{_flag(key)} is no option of a {name} router; it takes "
                f"{', '.join(takes) or 'none of these'}."
            )
    if "random_state" in known:
        given["random_state"] = seed
    router = router_class(**given)
    return standardized(router) if standardize else router


def build_search(
    options: Mapping[str, Any], search: Mapping[str, Any], families: str | None, standardize: bool
) -> Any:
    """An unfitted search around a linear router with these options."""
    from mild.routers.tuning import RouterCV

    estimator = build_router("linear", options, search["random_state"], standardize=False)
    names: str | list[str] | None = families
    if families not in (None, "all", "auto"):
        names = [name.strip() for name in families.split(",") if name.strip()]
    tuner = RouterCV(estimator, families=names, **search)
    return standardized(tuner) if standardize else tuner


def _flag(parameter: str) -> str:
    return parameter.removeprefix("n_").replace("_", "-")


def standardized(router: Any) -> Any:
    """The router behind a scaler; a constant needs none."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if type(router).__name__ == "ConstantRouter":
        return router
    return make_pipeline(StandardScaler(), router)
