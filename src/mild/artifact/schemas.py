"""Settings and tensors of every kind of policy and of text features, and the rules they obey."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.artifact.rules import (
    MAX_ASKED,
    Rule,
    amount,
    check_names,
    check_values,
    choice,
    class_labels,
    different_options,
    digest,
    finite,
    flag,
    integer,
    is_path,
    json_object,
    named_expert,
    part_list,
    probability,
    rule,
    salt,
    share,
    steps,
    surrogate,
    text_or_null,
    width,
)
from mild.core.answers import KINDS
from mild.core.decisions import DECISIONS
from mild.errors import RouterFileError, count_noun
from mild.features import CombinedFeatures, OnnxFeatures
from mild.features.encoder import POOLINGS
from mild.features.hashing import VERSION
from mild.features.terms import NUMBER_NAMES
from mild.policies import READINGS
from mild.policies.cascade import answer_groups

# Prefix of the text features' tensors among those of the router.
TEXT_PREFIX = "text."
# Prefixes of what tells how far expected costs can be trusted; not every router has such tensors.
NOVELTY_PREFIX = "novelty."
# Hashes of the training queries, by which they are recognised later.
HASHES_TENSOR = "query_hashes"
# Policies may contain policies; mild writes none that is nested deeper than this.
MAX_DEPTH = 7
# Patterns in the table of agreement of a cascade: more would make a decision slow.
MAX_PATTERNS = 1 << 20
# Sums of scores may exceed counts by rounding.
ROUNDING = 1e-6
# Types of tensors of policies, and of text features, which state theirs.
POLICY_DTYPES = ("float32", "float64")
TEXT_DTYPES = ("float32", "int32", "int8")

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class TensorRule:
    """What a tensor must be.

    It is written as its dimensions, which are names of sizes and numbers, and then what it is besides: its
    dtype ("float32" or "float64" where none is given), "optional", "positive", "not negative", "may be
    NaN", "not empty" or "ranks", which are each number from 0 on once.

    >>> TensorRule.of("n_experts 3, float32, positive").problem(np.ones((2, 3), np.float32), {})
    >>> TensorRule.of("n_experts 3").problem(np.ones((2, 4)), {})
    'have shape (n_experts = 2, 3); got (2, 4)'
    """

    dimensions: Sequence[str]
    dtypes: Sequence[str]
    properties: Sequence[str]

    @classmethod
    def of(cls, description: str) -> TensorRule:
        """The rule of a description."""
        shape, *properties = description.split(", ")
        dtypes = [word for word in properties if word in TEXT_DTYPES]
        return cls(shape.split(), dtypes or POLICY_DTYPES, properties)

    @property
    def is_optional(self) -> bool:
        """Whether the tensor may be missing."""
        return "optional" in self.properties

    def problem(self, array: NDArray[Any], sizes: dict[str, int]) -> str | None:
        """What a tensor must be and is not, or None; sizes that are not known yet are added."""
        if array.dtype.name not in self.dtypes:
            return f"be {' or '.join(self.dtypes)}; got {array.dtype}"
        if not self._fits(array.shape, sizes):
            return f"have shape ({self._shape_words(sizes)}); got {array.shape}"
        if array.dtype.kind == "f":
            index = self._index_not_finite(array)
            if index is not None:
                return f"be finite; got {array[index]} at {index}"
        if "positive" in self.properties and not (array > self._least_positive).all():
            return f"be positive; got {array.min():g}"
        if "not negative" in self.properties and not (array >= 0).all():
            return f"be non-negative; got {array.min():g}"
        if "ranks" in self.properties and sorted(array.tolist()) != list(range(len(array))):
            return f"have every rank from 0 on once; got {array.tolist()}"
        if "not empty" in self.properties and len(array) == 0:
            return "have at least one row; got none"
        return None

    def _fits(self, shape: Sequence[int], sizes: dict[str, int]) -> bool:
        """Whether a shape is that of the rule; sizes that are not known yet are added."""
        if len(shape) != len(self.dimensions):
            return False
        for dimension, length in zip(self.dimensions, shape, strict=True):
            expected_length = (
                int(dimension) if dimension.isdigit() else sizes.setdefault(dimension, length)
            )
            if length != expected_length:
                return False
        return True

    def _shape_words(self, sizes: Mapping[str, int]) -> str:
        """The shape with the sizes that are known, such as "n_experts = 2, 3"."""
        words = []
        for dimension in self.dimensions:
            if dimension.isdigit():
                words.append(dimension)
            else:
                words.append(f"{dimension} = {sizes.get(dimension, '?')}")
        return ", ".join(words)

    def _index_not_finite(self, array: NDArray[Any]) -> tuple[int, ...] | None:
        """Index of the first number that is not finite; NaN is passed over where it is allowed."""
        is_wrong = np.isinf(array) if "may be NaN" in self.properties else ~np.isfinite(array)
        if not is_wrong.any():
            return None
        return tuple(int(index) for index in np.argwhere(is_wrong)[0])

    @property
    def _least_positive(self) -> float:
        """What a positive number must be above."""
        if self.dtypes == POLICY_DTYPES:
            return 0.0
        # Of text features the inverse is taken, which is infinite below this number.
        return float(np.finfo(np.float32).tiny / 4)


@dataclass(frozen=True)
class Schema:
    """Rules of the settings and the tensors of one kind."""

    settings: Mapping[str, Rule] = field(default_factory=dict)
    # name -> description of a TensorRule, or a function of the settings that gives them
    tensors: Mapping[str, str] | Callable[[dict[str, Any]], Mapping[str, str]] = field(
        default_factory=dict
    )
    # Least and largest number of policies inside; (0, 0) for a kind that has none.
    n_parts: tuple[int, float] = (0, 0)

    @property
    def has_parts(self) -> bool:
        """Whether there are policies inside."""
        return self.n_parts != (0, 0)

    def check(
        self,
        settings: Mapping[str, Any],
        tensors: Tensors,
        sizes: dict[str, int],
        prefix: str,
        **own_sizes: int,
    ) -> None:
        """Refuse other settings and tensors; sizes of experts and features are added to ``sizes``."""
        rules = dict(self.settings)
        if self.has_parts:
            rules["parts"] = part_list
        setting = f"setting {prefix}%s"
        check_names(setting, settings, rules, "is not known. A newer mild may know it")
        check_values(setting, settings, rules, sizes)
        known_sizes = {**sizes, **own_sizes}
        self._check_tensors(settings, tensors, known_sizes, f"tensor '{prefix}%s'")
        # Other sizes are its own, such as the widths of its layers.
        for name in ("n_features", "n_experts"):
            if name in known_sizes:
                sizes[name] = known_sizes[name]
        # Some rules depend on sizes, which the tensors have made known.
        check_values(setting, settings, rules, sizes)

    def _check_tensors(
        self, settings: Mapping[str, Any], tensors: Tensors, sizes: dict[str, int], template: str
    ) -> None:
        """Refuse other tensors; sizes that are not known yet are added."""
        descriptions = self.tensors
        if callable(descriptions):
            descriptions = descriptions(dict(settings))
        rules = {}
        for name, description in descriptions.items():
            tensor_rule = TensorRule.of(description)
            if name in tensors or not tensor_rule.is_optional:
                rules[name] = tensor_rule
        check_names(template, tensors, rules, "does not belong to a router of this kind")
        for name, tensor_rule in rules.items():
            problem = tensor_rule.problem(tensors[name], sizes)
            if problem is not None:
                raise RouterFileError(f"{template % name} must {problem}.")


def split(tensors: Tensors, prefix: str) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Tensors whose names start with the prefix, by names without it, and the other tensors."""
    behind_prefix = {}
    rest = {}
    for name, array in tensors.items():
        if name.startswith(prefix):
            behind_prefix[name[len(prefix) :]] = array
        else:
            rest[name] = array
    return behind_prefix, rest


