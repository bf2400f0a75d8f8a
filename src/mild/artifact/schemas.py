"""Settings and tensors of every kind of policy and of text features, and the rules they obey."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.core.decisions import DECISIONS
from mild.errors import ArtifactError
from mild.features import OnnxFeatures
from mild.features.encoder import POOLINGS
from mild.features.hashing import LIMITS, VERSION
from mild.features.terms import NUMBER_NAMES

__all__ = ["POLICY_SCHEMAS", "TEXT_PREFIX", "TEXT_SCHEMAS", "check_policy", "check_text", "split"]

# Prefix of the text features' tensors among those of the router.
TEXT_PREFIX = "text."
# Policies may contain policies; mild writes none that is nested deeper than this.
MAX_DEPTH = 6
# Below this a float holds every integer exactly.
LARGEST = 2**53
SURROGATE_FORMS = ("comp_sum", "pairwise", "hinge")

# Value and known sizes -> what the value must be, or None if it is.
Rule = Callable[[Any, dict[str, int]], str | None]


def rule(words: str, test: Callable[[Any], bool]) -> Rule:
    """A rule that does not depend on sizes."""
    return lambda value, sizes: None if test(value) else words


def integer(low: int, high: int = LARGEST - 1) -> Rule:
    interval = f"[{low}, 2**53)" if high == LARGEST - 1 else f"[{low}, {high}]"
    return rule(f"be an integer in {interval}", lambda v: type(v) is int and low <= v <= high)


def choice(allowed: Collection[str]) -> Rule:
    return rule(f"be one of {', '.join(allowed)}", lambda value: value in allowed)


def is_amount(value: object) -> bool:
    """Finite and not negative; an integer only if a float holds it exactly."""
    if type(value) is int:
        return 0 <= value < LARGEST
    return type(value) is float and value >= 0 and math.isfinite(value)


def is_path(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def are_integers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def surrogate(value: Any, sizes: dict[str, int]) -> str | None:
    if not isinstance(value, list) or len(value) != 2:
        return "be a form and a tau"
    if value[0] not in SURROGATE_FORMS:
        return f"be one of {', '.join(SURROGATE_FORMS)} and a tau"
    return None if is_amount(value[1]) else "have a finite tau >= 0"


def width(value: Any, sizes: dict[str, int]) -> str | None:
    problem = integer(1)(value, sizes)
    if problem is None and sizes.setdefault("n_features", value) != value:
        problem = f"be {sizes['n_features']}"
    return problem


def named_expert(value: Any, sizes: dict[str, int]) -> str | None:
    return None if value is None else integer(0, sizes.get("n_experts", LARGEST) - 1)(value, sizes)


def expert_order(value: Any, sizes: dict[str, int]) -> str | None:
    if not are_integers(value) or not value or sorted(value) != list(range(len(value))):
        return "name every expert once, from 0"
    count = sizes.setdefault("n_experts", len(value))
    return None if count == len(value) else f"have {count} experts"


def confidence_columns(value: Any, sizes: dict[str, int]) -> str | None:
    count, features = sizes["n_experts"], range(sizes["n_features"])
    right = are_integers(value) and len(value) == count and all(k in features for k in value)
    words = f"give each of {count} experts a feature in [0, {len(features)})"
    return None if value is None or right else words


digest = rule(
    "be 64 hexadecimal digits",
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
)
flag = rule("be true or false", lambda value: type(value) is bool)
amount = rule("be finite and non-negative", is_amount)
is_part_list = rule(
    "list routers, each with kind and settings",
    lambda parts: (
        isinstance(parts, list)
        and all(isinstance(part, dict) and set(part) == {"kind", "settings"} for part in parts)
    ),
)


@dataclass(frozen=True)
class Schema:
    """What one kind has.

    Attributes
    ----------
    settings : name -> rule
    tensors : name -> its dimensions, as names of sizes and numbers; or a function of the settings
    parts : least and largest number of policies inside; None where there are none
    optional, positive, non_negative, may_be_nan, not_empty : names of such tensors
    dtypes : name -> dtype; None where all are float32 or float64
    """

    settings: Mapping[str, Rule] = field(default_factory=dict)
    tensors: Mapping[str, str] | Callable[[dict[str, Any]], Mapping[str, str]] = field(
        default_factory=dict
    )
    parts: tuple[int, float] | None = None
    optional: Collection[str] = ()
    positive: Collection[str] = ()
    non_negative: Collection[str] = ()
    may_be_nan: Collection[str] = ()
    not_empty: Collection[str] = ()
    dtypes: Mapping[str, str] | None = None

    def check(
        self,
        settings: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        sizes: dict[str, int],
        prefix: str,
        **own_sizes: int,
    ) -> None:
        """Refuse other settings and tensors; sizes of experts and features are added to ``sizes``."""
        rules = {**self.settings, **({} if self.parts is None else {"parts": is_part_list})}
        check_names(
            f"setting {prefix}%s", settings, rules, "is not known. A newer mild may know it"
        )
        check_values(f"setting {prefix}%s", settings, rules, sizes)
        shapes = self.tensors(dict(settings)) if callable(self.tensors) else self.tensors
        shapes = {k: v for k, v in shapes.items() if k in tensors or k not in self.optional}
        check_names(
            f"tensor '{prefix}%s'", tensors, shapes, "does not belong to a router of this kind"
        )
        known = {**sizes, **own_sizes}
        for name, dimensions in shapes.items():
            dtypes = ("float32", "float64") if self.dtypes is None else (self.dtypes[name],)
            problem = tensor_problem(tensors[name], dimensions.split(), known, dtypes)
            problem = problem or self._value_problem(name, tensors[name])
            if problem is not None:
                raise ArtifactError(f"tensor '{prefix}{name}' must {problem}.")
        # Other sizes are its own, such as the widths of its layers.
        sizes.update({key: known[key] for key in known if key in ("n_features", "n_experts")})
        check_values(f"setting {prefix}%s", settings, rules, sizes)

    def _value_problem(self, name: str, array: NDArray[Any]) -> str | None:
        if array.dtype.kind == "f":
            bad = np.isinf(array) if name in self.may_be_nan else ~np.isfinite(array)
            if bad.any():
                place = tuple(int(index) for index in np.argwhere(bad)[0])
                return f"be finite; got {array[place]} at {place}"
        # Of text features the inverse is taken, which is infinite below this number.
        least = 0.0 if self.dtypes is None else np.finfo(np.float32).tiny / 4
        if name in self.positive and not (array > least).all():
            return f"be positive; got {array.min():g}"
        if name in self.non_negative and not (array >= 0).all():
            return f"be non-negative; got {array.min():g}"
        return (
            "have at least one row; got none" if name in self.not_empty and not len(array) else None
        )


def check_names(what: str, got: Mapping[str, Any], wanted: Mapping[str, Any], extra: str) -> None:
    """Refuse missing names, and names that are too many."""
    for name in sorted(set(wanted) - set(got)):
        raise ArtifactError(f"{what % name} is missing.")
    for name in sorted(set(got) - set(wanted)):
        raise ArtifactError(f"{what % name} {extra}.")


def check_values(
    what: str, values: Mapping[str, Any], rules: Mapping[str, Rule], sizes: dict[str, int]
) -> None:
    """Refuse the first value that breaks its rule."""
    for name, test in rules.items():
        problem = test(values[name], sizes)
        if problem is not None:
            raise ArtifactError(f"{what % name} must {problem}; got {values[name]!r}.")


def tensor_problem(
    array: NDArray[Any], dimensions: list[str], sizes: dict[str, int], dtypes: Collection[str]
) -> str | None:
    """What the type or the shape must be; sizes that are not known are added."""
    if array.dtype.name not in dtypes:
        return f"be {' or '.join(dtypes)}; got {array.dtype}"
    fits = array.ndim == len(dimensions) and all(
        length == (int(size) if size.isdigit() else sizes.setdefault(size, length))
        for size, length in zip(dimensions, array.shape, strict=True)
    )
    shape = ", ".join(d if d.isdigit() else f"{d} = {sizes.get(d, '?')}" for d in dimensions)
    return None if fits else f"have shape ({shape}); got {array.shape}"


def split(
    tensors: Mapping[str, NDArray[Any]], prefix: str
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Tensors behind the prefix, without it, and the rest."""
    size = len(prefix)
    inner = {name[size:]: array for name, array in tensors.items() if name.startswith(prefix)}
    return inner, {name: array for name, array in tensors.items() if not name.startswith(prefix)}


