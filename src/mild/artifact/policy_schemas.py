"""Settings and tensors of each kind of policy, and the shapes that must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from mild.artifact.state import State, is_number, split
from mild.core.decisions import DECISIONS
from mild.errors import ArtifactError
from mild.policies import POLICIES

__all__ = ["check_policy_state"]

SURROGATE_FORMS = ("comp_sum", "pairwise", "hinge")
ERROR_HEADS = ("ridge", "logistic")
# Policies may contain policies; mild writes none that is nested deeper than this.
MAX_DEPTH = 6
LINEAR: dict[str, tuple[str | int, ...]] = {
    "coef": ("n_experts", "n_features"),
    "intercept": ("n_experts",),
}


def check_policy_state(
    kind: object,
    settings: object,
    tensors: Mapping[str, NDArray[Any]],
    sizes: dict[str, int],
    prefix: str = "",
) -> None:
    """Refuse a state from which the policy of this kind could not be built, with one sentence.

    Parameters
    ----------
    kind : name in ``mild.policies.POLICIES``
    settings, tensors : as ``Policy.state`` gives them
    sizes : dimensions known so far ("n_features", "n_experts"); unknown ones are added
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
    CHECKS[kind](State(settings, tensors, sizes, prefix))


def _linear(state: State) -> None:
    state.check_keys("decision", "surrogate")
    _check_decoder(state)
    state.check_tensors({**LINEAR, "margins": ("n_experts",)})
    state.check_positive("margins")


def _perceptron(state: State) -> None:
    state.check_keys("decision", "surrogate", "layers")
    _check_decoder(state)
    layers = state.check_integer("layers", 1, len(state.tensors))
    widths = ["n_features", *(f"width_{layer}" for layer in range(layers - 1)), "n_experts"]
    shapes: dict[str, tuple[str | int, ...]] = {"margins": ("n_experts",)}
    for layer in range(layers):
        shapes[f"weight_{layer}"] = (widths[layer + 1], widths[layer])
        shapes[f"bias_{layer}"] = (widths[layer + 1],)
    _with_own_sizes(state, lambda own: own.check_tensors(shapes))
    state.check_positive("margins")


def _linear_costs(state: State) -> None:
    state.check_keys()
    state.check_tensors(LINEAR)


def _nearest(state: State) -> None:
    state.check_keys("n_neighbors")
    state.check_integer("n_neighbors", 1)
    shapes: dict[str, tuple[str | int, ...]] = {
        "inputs": ("n_stored", "n_features"),
        "costs": ("n_stored", "n_experts"),
        "weights": ("n_stored",),
    }
    if "centre" in state.tensors:  # sparse inputs are not centred
        shapes["centre"] = ("n_features",)
    _with_own_sizes(state, lambda own: own.check_tensors(shapes, may_be_nan=("costs",)))
    if len(state.tensors["inputs"]) == 0:
        raise ArtifactError(f"tensor '{state.prefix}inputs' must have at least one row; got none.")
    state.check_non_negative("weights")


def _constant(state: State) -> None:
    state.check_keys("n_features", "named")
    _check_width(state)
    state.check_tensors({"mean_costs": ("n_experts",)})
    if state.settings["named"] is not None:
        state.check_integer("named", 0, state.sizes["n_experts"] - 1)


def _priced(state: State) -> None:
    state.check_keys("price_weight", "kind_of_error", "error_scale")
    for name in ("price_weight", "error_scale"):
        value = state.settings[name]
        state.check(name, is_number(value) and value >= 0, "be finite and non-negative")
    state.check_choice("kind_of_error", ERROR_HEADS)
    heads = {
        f"{head}_{name}": shape for head in ("error", "price") for name, shape in LINEAR.items()
    }
    state.check_tensors({**heads, "betas": ("n_experts",)})
    state.check_non_negative("betas")


