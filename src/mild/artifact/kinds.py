"""What each kind of policy must consist of: settings, tensors, and the shapes that fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mild.artifact.rules import (
    Sizes,
    Tensors,
    are_integers,
    check_choice,
    check_decoder,
    check_integer,
    check_keys,
    check_not_negative,
    check_positive,
    check_tensors,
    check_width,
    is_number,
    parts,
    split,
)
from mild.errors import ArtifactError
from mild.policies import POLICIES

__all__ = ["check_policy_state"]

ERROR_HEADS = ("ridge", "logistic")
# A policy inside a policy inside a policy: nothing that mild writes is nested deeper than this.
MAX_DEPTH = 6


def check_policy_state(
    kind: object, settings: object, tensors: Tensors, sizes: Sizes, prefix: str = ""
) -> None:
    """Refuse a state from which the policy of this kind could not be built, with one sentence.

    Parameters
    ----------
    kind : name in ``mild.policies.POLICIES``
    settings, tensors : as ``Policy.state`` gives them
    sizes : dimensions known so far ("n_features", "n_experts"); those that are not known are taken
        from the first tensor that has them, and added
    prefix : where the tensors lie in an outer policy, for messages
    """
    if prefix.count(".") > MAX_DEPTH:
        raise ArtifactError(f"routers may be nested {MAX_DEPTH} deep; got more at {prefix!r}.")
    if not isinstance(kind, str) or kind not in CHECKS:
        raise ArtifactError(
            f"kind must be one of {', '.join(sorted(POLICIES))}; got {kind!r}. "
            f"A newer mild may know it."
        )
    if not isinstance(settings, dict):
        raise ArtifactError(f"settings of a {kind} router must be an object; got {settings!r}.")
    CHECKS[kind](settings, tensors, sizes, prefix)


def _linear(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("decision", "surrogate"), prefix)
    check_decoder(settings, prefix)
    shapes = {
        "coef": ("n_experts", "n_features"),
        "intercept": ("n_experts",),
        "margins": ("n_experts",),
    }
    check_tensors(tensors, shapes, sizes, prefix)
    check_positive(tensors, "margins", prefix)


def _perceptron(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("decision", "surrogate", "layers"), prefix)
    check_decoder(settings, prefix)
    layers = check_integer(settings, "layers", 1, len(tensors), prefix)
    shapes: dict[str, tuple[str, ...]] = {"margins": ("n_experts",)}
    widths = ["n_features", *(f"width_{layer}" for layer in range(layers - 1)), "n_experts"]
    for layer in range(layers):
        shapes[f"weight_{layer}"] = (widths[layer + 1], widths[layer])
        shapes[f"bias_{layer}"] = (widths[layer + 1],)
    # Widths are this network's own: another one in the same stack has others.
    own = dict(sizes)
    check_tensors(tensors, shapes, own, prefix)
    sizes.update({name: own[name] for name in ("n_features", "n_experts")})
    check_positive(tensors, "margins", prefix)


def _linear_costs(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, (), prefix)
    shapes = {"coef": ("n_experts", "n_features"), "intercept": ("n_experts",)}
    check_tensors(tensors, shapes, sizes, prefix)


def _nearest(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("n_neighbors",), prefix)
    check_integer(settings, "n_neighbors", 1, None, prefix)
    shapes: dict[str, tuple[str, ...]] = {
        "inputs": ("n_stored", "n_features"),
        "costs": ("n_stored", "n_experts"),
        "weights": ("n_stored",),
    }
    if "centre" in tensors:
        # Sparse inputs are stored as they are.
        shapes["centre"] = ("n_features",)
    own = dict(sizes)
    check_tensors(tensors, shapes, own, prefix, unknown_allowed=("costs",))
    if own["n_stored"] == 0:
        raise ArtifactError(f"tensor '{prefix}inputs' must have at least one row; got none.")
    sizes.update({name: own[name] for name in ("n_features", "n_experts")})
    check_not_negative(tensors, "weights", prefix)


def _constant(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("n_features", "named"), prefix)
    check_width(settings, sizes, prefix)
    check_tensors(tensors, {"mean_costs": ("n_experts",)}, sizes, prefix)
    if settings["named"] is not None:
        check_integer(settings, "named", 0, sizes["n_experts"] - 1, prefix)


def _priced(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("price_weight", "kind_of_error", "error_scale"), prefix)
    for name in ("price_weight", "error_scale"):
        if not is_number(settings[name]) or settings[name] < 0:
            raise ArtifactError(
                f"setting {prefix}{name} must be finite and non-negative; got {settings[name]!r}."
            )
    check_choice(settings["kind_of_error"], ERROR_HEADS, f"{prefix}kind_of_error")
    shapes = {
        "error_coef": ("n_experts", "n_features"),
        "error_intercept": ("n_experts",),
        "price_coef": ("n_experts", "n_features"),
        "price_intercept": ("n_experts",),
        "betas": ("n_experts",),
    }
    check_tensors(tensors, shapes, sizes, prefix)
    check_not_negative(tensors, "betas", prefix)


def _cascade(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    check_keys(settings, ("order", "columns", "n_features"), prefix)
    check_width(settings, sizes, prefix)
    order, columns = settings["order"], settings["columns"]
    if not are_integers(order) or sorted(order) != list(range(len(order))) or not order:
        raise ArtifactError(
            f"setting {prefix}order must name every expert once, from 0; got {order!r}."
        )
    shapes: dict[str, tuple[str, ...]] = {"thresholds": ("n_experts - 1",)}
    if columns is None:
        shapes |= {"coef": ("n_experts", "n_features"), "intercept": ("n_experts",)}
    else:
        # With confidences in columns of X the linear estimate is empty.
        shapes |= {"coef": ("n_estimates", "n_features"), "intercept": ("n_estimates",)}
    if sizes.setdefault("n_experts", len(order)) != len(order):
        raise ArtifactError(
            f"setting {prefix}order must have {sizes['n_experts']} experts; got {len(order)}."
        )
    if columns is not None and not (
        are_integers(columns)
        and len(columns) == len(order)
        and all(0 <= column < sizes["n_features"] for column in columns)
    ):
        raise ArtifactError(
            f"setting {prefix}columns must give each of {len(order)} experts a feature in "
            f"[0, {sizes['n_features']}); got {columns!r}."
        )
    own = {**sizes, "n_experts - 1": len(order) - 1, "n_estimates": 0}
    check_tensors(tensors, shapes, own, prefix)


def _standardized(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    (part,) = parts(settings, 1, 1, prefix)
    inner, rest = split(tensors, "0.")
    shapes = {"mean": ("n_features",), "scale": ("n_features",)}
    check_tensors(rest, shapes, sizes, prefix)
    check_positive(rest, "scale", prefix)
    check_policy_state(part["kind"], part["settings"], inner, sizes, f"{prefix}0.")


def _stack(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    *members, final = parts(settings, 2, None, prefix)
    rest: Tensors = tensors
    width = 0
    for number, part in enumerate(members):
        own, rest = split(rest, f"{number}.")
        # The members may still know an expert that the last decision leaves out.
        known = {name: size for name, size in sizes.items() if name == "n_features"}
        check_policy_state(part["kind"], part["settings"], own, known, f"{prefix}{number}.")
        sizes["n_features"] = known["n_features"]
        width += known["n_experts"]
    own, rest = split(rest, f"{len(members)}.")
    check_tensors(rest, {}, sizes, prefix)
    inside = {**sizes, "n_features": width}
    check_policy_state(final["kind"], final["settings"], own, inside, f"{prefix}{len(members)}.")
    sizes["n_experts"] = inside["n_experts"]


def _blend(settings: dict[str, Any], tensors: Tensors, sizes: Sizes, prefix: str) -> None:
    members = parts(settings, 1, None, prefix)
    rest: Tensors = tensors
    for number, part in enumerate(members):
        own, rest = split(rest, f"{number}.")
        check_policy_state(part["kind"], part["settings"], own, sizes, f"{prefix}{number}.")
    inside = {**sizes, "n_members": len(members)}
    check_tensors(rest, {"weights": ("n_members",), "levels": ("n_members",)}, inside, prefix)
    for name in ("weights", "levels"):
        check_not_negative(rest, name, prefix)


CHECKS: dict[str, Callable[[dict[str, Any], Tensors, Sizes, str], None]] = {
    "linear": _linear,
    "perceptron": _perceptron,
    "linear_costs": _linear_costs,
    "nearest": _nearest,
    "constant": _constant,
    "priced": _priced,
    "cascade": _cascade,
    "standardized": _standardized,
    "blend": _blend,
    "stack": _stack,
}
