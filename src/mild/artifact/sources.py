"""What can be saved: fitted routers, pipelines that end in one, searches, loaded routers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mild.artifact.info import EstimatorInfo, RouterInfo
from mild.artifact.router import Router
from mild.core.arrays import FloatArray
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import TextFeatures
from mild.policies import POLICIES
from mild.policies.base import can_be_saved
from mild.policies.mix import with_scaling

# Longer arrays among the parameters are only counted.
MAX_VALUES = 64


def as_router(router: Any) -> Router:
    """The policy of any fitted router, with its names, its text features and its description.

    ``info.estimator`` holds the class and the parameters of what was fitted, JSON-ready.
    """
    if isinstance(router, Router):
        return router
    if hasattr(router, "named_steps"):
        return _pipeline_source(router)
    policy = getattr(router, "policy_", None)
    if policy is None and hasattr(router, "best_estimator_"):
        return as_router(router.best_estimator_)
    if policy is None:
        raise _missing_policy(router)
    _check_policy(router, policy)
    params = {}
    if hasattr(router, "get_params"):
        params = router.get_params(deep=False)
    estimator = EstimatorInfo(
        type(router).__name__,
        _described(params),
        best_family=_described(getattr(router, "best_family_", None)),
        best_params=_described(getattr(router, "best_params_", None)),
    )
    info = RouterInfo(estimator=estimator)
    return Router(policy, router.expert_names_, _feature_names(router), info)


def _missing_policy(router: Any) -> InvalidInputError | UnsupportedError:
    """The error about something without a policy: a router that is not fitted, or no router."""
    name = type(router).__name__
    if hasattr(router, "fit") and hasattr(router, "without"):
        return _not_fitted(f"this {name} is not. Call fit(X, costs) first")
    return UnsupportedError(
        f"router must be a fitted router of mild, a Pipeline that ends in one, or a loaded "
        f"router; got {name}.",
        parameter="router",
    )


def _check_policy(router: Any, policy: Any) -> None:
    """Refuse a policy that cannot be saved."""
    name = type(router).__name__
    if not can_be_saved(policy):
        if hasattr(policy, "state"):
            policy.state()  # a policy that cannot be saved may raise its own error
        raise UnsupportedError(
            f"{name} decides by {type(policy).__name__}, which cannot be written as JSON and "
            f"safetensors. Routers of the kinds {', '.join(sorted(POLICIES))} can.",
            parameter="router",
        )


def _pipeline_source(pipeline: Any) -> Router:
    """The router at the end of a pipeline, with the steps before it in its policy and text features."""
    *all_steps, (_, last) = pipeline.steps
    steps = [(name, step) for name, step in all_steps if step not in (None, "passthrough")]
    source = as_router(last)
    if steps and isinstance(steps[0][1], TextFeatures):
        _, text = steps.pop(0)
        source = dataclasses.replace(source, text=text, feature_names=None)
    elif steps:
        _, first_step = steps[0]
        source = dataclasses.replace(source, feature_names=_feature_names(first_step))
    policy = source.policy
    for name, step in reversed(steps):
        mean, scale = _scaling_of(name, step)
        policy = with_scaling(policy, mean, scale)
    return dataclasses.replace(source, policy=policy)


def _scaling_of(name: str, step: Any) -> tuple[FloatArray, FloatArray]:
    """Mean and scale of a StandardScaler in a pipeline; other steps are refused."""
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
    n_features = getattr(step, "n_features_in_", None)
    if n_features is None:
        raise _not_fitted(f"step {name!r} of the Pipeline is not")
    mean = np.zeros(n_features)
    if step.with_mean:
        mean = np.asarray(step.mean_)
    scale = np.ones(n_features)
    if step.with_std:
        scale = np.asarray(step.scale_)
    return mean, scale


def _not_fitted(problem: str) -> InvalidInputError:
    return InvalidInputError(
        f"router must be fitted before it is saved; {problem}.", parameter="router"
    )


def _feature_names(estimator: Any) -> list[str] | None:
    """Names of the columns that an estimator was fitted on; None if they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        return None
    return [str(name) for name in names]


def _described(value: Any) -> Any:
    """JSON-ready; objects become the name of their type."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, np.generic):
        return _described(value.item())
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return str(value)  # JSON has no infinity
    if isinstance(value, Mapping):
        return {str(key): _described(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray) and value.size > MAX_VALUES:
        return f"{value.size} values"
    if isinstance(value, (list, tuple, set, range, np.ndarray)):
        return [_described(entry) for entry in value]
    if hasattr(value, "get_params") and not isinstance(value, type):
        return {"class": type(value).__name__, "params": _described(value.get_params(deep=False))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _described(dataclasses.asdict(value))
    return getattr(value, "__qualname__", type(value).__qualname__)