def check_policy(
    kind: object,
    settings: object,
    tensors: Mapping[str, NDArray[Any]],
    sizes: dict[str, int],
    prefix: str = "",
) -> None:
    """Refuse a state from which the policy of this kind could not be built.

    ``sizes`` holds the dimensions known so far ("n_features", "n_experts"); unknown ones are added.
    """
    if prefix.count(".") > MAX_DEPTH:
        raise ArtifactError(f"routers may be nested {MAX_DEPTH} deep; got more at {prefix!r}.")
    schema = _schema("kind", kind, POLICY_SCHEMAS)
    if not isinstance(settings, dict):
        raise ArtifactError(f"settings of a {kind} router must be an object; got {settings!r}.")
    parts = settings.get("parts") if schema.parts else None
    states = []
    if isinstance(parts, list):
        for number, part in enumerate(parts):
            inner, tensors = split(tensors, f"{number}.")
            states.append((part, inner, f"{prefix}{number}."))
    if schema.parts and not schema.parts[0] <= len(states) <= schema.parts[1]:
        least, most = schema.parts
        count = f"{least}" if least == most else f"at least {least}"
        raise ArtifactError(f"setting {prefix}parts must list {count} router(s); got {parts!r}.")
    schema.check(settings, tensors, sizes, prefix, n_parts=len(states))
    width = 0
    for number, (part, inner, place) in enumerate(states):
        if kind != "stack":
            check_policy(part["kind"], part["settings"], inner, sizes, place)
        elif number < len(states) - 1:
            # The members may still know an expert that the final policy leaves out.
            own = {name: size for name, size in sizes.items() if name == "n_features"}
            check_policy(part["kind"], part["settings"], inner, own, place)
            sizes["n_features"] = own["n_features"]
            width += own["n_experts"]
        else:
            final = {**sizes, "n_features": width}
            check_policy(part["kind"], part["settings"], inner, final, place)
            sizes["n_experts"] = final["n_experts"]