def with_prefix(tensors: Tensors, prefix: str) -> dict[str, NDArray[Any]]:
    """Tensors under their names behind a prefix, as they are written."""
    return {f"{prefix}{name}": np.ascontiguousarray(array) for name, array in tensors.items()}


@dataclass(frozen=True)
class PolicyPart:
    """A policy inside a policy, as it was read."""

    description: Any  # an object with "kind" and "settings", once the schema has been checked
    tensors: Tensors
    prefix: str  # of its settings and tensors, for messages

    @property
    def kind(self) -> str:
        """Its kind."""
        return str(self.description["kind"])

    @property
    def settings(self) -> Any:
        """Its settings."""
        return self.description["settings"]

    def check(self, sizes: dict[str, int], inside: object = None) -> None:
        """Refuse it as ``check_policy`` does."""
        check_policy(
            self.description["kind"], self.settings, self.tensors, sizes, self.prefix, inside
        )


def check_policy(
    kind: object,
    settings: object,
    tensors: Tensors,
    sizes: dict[str, int],
    prefix: str = "",
    inside: object = None,
) -> None:
    """Refuse a state from which the policy of this kind could not be built.

    ``sizes`` holds the dimensions known so far ("n_features", "n_experts"); unknown ones are added.
    ``inside`` is the kind of the policy that this one is a part of.
    """
    if prefix.count(".") > MAX_DEPTH:
        raise RouterFileError(f"routers may be nested {MAX_DEPTH} deep; got more at {prefix!r}.")
    schema = _schema("kind", kind, POLICY_SCHEMAS)
    must_be_outermost = kind == "mix" or (kind == "cascade" and inside not in ("mix", "tradeoff"))
    if must_be_outermost and prefix:
        raise RouterFileError(f"a {kind} must not be inside a router; got one at {prefix!r}.")
    if not isinstance(settings, dict):
        raise RouterFileError(f"settings of a {kind} router must be an object; got {settings!r}.")
    parts: list[PolicyPart] = []
    if schema.has_parts:
        parts, tensors = _take_parts(settings, tensors, prefix)
        _check_number_of_parts(schema, settings, len(parts), prefix)
    schema.check(settings, tensors, sizes, prefix, n_parts=len(parts))
    for part in parts:
        part.check(sizes, inside=kind)
    if kind == "cascade":
        _check_agreement(tensors)
    if kind == "mix":
        _check_mix(parts)
    if kind == "deferral":
        _check_deferral(settings, tensors)


