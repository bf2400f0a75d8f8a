"""What can be saved: fitted routers, pipelines that end in one, searches, loaded routers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.artifact.router import Router
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import TextFeatures
from mild.policies import POLICIES
from mild.policies.base import is_saved
from mild.policies.mix import with_scaling

# Longer arrays among the parameters are only counted.
MOST_VALUES = 64


def source_of(router: Any) -> Router:
    """The policy of any fitted router, with its names, its text features and its description.

    ``info.estimator`` holds the class and the parameters of what was fitted, JSON-ready.
    """
    if isinstance(router, Router):
        return router
    if hasattr(router, "named_steps"):
        return _pipeline_source(router)
    policy = getattr(router, "policy_", None)
    if policy is None and hasattr(router, "best_estimator_"):
        return source_of(router.best_estimator_)
    name = type(router).__name__
    if policy is None:
        if not hasattr(router, "fit") or not hasattr(router, "without"):
            raise UnsupportedError(
                f"router must be a fitted router of mild, a Pipeline that ends in one, or a loaded "
                f"router; got {name}.",
                parameter="router",
            )
        raise _not_fitted(f"this {name} is not. Call fit(X, costs) first")
    if name == "OracleRouter":
        raise UnsupportedError(
            "OracleRouter decides by costs that are not known in advance, so it cannot be saved. "
            "Save a ConstantRouter for the best constant.",
            parameter="router",
        )
    if not is_saved(policy):
        if hasattr(policy, "state"):
            policy.state()  # a policy that cannot be saved may raise its own error
        raise UnsupportedError(
            f"{name} decides by {type(policy).__name__}, which cannot be written as JSON and "
            f"safetensors. Routers of the kinds {', '.join(sorted(POLICIES))} can.",
            parameter="router",
        )
    params = router.get_params(deep=False) if hasattr(router, "get_params") else {}
    found = [_described(getattr(router, f"{key}_", None)) for key in ("best_family", "best_params")]
    info = RouterInfo(estimator=EstimatorInfo(name, _described(params), *found))
    return Router(policy, router.expert_names_, _feature_names(router), info)


def _pipeline_source(pipeline: Any) -> Router:
    *before, (_, last) = pipeline.steps
    before = [(name, step) for name, step in before if step not in (None, "passthrough")]
    source = source_of(last)
    policy, text, names = source.policy, source.text, source.feature_names
    if before and isinstance(before[0][1], TextFeatures):
        text, names = before.pop(0)[1], None
    elif before:
        names = _feature_names(before[0][1])
    for name, step in reversed(before):
        if isinstance(step, TextFeatures):
            raise UnsupportedError(
                f"text features must be the first step of a Pipeline; got {type(step).__name__} at "
                f"step {name!r}.",
                parameter="router",
            )
        if type(step).__name__ != "StandardScaler":
            raise UnsupportedError(
                f"a Pipeline can be saved if its steps before the router are text features of mild, "
                f"which come first, and StandardScaler; got step {name!r} ({type(step).__name__}). Save "
                f"the router only and apply this step to X before it.",
                parameter="router",
            )
        width = getattr(step, "n_features_in_", None)
        if width is None:
            raise _not_fitted(f"step {name!r} of the Pipeline is not")
        mean = step.mean_ if step.with_mean else np.zeros(width)
        scale = step.scale_ if step.with_std else np.ones(width)
        policy = with_scaling(policy, np.asarray(mean), np.asarray(scale))
    return dataclasses.replace(source, policy=policy, feature_names=names, text=text)


def _not_fitted(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"router must be fitted before it is saved; {what}.", parameter="router"
    )


def _feature_names(estimator: Any) -> list[str] | None:
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _described(value: Any) -> Any:
    """JSON-ready; objects become the name of their type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _described(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _described(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray) and value.size > MOST_VALUES:
        return f"{value.size} values"
    if isinstance(value, (list, tuple, set, range, np.ndarray)):
        return [_described(entry) for entry in value]
    if hasattr(value, "get_params") and not isinstance(value, type):
        return {"class": type(value).__name__, "params": _described(value.get_params(deep=False))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _described(dataclasses.asdict(value))
    return getattr(value, "__qualname__", type(value).__qualname__)