def check_text(
    kind: object, settings: dict[str, Any], tensors: Mapping[str, NDArray[Any]], n_features: int
) -> None:
    """Refuse a state from which text features of this kind and width could not be built."""
    schema = _schema("text.kind", kind, TEXT_SCHEMAS)
    numbers = len(NUMBER_NAMES)
    if kind == "hashing" and n_features < numbers:
        raise ArtifactError(
            f"a router with hashing features must have at least {numbers} features; got {n_features}."
        )
    sizes = {"n_features": n_features}
    schema.check(settings, tensors, sizes, TEXT_PREFIX, n_projected=n_features - numbers)
    if kind == "hashing":
        terms, bits = tensors["terms"], settings["bits"]
        inside = terms.size == 0 or (terms[0] >= 0 and terms[-1] < 1 << bits)
        if not inside or not (terms[1:] > terms[:-1]).all():
            raise ArtifactError(
                f"tensor '{TEXT_PREFIX}terms' must hold ascending buckets in [0, 2**{bits})."
            )


def _schema(what: str, kind: object, schemas: Mapping[str, Schema]) -> Schema:
    if not isinstance(kind, str) or kind not in schemas:
        known = ", ".join(sorted(schemas))
        raise ArtifactError(
            f"{what} must be one of {known}; got {kind!r}. A newer mild may know it."
        )
    return schemas[kind]


def _perceptron_tensors(settings: dict[str, Any]) -> dict[str, str]:
    layers = settings["layers"]
    widths = ["n_features", *(f"width_{layer}" for layer in range(layers - 1)), "n_experts"]
    shapes = {"margins": "n_experts"}
    for k in range(layers):
        shapes |= {f"weight_{k}": f"{widths[k + 1]} {widths[k]}", f"bias_{k}": widths[k + 1]}
    return shapes


def _cascade_tensors(settings: dict[str, Any]) -> dict[str, str]:
    # Where the confidences are columns of X there is no linear estimate.
    rows = "n_experts" if settings["columns"] is None else "0"
    thresholds = f"{len(settings['order']) - 1}"
    return {"thresholds": thresholds, "coef": f"{rows} n_features", "intercept": rows}


def _static_tensors(settings: dict[str, Any]) -> dict[str, str]:
    table = {"table": "n_tokens n_features", "tokenizer": "n_bytes"}
    return {**SCALED, **(table if settings["embedded"] else {})}