def _take_parts(
    settings: Mapping[str, Any], tensors: Tensors, prefix: str
) -> tuple[list[PolicyPart], Tensors]:
    """The policies inside, and the tensors that are not theirs."""
    parts = []
    descriptions = settings.get("parts")
    if isinstance(descriptions, list):
        for number, description in enumerate(descriptions):
            part_tensors, tensors = split(tensors, f"{number}.")
            parts.append(PolicyPart(description, part_tensors, f"{prefix}{number}."))
    return parts, tensors


def _check_number_of_parts(
    schema: Schema, settings: Mapping[str, Any], n_parts: int, prefix: str
) -> None:
    """Refuse too few policies inside, and too many."""
    low, high = schema.n_parts
    if low <= n_parts <= high:
        return
    allowed = count_noun(low, "router")
    if high == math.inf:
        allowed = f"at least {allowed}"
    elif high > low:
        allowed = f"{allowed} or {high:g}"
    raise RouterFileError(
        f"setting {prefix}parts must list {allowed}; got {settings.get('parts')!r}."
    )


def _check_mix(parts: Sequence[PolicyPart]) -> None:
    """Refuse a mix of a cascade and something else, or of cascades that compare answers differently."""
    answer_kinds = [part.settings.get("answer_kind") for part in parts]
    if len(set(answer_kinds)) > 1:
        raise RouterFileError(
            "setting parts of a mix must be two cascades that compare answers alike, or two policies "
            f"without answers; got answer kinds {answer_kinds}."
        )


