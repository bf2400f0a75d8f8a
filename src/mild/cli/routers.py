"""Routers from the options of ``mild fit`` and ``mild tune``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from mild.errors import OptionError, check_option

__all__ = ["ROUTERS", "build_router", "standardized"]

ROUTERS = {
    "linear": ("mild.routers.linear", "LinearRouter"),
    "regression": ("mild.routers.cost_models", "CostRegressionRouter"),
    "knn": ("mild.routers.cost_models", "KNNRouter"),
    "priced": ("mild.routers.cost_models", "PricedRouter"),
    "constant": ("mild.routers.baselines", "ConstantRouter"),
    "cascade": ("mild.routers.cascade", "CascadeRouter"),
    "neural": ("mild.routers.neural", "NeuralRouter"),
    "transformer": ("mild.routers.transformer", "TransformerRouter"),
}


def build_router(name: str, params: Mapping[str, Any], seed: int) -> Any:
    """An unfitted router; parameters that are None keep the router's own defaults.

    Parameters
    ----------
    name : one of ``ROUTERS``
    params : parameters of the router
    seed : its ``random_state``, where it has one
    """
    module, class_name = ROUTERS[check_option("router", name, ROUTERS)]
    router_class = getattr(importlib.import_module(module), class_name)
    known = inspect.signature(router_class).parameters
    given = {key: value for key, value in params.items() if value is not None}
    for key in given:
        if key not in known:
            takes = [f"--{_flag(other)}" for other in params if other in known]
            raise OptionError(
                f"--{_flag(key)} is no option of a {name} router; it takes "
                f"{', '.join(takes) or 'none of these'}.",
                parameter=key,
            )
    if "random_state" in known:
        given["random_state"] = seed
    return router_class(**given)


def standardized(router: Any) -> Any:
    """The router behind a scaler; a constant router needs none."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if type(router).__name__ == "ConstantRouter":
        return router
    return make_pipeline(StandardScaler(), router)


def _flag(parameter: str) -> str:
    return parameter.removeprefix("n_").replace("_", "-")