LINEAR = {"coef": "n_experts n_features", "intercept": "n_experts"}
DECODER: dict[str, Rule] = {"decision": choice(DECISIONS), "surrogate": surrogate}
POLICY_SCHEMAS = {
    "linear": Schema(DECODER, {**LINEAR, "margins": "n_experts"}, positive=["margins"]),
    "linear_costs": Schema({}, LINEAR),
    "groups": Schema(
        {},
        {"coef": "n_groups n_features", "intercept": "n_groups", "costs": "n_groups n_experts"},
        not_empty=["costs"],
    ),
    "perceptron": Schema(
        # More layers than any router has would take long to list.
        {**DECODER, "layers": integer(1, 1000)},
        _perceptron_tensors,
        positive=["margins"],
    ),
    "nearest": Schema(
        {"n_neighbors": integer(1)},
        {
            "inputs": "n_stored n_features",
            "costs": "n_stored n_experts",
            "weights": "n_stored",
            "centre": "n_features",
        },
        optional=["centre"],  # sparse inputs are not centred
        non_negative=["weights"],
        may_be_nan=["costs"],
        not_empty=["inputs"],
    ),
    "constant": Schema({"n_features": width, "named": named_expert}, {"mean_costs": "n_experts"}),
    "priced": Schema(
        {
            "price_weight": amount,
            "error_scale": amount,
            "kind_of_error": choice(("ridge", "logistic")),
        },
        {
            **{f"error_{name}": shape for name, shape in LINEAR.items()},
            **{f"price_{name}": shape for name, shape in LINEAR.items()},
            "betas": "n_experts",
        },
        non_negative=["betas"],
    ),
    "cascade": Schema(
        {"n_features": width, "order": expert_order, "columns": confidence_columns},
        _cascade_tensors,
    ),
    "standardized": Schema(
        {}, {"mean": "n_features", "scale": "n_features"}, parts=(1, 1), positive=["scale"]
    ),
    "blend": Schema(
        {},
        {"weights": "n_parts", "levels": "n_parts"},
        parts=(1, math.inf),
        non_negative=["weights", "levels"],
    ),
    "stack": Schema(parts=(2, math.inf)),
}

REFERENCE = {
    "name": rule("be a name", lambda value: is_path(value) and value != ""),
    "path": rule("be a path or null", lambda value: value is None or is_path(value)),
}
SCALED = {"centre": "n_features", "scale": "1"}
TEXT_DTYPES = {
    "terms": "int32",
    "weights": "float32",
    "projection": "int8",
    "centre": "float32",
    "scale": "float32",
    LIMITS: "float32",
    "table": "float16",
    "tokenizer": "uint8",
}
LENGTH = integer(1, 1 << 20)
TEXT_SCHEMAS = {
    "hashing": Schema(
        {
            "version": integer(VERSION, VERSION),
            "bits": integer(8, 24),
            "first": LENGTH,
            "last": integer(0, 1 << 20),
        },
        {
            "terms": "n_terms",
            "weights": "n_terms",
            "projection": "n_terms n_projected",
            "centre": "n_features",
            "scale": "n_features",
            LIMITS: f"2 {len(NUMBER_NAMES)}",
        },
        optional=[LIMITS],  # older artefacts have none
        positive=["scale"],
        dtypes=TEXT_DTYPES,
    ),
    "static": Schema(
        {**REFERENCE, "table_sha256": digest, "tokenizer_sha256": digest}
        | {"normalize": flag, "embedded": flag},
        _static_tensors,
        positive=["scale"],
        not_empty=["table"],
        dtypes=TEXT_DTYPES,
    ),
    "encoder": Schema(
        {**REFERENCE, "sha256": digest, "normalize": flag}
        | {"pooling": choice(POOLINGS), "max_length": LENGTH},
        SCALED,
        positive=["scale"],
        dtypes=TEXT_DTYPES,
    ),
    "onnx": Schema(
        {**dict.fromkeys(OnnxFeatures.FILES.values(), digest)}
        | {"max_length": LENGTH, "pad": integer(0, 1 << 31)},
        SCALED,
        positive=["scale"],
        dtypes=TEXT_DTYPES,
    ),
    "vectors": Schema(
        {
            "n_features": width,
            "column": rule("be a string or null", lambda v: v is None or isinstance(v, str)),
        }
    ),
}