def _check_agreement(tensors: Tensors) -> None:
    """Refuse a table of agreement that no rows have."""
    groups = tensors["groups"]
    sums = tensors["sums"]
    if len(groups) > MAX_PATTERNS:
        rule = f"must have at most {MAX_PATTERNS:,} rows; got {len(groups):,}"
        raise RouterFileError(f"tensor 'groups' {rule}.")
    # Numbered from 1 as they appear; 0 for no answer, -1 for one whose score is unknown.
    numbers = np.clip(groups, -1, MAX_ASKED).astype(np.intp)
    if not np.array_equal(groups, answer_groups(numbers - 1)):
        raise RouterFileError(
            "tensor 'groups' must number the answers of each row from 1 as they appear."
        )
    if len(np.unique(numbers, axis=0)) < len(numbers):
        raise RouterFileError("tensor 'groups' must have different rows; got one twice.")
    if not (sums <= tensors["counts"][:, None] * (1 + ROUNDING)).all():
        raise RouterFileError(f"tensor 'sums' must be at most the counts; got {sums.max():g}.")
    highest_accuracy = tensors["accuracy"].max()
    if highest_accuracy > 1 + ROUNDING:
        raise RouterFileError(f"tensor 'accuracy' must be at most 1; got {highest_accuracy:g}.")