def _cascade(state: State) -> None:
    state.check_keys("order", "columns", "n_features")
    _check_width(state)
    order, columns, sizes = state.settings["order"], state.settings["columns"], state.sizes
    named = _are_integers(order) and order and sorted(order) == list(range(len(order)))
    state.check("order", bool(named), "name every expert once, from 0")
    if sizes.setdefault("n_experts", len(order)) != len(order):
        raise ArtifactError(
            f"setting {state.prefix}order must have {sizes['n_experts']} experts; got {len(order)}."
        )
    rows: str | int = "n_experts"
    if columns is not None:
        rows = 0  # the confidences are columns of X, so there is no linear estimate
        width = sizes["n_features"]
        right = (
            _are_integers(columns)
            and len(columns) == len(order)
            and all(0 <= column < width for column in columns)
        )
        rule = f"give each of {len(order)} experts a feature in [0, {width})"
        state.check("columns", right, rule)
    state.check_tensors(
        {"thresholds": (len(order) - 1,), "coef": (rows, "n_features"), "intercept": (rows,)}
    )


def _standardized(state: State) -> None:
    (part,) = _parts(state, 1, 1)
    inner, rest = split(state.tensors, "0.")
    own = replace(state, tensors=rest)
    own.check_tensors({"mean": ("n_features",), "scale": ("n_features",)})
    own.check_positive("scale")
    check_policy_state(**part, tensors=inner, sizes=state.sizes, prefix=f"{state.prefix}0.")


def _stack(state: State) -> None:
    *members, final = _parts(state, 2)
    rest = state.tensors
    width = 0
    for number, part in enumerate(members):
        inner, rest = split(rest, f"{number}.")
        # The members may still know an expert that the final policy leaves out.
        known = {name: size for name, size in state.sizes.items() if name == "n_features"}
        prefix = f"{state.prefix}{number}."
        check_policy_state(**part, tensors=inner, sizes=known, prefix=prefix)
        state.sizes["n_features"] = known["n_features"]
        width += known["n_experts"]
    inner, rest = split(rest, f"{len(members)}.")
    replace(state, tensors=rest).check_tensors({})
    sizes = {**state.sizes, "n_features": width}
    prefix = f"{state.prefix}{len(members)}."
    check_policy_state(**final, tensors=inner, sizes=sizes, prefix=prefix)
    state.sizes["n_experts"] = sizes["n_experts"]


def _blend(state: State) -> None:
    members = _parts(state, 1)
    rest = state.tensors
    for number, part in enumerate(members):
        inner, rest = split(rest, f"{number}.")
        prefix = f"{state.prefix}{number}."
        check_policy_state(**part, tensors=inner, sizes=state.sizes, prefix=prefix)
    own = replace(state, tensors=rest)
    own.check_tensors({"weights": (len(members),), "levels": (len(members),)})
    own.check_non_negative("weights")
    own.check_non_negative("levels")


def _check_decoder(state: State) -> None:
    state.check_choice("decision", DECISIONS)
    surrogate = state.settings["surrogate"]
    pair = isinstance(surrogate, list) and len(surrogate) == 2
    state.check("surrogate", pair, "be a form and a tau")
    form, tau = surrogate
    forms = ", ".join(SURROGATE_FORMS)
    state.check("surrogate", form in SURROGATE_FORMS, f"be one of {forms} and a tau")
    state.check("surrogate", is_number(tau) and tau >= 0, "have a finite tau >= 0")


def _check_width(state: State) -> None:
    width = state.check_integer("n_features", 1)
    known = state.sizes.setdefault("n_features", width)
    state.check("n_features", width == known, f"be {known}")


def _parts(state: State, least: int, most: int | None = None) -> list[dict[str, Any]]:
    state.check_keys("parts")
    parts = state.settings["parts"]
    right = isinstance(parts, list) and all(
        isinstance(part, dict) and set(part) == {"kind", "settings"} for part in parts
    )
    if not right or len(parts) < least or (most is not None and len(parts) > most):
        rule = f"{least}" if most == least else f"at least {least}"
        raise ArtifactError(
            f"setting {state.prefix}parts must list {rule} router(s), each with kind and settings."
        )
    return list(parts)


def _with_own_sizes(state: State, check: Callable[[State], None]) -> None:
    """Check with a copy of the sizes, so that inner widths do not reach the rest of a stack."""
    own = replace(state, sizes=dict(state.sizes))
    check(own)
    state.sizes.update({name: own.sizes[name] for name in ("n_features", "n_experts")})


def _are_integers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


CHECKS: dict[str, Callable[[State], None]] = {
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