def _check_deferral(settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Refuse scores that are not those of the classes and of the options."""
    n_classes = len(settings["classes"])
    n_options = len(tensors["costs"])
    n_outputs = n_classes + n_options - 1
    n_margins = n_outputs
    if settings["reading"] == "router":
        n_outputs = n_classes + n_options
        n_margins = n_options
    last_bias = tensors[f"bias_{settings['layers'] - 1}"]
    rules = {
        f"the last layer must have {n_outputs} outputs": len(last_bias) == n_outputs,
        f"tensor 'score_margins' must have {n_margins} entries": (
            len(tensors["score_margins"]) == n_margins
        ),
        f"setting options must be less than {n_options}": max(settings["options"]) < n_options,
    }
    for words, holds in rules.items():
        if not holds:
            raise RouterFileError(f"{words}.")


def check_text(
    kind: object,
    settings: dict[str, Any],
    tensors: Tensors,
    n_features: int,
    prefix: str = TEXT_PREFIX,
) -> None:
    """Refuse a state from which text features of this kind and width could not be built."""
    schema = _schema("text.kind", kind, TEXT_SCHEMAS)
    if kind == CombinedFeatures.kind:
        _check_combined(schema, settings, tensors, n_features, prefix)
        return
    n_numbers = len(NUMBER_NAMES)
    if kind == "hashing" and n_features < n_numbers:
        raise RouterFileError(
            f"a router with hashing features must have at least {n_numbers} features; got {n_features}."
        )
    sizes = {"n_features": n_features}
    schema.check(settings, tensors, sizes, prefix, n_projected=n_features - n_numbers)
    if kind == "hashing" and not _are_buckets(tensors["terms"], settings["bits"]):
        raise RouterFileError(
            f"tensor '{prefix}terms' must hold ascending buckets in [0, 2**{settings['bits']})."
        )


def _check_combined(
    schema: Schema, settings: dict[str, Any], tensors: Tensors, n_features: int, prefix: str
) -> None:
    """Refuse features of hashing and an encoder side by side that could not be built."""
    hashing, rest = split(tensors, "hashing.")
    encoder, rest = split(rest, "encoder.")
    schema.check(settings, rest, {}, prefix)
    n_hashed = n_features
    if "centre" in hashing:
        n_hashed = hashing["centre"].size
    check_text("hashing", settings["hashing"], hashing, n_hashed, f"{prefix}hashing.")
    check_text("encoder", settings["encoder"], encoder, n_features - n_hashed, f"{prefix}encoder.")


def _are_buckets(terms: NDArray[Any], bits: int) -> bool:
    """Whether terms are ascending and in [0, 2**bits)."""
    if terms.size == 0:
        return True
    is_ascending = (terms[1:] > terms[:-1]).all()
    return bool(is_ascending and terms[0] >= 0 and terms[-1] < 1 << bits)


def check_novelty(novelty: Tensors, sizes: Mapping[str, int]) -> None:
    """Refuse tensors of novelty that do not fit."""
    Schema({}, NOVELTY).check({}, novelty, dict(sizes), NOVELTY_PREFIX)


def check_query_hashes(hashes: NDArray[Any] | None) -> NDArray[np.uint64] | None:
    """Refuse hashes of training queries that are not ascending 64-bit numbers; None stays None."""
    if hashes is None:
        return None
    if hashes.dtype != np.uint64 or hashes.ndim != 1 or not (hashes[1:] > hashes[:-1]).all():
        raise RouterFileError(
            f"tensor {HASHES_TENSOR!r} must be ascending uint64 numbers; got {hashes.dtype} of shape "
            f"{hashes.shape}."
        )
    return np.ascontiguousarray(hashes)


def described_tensor(array: NDArray[Any]) -> dict[str, Any]:
    """Shape and dtype of a tensor, as the manifest lists them."""
    return {"shape": list(array.shape), "dtype": array.dtype.name}


def _schema(what: str, kind: object, schemas: Mapping[str, Schema]) -> Schema:
    """The schema of a kind; an unknown kind is refused."""
    if not isinstance(kind, str) or kind not in schemas:
        known = ", ".join(sorted(schemas))
        raise RouterFileError(
            f"{what} must be one of {known}; got {kind!r}. A newer mild may know it."
        )
    return schemas[kind]


# Tensors that depend on the settings.


def _perceptron_tensors(settings: dict[str, Any]) -> dict[str, str]:
    """A weight and a bias of each layer, and the margins."""
    n_layers = settings["layers"]
    widths = ["n_features"]
    widths.extend(f"width_{layer}" for layer in range(n_layers - 1))
    widths.append("n_experts")
    shapes = MARGINS | RANKS
    for layer in range(n_layers):
        shapes[f"weight_{layer}"] = f"{widths[layer + 1]} {widths[layer]}"
        shapes[f"bias_{layer}"] = widths[layer + 1]
    return shapes


def _deferral_tensors(settings: dict[str, Any]) -> dict[str, str]:
    n_layers = settings["layers"]
    widths = ["n_features"]
    widths.extend(f"width_{layer}" for layer in range(n_layers - 1))
    widths.append("n_outputs")
    shapes = {"costs": "n_options, not negative, not empty", "score_margins": "n_margins, positive"}
    for layer in range(n_layers):
        shapes[f"weight_{layer}"] = f"{widths[layer + 1]} {widths[layer]}"
        shapes[f"bias_{layer}"] = widths[layer + 1]
    return shapes


def _agreement_tensors(settings: dict[str, Any]) -> dict[str, str]:
    """The table of agreement of the experts that are asked."""
    n_asked = sum(len(step) for step in settings["steps"])
    return {name: shape.format(n_asked) for name, shape in AGREEMENT.items()}


NOVELTY = {
    "centres": "n_centres n_features, not empty",
    "scales": "2, positive",
    "score_quantiles": "201",
    "means": "n_means n_experts, not empty",
}
AGREEMENT = {
    "groups": "n_patterns {}, not empty",
    "counts": "n_patterns, not negative",
    "sums": "n_patterns {}, not negative",
    "accuracy": "{}, not negative",
}
LINEAR = {"coef": "n_experts n_features", "intercept": "n_experts"}
RANKS = {"ranks": "n_experts, optional, ranks"}
MARGINS = {"margins": "n_experts, positive"}
DECODER: dict[str, Rule] = {"decision": choice(DECISIONS), "surrogate": surrogate}
POLICY_SCHEMAS = {
    "linear": Schema(DECODER, LINEAR | MARGINS | RANKS),
    "linear_costs": Schema({}, LINEAR | RANKS),
    # More layers than any router has would take long to list.
    "perceptron": Schema({**DECODER, "layers": integer(1, 1000)}, _perceptron_tensors),
    "nearest": Schema(
        {"n_neighbors": integer(1)},
        {
            "inputs": "n_stored n_features, not empty",
            "costs": "n_stored n_experts, may be NaN",
            "weights": "n_stored, not negative",
            "centre": "n_features, optional",  # sparse inputs are not centred
        }
        | RANKS,
    ),
    "constant": Schema(
        {"n_features": width, "named": named_expert}, {"mean_costs": "n_experts"} | RANKS
    ),
    "priced": Schema(
        dict.fromkeys(("price_weight", "error_scale"), amount)
        | {"kind_of_error": choice(("ridge", "logistic"))},
        {
            "error_coef": LINEAR["coef"],
            "error_intercept": LINEAR["intercept"],
            "price_coef": LINEAR["coef"],
            "price_intercept": LINEAR["intercept"],
            "betas": "n_experts, not negative",
        }
        | RANKS,
    ),
    "cascade": Schema(
        {"answer_kind": choice(KINDS), "steps": steps, "threshold": probability},
        _agreement_tensors,
        n_parts=(1, 1),
    ),
    "standardized": Schema(
        {}, {"mean": "n_features", "scale": "n_features, positive"}, n_parts=(1, 1)
    ),
    "blend": Schema(
        {},
        dict.fromkeys(("weights", "levels"), "n_parts, not negative") | RANKS,
        n_parts=(1, math.inf),
    ),
    "tradeoff": Schema(n_parts=(2, math.inf)),
    "mix": Schema({"share": share, "salt": salt}, n_parts=(2, 2)),
    "deferral": Schema(
        {
            "classes": class_labels,
            "reading": choice(READINGS),
            "costs_in_loss": flag,
            "strength": amount,
            "scale": amount,
            "threshold": finite,
            "options": different_options,
            "layers": integer(1, 1000),
        },
        _deferral_tensors,
    ),
}

REFERENCE = {
    "name": rule("be a name", lambda value: is_path(value) and value != ""),
    "path": rule("be a path or null", lambda value: value is None or is_path(value)),
}
SCALED = {"centre": "n_features, float32", "scale": "1, float32, positive"}
LENGTH = integer(1, 1 << 20)
TEXT_SCHEMAS = {
    "hashing": Schema(
        {"version": integer(VERSION, VERSION), "bits": integer(8, 24)}
        | {"first": LENGTH, "last": integer(0, 1 << 20)},
        {
            "terms": "n_terms, int32",
            "weights": "n_terms, float32",
            "projection": "n_terms n_projected, int8",
            "centre": "n_features, float32",
            "scale": "n_features, float32, positive",
            "limits": f"2 {len(NUMBER_NAMES)}, float32",
        },
    ),
    "encoder": Schema(
        {**REFERENCE, "sha256": digest, "normalize": flag}
        | {"pooling": choice(POOLINGS), "max_length": LENGTH},
        SCALED,
    ),
    CombinedFeatures.kind: Schema(dict.fromkeys(("hashing", "encoder"), json_object)),
    "onnx": Schema(
        dict.fromkeys(OnnxFeatures.FILES.values(), digest)
        | {"max_length": LENGTH, "pad": integer(0, 1 << 31)},
        SCALED,
    ),
    "vectors": Schema({"n_features": width, "column": text_or_null}),
}
